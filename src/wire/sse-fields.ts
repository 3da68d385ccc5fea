// The lines of one frame (WHATWG HTML, 9.2.6): the positions of its data and event name, and the lines that are not forwarded.
// chat-chunk.ts and typed-events.ts interpret the data.
import type { Span } from './json/json.ts';

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const COLON = 0x3a;
const LETTER_D = 0x64;

const ID = Buffer.from('id');
const RETRY = Buffer.from('retry');
const EVENT = Buffer.from('event');
const ERROR = Buffer.from('error');
/** Up to this length a line is read byte by byte, which is cheaper than a native search. */
const SHORT_LINE = 512;
const DONE = Buffer.from('[DONE]');
export const DATA = Buffer.from('data');
/** A byte order mark may precede the first field of a stream. */
export const BOM = Buffer.from([0xef, 0xbb, 0xbf]);

/** The fields of a frame, as offsets in the buffer that was read. */
interface SseFields {
  /** The values of the data fields: start, end, start, end …; without any, that of an `error` field. */
  readonly values: readonly number[];
  /** The value of the last `event` field, or the name of that `error` field. */
  readonly event: Span | null;
}

/** The data of an event: the values of its data fields, with LF between them. */
export interface SseData {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Whether it begins with `[DONE]`, which is what SDKs test for. */
  readonly isDone: boolean;
}

export function readFields(bytes: Buffer, start: number, end: number): SseFields {
  const values: number[] = [];
  let event: Span | null = null;
  let error: Span | null = null;
  let errorStart = 0;
  let pos = bytesStartWith(bytes, BOM, start, end) ? start + BOM.length : start;
  while (pos < end) {
    const lineEnd = endOfLine(bytes, pos, end);
    const dataAt = fieldValue(bytes, DATA, pos, lineEnd);
    if (dataAt >= 0) values.push(dataAt, lineEnd);
    else {
      const eventAt = fieldValue(bytes, EVENT, pos, lineEnd);
      if (eventAt >= 0) event = { start: eventAt, end: lineEnd };
      else {
        const errorAt = fieldValue(bytes, ERROR, pos, lineEnd);
        if (errorAt >= 0) {
          error = { start: errorAt, end: lineEnd };
          errorStart = pos;
        }
      }
    }
    pos = lineEnd + 1;
  }
  // `error: {…}`, as older versions of llama.cpp write it, reads as `event: error` with that data.
  if (error === null || values.length > 0) return { values, event };
  return { values: [error.start, error.end], event: { start: errorStart, end: errorStart + ERROR.length } };
}

/** @returns null if the event has no data, or only blanks; a copy if it has several data lines */
export function dataOf(bytes: Buffer, values: readonly number[]): SseData | null {
  const [start, end] = values;
  if (start === undefined || end === undefined) return null;
  const isDone = bytesStartWith(bytes, DONE, start, end);
  if (values.length === 2) return isBlank(bytes, start, end) ? null : { bytes, start, end, isDone };
  const joined = joinLines(bytes, values);
  return isBlank(joined, 0, joined.length) ? null : { bytes: joined, start: 0, end: joined.length, isDone };
}

function isBlank(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if ((bytes[at] ?? 0) > SPACE) return false;
  return true;
}

/** Maps a span of a token in the data to the frame. A token is always within one line. */
export function spanInFrame(span: Span, values: readonly number[]): Span {
  // A single data line is read in place.
  if (values.length === 2) return span;
  let lineStart = 0;
  for (let i = 0; i < values.length; i += 2) {
    const from = values[i] ?? 0;
    const lineEnd = lineStart + (values[i + 1] ?? 0) - from;
    if (span.start < lineEnd) {
      const shift = from - lineStart;
      return { start: span.start + shift, end: span.end + shift };
    }
    lineStart = lineEnd + 1;
  }
  return span;
}

export function bytesStartWith(bytes: Buffer, prefix: Buffer, start: number, end: number): boolean {
  const { length } = prefix;
  if (end - start < length) return false;
  for (let i = 0; i < length; i++) {
    if (bytes[start + i] !== prefix[i]) return false;
  }
  return true;
}

/** Whether the bytes of the span are exactly these. */
export function spanEquals(bytes: Buffer, { start, end }: Span, text: Buffer): boolean {
  return end - start === text.length && bytesStartWith(bytes, text, start, end);
}

export function isLineBreak(byte: number | undefined): boolean {
  return byte === LF || byte === CR;
}

/** The offset of the line break of the line at `start`, or `end`. */
function endOfLine(bytes: Buffer, start: number, end: number): number {
  const near = Math.min(end, start + SHORT_LINE);
  let at = start;
  while (at < near && !isLineBreak(bytes[at])) at++;
  if (at < near || at === end) return at;
  // An image in base64 can have megabytes, which are searched natively.
  const rest = bytes.subarray(at, end);
  const lf = rest.indexOf(LF);
  const line = lf === -1 ? rest : rest.subarray(0, lf);
  const cr = line.indexOf(CR);
  return at + (cr === -1 ? line.length : cr);
}

/** Offset of the value of the field `name` in the line, behind the colon and one space; -1 for another field. */
function fieldValue(bytes: Buffer, name: Buffer, start: number, end: number): number {
  if (!bytesStartWith(bytes, name, start, end)) return -1;
  const at = start + name.length;
  if (at === end) return end;
  if (bytes[at] !== COLON) return -1;
  return at + 1 < end && bytes[at + 1] === SPACE ? at + 2 : at + 1;
}

function joinLines(bytes: Buffer, values: readonly number[]): Buffer {
  let length = -1;
  for (let i = 0; i < values.length; i += 2) length += (values[i + 1] ?? 0) - (values[i] ?? 0) + 1;
  const joined = Buffer.allocUnsafe(length).fill(LF);
  let to = 0;
  for (let i = 0; i < values.length; i += 2) to += bytes.copy(joined, to, values[i], values[i + 1]) + 1;
  return joined;
}

/**
 * Lines that no stream of this API has: `id` and `retry`, and an `event` without data, or with blank data, which the SDKs fail to
 * parse. After an `id`, one of the official SDKs takes every comment for an empty event and fails; it fails at once on a lone `retry`.
 * Clients cannot resume these streams, so the lines are not forwarded. Nor is a byte order mark, with which the Python SDK loses the
 * first event.
 *
 * @param isDataless whether the frame in `[start, end)` has no data
 * @param hasCr whether it may contain a CR
 * @returns what to omit, lines with their line ends, in order; `all` if only blank lines would remain; undefined if there are none
 */
export function surplusFields(
  bytes: Buffer,
  start: number,
  end: number,
  isDataless: boolean,
  hasCr: boolean,
): Span[] | 'all' | undefined {
  // Nearly every frame is one data line, whose line end is the last but one byte.
  if (bytes[start] === LETTER_D && !hasCr && !isDataless && isOneLine(bytes, start, end)) return undefined;
  const first = bytesStartWith(bytes, BOM, start, end) ? start + BOM.length : start;
  const surplus: { start: number; end: number }[] = first > start ? [{ start, end: first }] : [];
  let isBlank = true;
  for (let pos = first; pos < end; ) {
    const lineEnd = endOfLine(bytes, pos, end);
    let next = Math.min(lineEnd + 1, end);
    if (bytes[lineEnd] === CR && bytes[next] === LF && next < end) next++;
    const isSurplus =
      fieldValue(bytes, ID, pos, lineEnd) >= 0 ||
      fieldValue(bytes, RETRY, pos, lineEnd) >= 0 ||
      (isDataless &&
        (fieldValue(bytes, EVENT, pos, lineEnd) >= 0 || fieldValue(bytes, DATA, pos, lineEnd) >= 0));
    const last = surplus.at(-1);
    if (!isSurplus) {
      if (lineEnd > pos) isBlank = false;
      // A CR before the omitted lines and this LF would be one line end: the LF of the last omitted line stays between them.
      if (bytes[pos] === LF && last?.end === pos && bytes[last.start - 1] === CR) last.end--;
    } else if (last?.end === pos) last.end = next;
    else surplus.push({ start: pos, end: next });
    pos = next;
  }
  if (surplus.length === 0) return undefined;
  return isBlank ? 'all' : surplus;
}

function isOneLine(bytes: Buffer, start: number, end: number): boolean {
  return bytes.indexOf(LF, start) === end - 2 && bytes[end - 1] === LF;
}
