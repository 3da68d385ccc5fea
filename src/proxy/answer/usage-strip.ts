// The usage that the gateway asked for, taken out of a chunk of chat before the client gets it: the member where there is more in the
// chunk, and all of the chunk where there is not. Only chunks with usage come here, and most streams have one.

import { JsonScanner, type Span } from '../../wire/json.ts';
import { readFields } from '../../wire/sse-fields.ts';
import { withoutMembers } from '../request/member-edits.ts';
import type { Edit } from '../request/request-scan.ts';

/** Members that stand in every chunk of some vendor and say nothing of this one. */
const ENVELOPE = [
  'id',
  'object',
  'created',
  'model',
  'provider',
  'system_fingerprint',
  'service_tier',
  'obfuscation',
  'x_groq',
] as const;

const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;

const EMPTY_ARRAY = Buffer.from('[]');
/** Clients iterate over it without a look. */
const NO_CHOICES = Buffer.from('"choices":[]');

const scanner = new JsonScanner();

/**
 * @param bytes a frame whose data is a chunk with usage stands in `[start, end)`
 * @returns how to rewrite it, with offsets in `bytes`; `all` when nothing is left for a client; undefined to leave it as it is
 */
export function withoutUsage(bytes: Buffer, start: number, end: number): readonly Edit[] | 'all' | undefined {
  const { values } = readFields(bytes, start, end);
  const [from, to] = values;
  // Over several lines no vendor sends it.
  if (values.length !== 2 || from === undefined || to === undefined) return undefined;
  scanner.reset(bytes, from, to);
  if (!scanner.enterObject()) return undefined;
  const usages: Span[] = [];
  let choices: Span | undefined;
  let isSaying = false;
  let hasMore = false;
  while (scanner.nextMember()) {
    const { start: keyStart } = scanner.keySpan;
    const { pos } = scanner;
    if (scanner.keyIs('choices')) {
      isSaying = choicesSay(bytes);
      choices = { start: pos, end: scanner.pos };
    } else if (scanner.keyIs('usage')) {
      scanner.skipValue();
      usages.push({ start: keyStart, end: scanner.pos });
    } else if (ENVELOPE.some((name) => scanner.keyIs(name))) scanner.skipValue();
    else if (isFilled(bytes)) hasMore = true;
  }
  if (scanner.fault !== null) return undefined;
  if (!isSaying && !hasMore) return 'all';
  const [first, ...others] = usages;
  if (first === undefined) return undefined;
  if (choices === undefined) return [{ span: first, bytes: NO_CHOICES }, ...withoutMembers(bytes, others)];
  const edits = withoutMembers(bytes, usages);
  if (bytes[choices.start] === LETTER_N) edits.push({ span: choices, bytes: EMPTY_ARRAY });
  return edits.toSorted((a, b) => a.span.start - b.span.start);
}

/** Skips the choices. Whether one of them says anything: a delta, the role alone too, a text, or that it is finished. */
function choicesSay(bytes: Buffer): boolean {
  if (!scanner.enterArray()) return isFilled(bytes);
  let isSaying = false;
  while (scanner.nextElement()) {
    if (!scanner.enterObject()) {
      isSaying = isFilled(bytes) || isSaying;
      continue;
    }
    while (scanner.nextMember()) {
      const isDelta = scanner.keyIs('delta') || scanner.keyIs('message');
      if (scanner.keyIs('index')) scanner.skipValue();
      else if (!isDelta || !scanner.enterObject()) isSaying = isFilled(bytes) || isSaying;
      else while (scanner.nextMember()) isSaying = isFilled(bytes) || isSaying;
    }
  }
  return isSaying;
}

/** Skips the value. Whether it is anything but null, "", [] and {}. */
function isFilled(bytes: Buffer): boolean {
  const first = scanner.peek();
  const { pos } = scanner;
  scanner.skipValue();
  if (first === LETTER_N) return false;
  if (first === QUOTE) return scanner.pos - pos > 2;
  if (first !== OPEN_ARRAY && first !== OPEN_OBJECT) return true;
  for (let at = pos + 1; at < scanner.pos - 1; at++) if ((bytes[at] ?? 0) > SPACE) return true;
  return false;
}
