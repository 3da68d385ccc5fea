// Lines of an event that a chat stream does not have: `id` and `retry`, and an `event` without data. After an `id`, one of
// the official SDKs takes every comment for an empty event and fails; it does so at once on a lone `retry`. Nobody resumes
// a chat stream with them, so they end here.
import type { Span } from './json.ts';

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const LETTER_D = 0x64;

const ID = Buffer.from('id');
const RETRY = Buffer.from('retry');
const EVENT = Buffer.from('event');

/**
 * @param isDataless whether the frame in `[start, end)` has no data line
 * @param hasCr whether there may be a CR in it
 * @returns the lines to leave out, each with its line end, in order; `all` when nothing would be left but blank lines;
 *   undefined when there are none
 */
export function surplusFields(
  bytes: Buffer,
  start: number,
  end: number,
  isDataless: boolean,
  hasCr: boolean,
): Span[] | 'all' | undefined {
  // Nearly every frame is one line of data, and its line end is the last but one byte.
  if (bytes[start] === LETTER_D && !hasCr && isOneLine(bytes, start, end)) return undefined;
  let surplus: Span[] | undefined;
  let isBlank = true;
  for (let pos = start; pos < end; ) {
    let lineEnd = pos;
    while (lineEnd < end && bytes[lineEnd] !== LF && bytes[lineEnd] !== CR) lineEnd++;
    let next = Math.min(lineEnd + 1, end);
    if (bytes[lineEnd] === CR && bytes[next] === LF && next < end) next++;
    const isSurplus =
      isField(bytes, ID, pos, lineEnd) ||
      isField(bytes, RETRY, pos, lineEnd) ||
      (isDataless && isField(bytes, EVENT, pos, lineEnd));
    if (isSurplus) {
      surplus ??= [];
      surplus.push({ start: pos, end: next });
    } else if (lineEnd > pos) isBlank = false;
    pos = next;
  }
  return surplus !== undefined && isBlank ? 'all' : surplus;
}

function isOneLine(bytes: Buffer, start: number, end: number): boolean {
  return bytes.indexOf(LF, start) === end - 2 && bytes[end - 1] === LF;
}

function isField(bytes: Buffer, name: Buffer, start: number, end: number): boolean {
  const at = start + name.length;
  if (at > end || bytes.compare(name, 0, name.length, start, at) !== 0) return false;
  return at === end || bytes[at] === COLON;
}
