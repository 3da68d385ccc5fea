// Edits of single frames of a stream, for the few that are not relayed unchanged, and the text of their data.
import { decodeString, JsonScanner, type Span } from '../../../wire/json/json.ts';
import { dataOf, readFields, spanInFrame } from '../../../wire/sse-fields.ts';
import { type Edit, spliceSpans } from '../../request/request-scan.ts';

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const COMMA = Buffer.from(',');
const ASCII = /^[\x20-\x7e]*$/;
/** Shared, because reading is synchronous. */
const scanner = new JsonScanner();

/** A copy of the frame in `[start, end)`. @param edits with offsets in `bytes` */
export function rewritten(bytes: Buffer, start: number, end: number, edits: readonly Edit[]): Buffer {
  const shifted = edits.map((edit) => ({
    bytes: edit.bytes,
    span: { start: edit.span.start - start, end: edit.span.end - start },
  }));
  return spliceSpans(bytes.subarray(start, end), shifted);
}

/**
 * The frame with members added at the end of its object, except names that it already has.
 * @param members by name; each as it is written, name and value
 */
export function withMembers(frame: Buffer, members: ReadonlyMap<string, Buffer>): Buffer {
  if (members.size === 0) return frame;
  const { values } = readFields(frame, 0, frame.length);
  const data = dataOf(frame, values);
  if (data !== null) scanner.reset(data.bytes, data.start, data.end);
  if (data === null || !scanner.enterObject()) return frame;
  const missing = new Map(members);
  while (scanner.nextMember()) {
    for (const name of missing.keys()) if (isKey(data.bytes, name)) missing.delete(name);
    scanner.skipValue();
  }
  if (scanner.fault !== null || missing.size === 0) return frame;
  const { start } = spanInFrame({ start: scanner.pos - 1, end: scanner.pos }, values);
  const bytes = Buffer.concat([...missing.values()].flatMap((member) => [COMMA, member]));
  return spliceSpans(frame, [{ span: { start, end: start }, bytes }]);
}

/** Whether the scanner's current key is this name. */
function isKey(bytes: Buffer, name: string): boolean {
  return ASCII.test(name) ? scanner.keyIs(name) : decodeString(bytes, scanner.keySpan) === name;
}

/** Whether there is a span whose bytes differ from the token. */
export function differs(bytes: Buffer, span: Span | null, token: Buffer): span is Span {
  if (span === null) return false;
  return bytes.compare(token, 0, token.length, span.start, span.end) !== 0;
}

/** Whether the last line is complete or a comment: a partial line could have become data. */
export function endsWithComment(frame: Buffer): boolean {
  const line = Math.max(frame.lastIndexOf(LF), frame.lastIndexOf(CR)) + 1;
  return line === frame.length || frame[line] === COLON;
}

/** The data of a frame, its lines joined, or its `error` field. */
export function dataText(frame: Buffer): string {
  const data = dataOf(frame, readFields(frame, 0, frame.length).values);
  return data === null ? '' : data.bytes.toString('utf8', data.start, data.end);
}

/** Adds a piece to a list that exists only if something is in it. */
export function append(pieces: Buffer[] | undefined, piece: Buffer): Buffer[] {
  if (pieces === undefined) return [piece];
  pieces.push(piece);
  return pieces;
}
