// The head of a response (RFC 9112): where it ends, and its header lines. response-parser.ts parses the response.
import { RESPONSE_FIELDS, type ResponseField, type ResponseHeaders } from '../transport.ts';
import { TOKEN } from './header-names.ts';

/** The bytes are no valid response to the request; the message is for the log. */
export class InvalidResponse extends Error {}

export const HEAD_END_BYTES = 4;
/** Header lines that are kept. */
const MAX_KEPT_LINES = 64;
/** Lines that change now and then are not worth joining. */
const JOINED_AFTER = 16;

export const CR = 0x0d;
export const LF = 0x0a;

/** RFC 9110, 5.5, and line ends other than CRLF (RFC 9112, 2.2). */
const FORBIDDEN = /[^\t\x20-\x7e\x80-\xff]/;
const STATUS_LINE = /^HTTP\/1\.[01] [1-9][0-9]{2}(?: |$)/;
/** Offsets in the status line: the digit after `HTTP/1.`, and the three digits of the status. */
const MINOR_AT = 7;
const STATUS_AT = 9;

/** Index of CRLF CRLF from `start`; -1 if absent. Heads are short, so this loop is faster than the native search. */
export function headEnd(bytes: Buffer, start: number, end: number): number {
  // Checks the fourth position; a byte other than CR and LF there rules out all four alignments.
  for (let at = start + HEAD_END_BYTES - 1; at < end; ) {
    const byte = bytes[at];
    if (byte === LF) {
      if (bytes[at - 1] === CR && bytes[at - 2] === LF && bytes[at - 3] === CR) return at - 3;
      at += 2;
    } else if (byte === CR) at += 1;
    else at += HEAD_END_BYTES;
  }
  return -1;
}

/** Whether an LF in `[start, end)` has no CR before it. */
export function hasBareLf(bytes: Buffer, start: number, end: number): boolean {
  for (let at = bytes.indexOf(LF, start); at !== -1 && at < end; at = bytes.indexOf(LF, at + 1))
    if (bytes[at - 1] !== CR) return true;
  return false;
}

const FIELDS: ReadonlyMap<string, ResponseField> = new Map(RESPONSE_FIELDS.map((name) => [name, name]));

interface HeaderLine {
  /** As received, with its CRLF. */
  readonly text: string;
  /** Its name as received, with the colon. */
  readonly start: string;
  /** Undefined for a field that nobody reads. */
  readonly name: ResponseField | undefined;
  readonly value: string;
}

/** Lines that follow each other: one, or several that have long been the same and are compared at once. */
export interface HeaderLines {
  readonly text: string;
  readonly lines: readonly HeaderLine[];
  /** Heads in a row that had them. */
  repeats: number;
}

/** The parts of a head. `isOld`: HTTP/1.0. */
interface ResponseHead {
  readonly status: number;
  readonly isOld: boolean;
  readonly headers: ResponseHeaders;
}

/**
 * @param text the lines of a head, each with its CRLF
 * @param kept lines of the head before, which those of this one replace: most of them are the same
 * @throws InvalidResponse
 */
export function readHead(text: string, kept: HeaderLines[]): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const statusLine = text.slice(0, lineEnd);
  if (!STATUS_LINE.test(statusLine) || FORBIDDEN.test(statusLine))
    throw new InvalidResponse('an invalid status line');
  const status = Number(text.slice(STATUS_AT, STATUS_AT + 3));
  const headers: Partial<Record<ResponseField, string | string[]>> = {};
  let index = 0;
  for (let at = lineEnd + 2; at < text.length; ) {
    let present = kept[index];
    // V8 compares a slice by words, and `startsWith` by characters.
    if (present === undefined || text.slice(at, at + present.text.length) !== present.text) {
      if (present !== undefined && present.lines.length > 1) {
        kept.splice(index, 1, ...present.lines.map(alone));
        continue;
      }
      present = alone(lineAt(text, at, present?.lines[0]));
      if (index < MAX_KEPT_LINES) kept[index] = present;
    } else present.repeats += 1;
    at += present.text.length;
    for (const line of present.lines) addTo(headers, line);
    if (!joinsBefore(kept, index)) index += 1;
  }
  if (index < kept.length) kept.length = index;
  return { status, isOld: text[MINOR_AT] === '0', headers };
}

function addTo(
  headers: Partial<Record<ResponseField, string | string[]>>,
  { name, value }: HeaderLine,
): void {
  if (name === undefined) return;
  const present = headers[name];
  headers[name] = present === undefined ? value : [present, value].flat();
}

function alone(line: HeaderLine): HeaderLines {
  return { text: line.text, lines: [line], repeats: 0 };
}

/** Joins the lines at `index` with those before them. @returns whether it did, because both have long been the same */
function joinsBefore(kept: HeaderLines[], index: number): boolean {
  const [first, second] = [kept[index - 1], kept[index]];
  if (first === undefined || second === undefined) return false;
  const { repeats } = second;
  if (repeats < JOINED_AFTER || first.repeats < JOINED_AFTER) return false;
  kept.splice(index - 1, 2, {
    text: first.text + second.text,
    lines: [...first.lines, ...second.lines],
    repeats,
  });
  return true;
}

/** @param before the line in its place in the head before: mostly of the same name. @throws InvalidResponse */
function lineAt(text: string, at: number, before: HeaderLine | undefined): HeaderLine {
  const end = text.indexOf('\r\n', at);
  const isNamed = before !== undefined && text.slice(at, at + before.start.length) === before.start;
  const start = isNamed ? before.start : text.slice(at, text.indexOf(':', at) + 1);
  const value = trimBlanks(text, at + start.length, end);
  // Also rejects line folding (RFC 9112, 5.2) and blanks before the colon (5.1).
  if (!isNamed && !TOKEN.test(start.slice(0, -1))) throw new InvalidResponse('an invalid header line');
  if (FORBIDDEN.test(value)) throw new InvalidResponse('an invalid character in the head');
  const name = isNamed ? before.name : FIELDS.get(start.slice(0, -1).toLowerCase());
  return { text: text.slice(at, end + 2), start, name, value };
}

/** RFC 9110, 5.5: blanks around a value are not part of it. */
function trimBlanks(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** RFC 9112, 9.3. */
export function keepsAlive(connection: string | string[] | undefined, isOld: boolean): boolean {
  if (connection === undefined) return !isOld;
  if (connection === 'keep-alive') return true;
  const options = String(connection)
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  return !options.includes('close') && (!isOld || options.includes('keep-alive'));
}
