// Removal of the usage that the gateway requested from a chat chunk: the member, or the whole chunk if it holds nothing else. Only
// chunks with usage come here, one in most streams.

import { JsonScanner, type Span } from '../../wire/json.ts';
import { bytesStartWith, readFields } from '../../wire/sse-fields.ts';
import { withoutMembers } from '../request/member-edits.ts';
import type { Edit } from '../request/request-scan.ts';

/** Members that some vendor sends in every chunk, without content of their own. */
const ENVELOPE = [
  'id',
  'created',
  'model',
  'provider',
  'stream_options',
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

/** Replaces the empty choices of a chunk: clients that did not request usage read `choices[0]` unchecked. */
const EMPTY_CHAT_CHOICE = '[{"index":0,"delta":{},"finish_reason":null}]';
const EMPTY_TEXT_CHOICE = '[{"index":0,"text":"","logprobs":null,"finish_reason":null}]';
const TEXT_OBJECT = Buffer.from('"text_completion');

const scanner = new JsonScanner();

/**
 * @param bytes holds a frame whose data is a chunk with usage in `[start, end)`
 * @returns edits with offsets in `bytes`; `all` to drop the frame; undefined to leave it unchanged
 */
export function withoutUsage(bytes: Buffer, start: number, end: number): readonly Edit[] | 'all' | undefined {
  const { values } = readFields(bytes, start, end);
  const [from, to] = values;
  // No vendor sends it over several lines.
  if (values.length !== 2 || from === undefined || to === undefined) return undefined;
  scanner.reset(bytes, from, to);
  if (!scanner.enterObject()) return undefined;
  const usages: Span[] = [];
  let choices: Span | undefined;
  let emptyChoice = EMPTY_CHAT_CHOICE;
  let hasContent = false;
  let hasMore = false;
  while (scanner.nextMember()) {
    const { start: keyStart } = scanner.keySpan;
    scanner.peek();
    const { pos } = scanner;
    if (scanner.keyIs('choices')) {
      hasContent = choicesHaveContent(bytes);
      choices = { start: pos, end: scanner.pos };
    } else if (scanner.keyIs('usage')) {
      scanner.skipValue();
      usages.push({ start: keyStart, end: scanner.pos });
    } else if (scanner.keyIs('object')) {
      if (bytesStartWith(bytes, TEXT_OBJECT, pos, to)) emptyChoice = EMPTY_TEXT_CHOICE;
      scanner.skipValue();
    } else if (ENVELOPE.some((name) => scanner.keyIs(name))) scanner.skipValue();
    else if (isFilled(bytes)) hasMore = true;
  }
  if (scanner.fault !== null) return undefined;
  if (!hasContent && !hasMore) return 'all';
  const [first, ...others] = usages;
  if (first === undefined) return undefined;
  if (choices === undefined) {
    const member = Buffer.from(`"choices":${emptyChoice}`);
    return [{ span: first, bytes: member }, ...withoutMembers(bytes, others)];
  }
  const edits = withoutMembers(bytes, usages);
  if (isBlank(bytes, choices)) edits.push({ span: choices, bytes: Buffer.from(emptyChoice) });
  return edits.toSorted((a, b) => a.span.start - b.span.start);
}

/** Skips the choices. Whether one of them has content: a delta (also with the role alone), a text, a finish reason. */
function choicesHaveContent(bytes: Buffer): boolean {
  if (!scanner.enterArray()) return isFilled(bytes);
  let hasContent = false;
  while (scanner.nextElement()) {
    if (!scanner.enterObject()) {
      hasContent = isFilled(bytes) || hasContent;
      continue;
    }
    while (scanner.nextMember()) {
      const isDelta = scanner.keyIs('delta') || scanner.keyIs('message');
      if (scanner.keyIs('index')) scanner.skipValue();
      else if (!isDelta || !scanner.enterObject()) hasContent = isFilled(bytes) || hasContent;
      else while (scanner.nextMember()) hasContent = isFilled(bytes) || hasContent;
    }
  }
  return hasContent;
}

/** Skips the value. Whether it is anything but null, "", [] and {}. */
function isFilled(bytes: Buffer): boolean {
  scanner.peek();
  const { pos } = scanner;
  scanner.skipValue();
  return !isBlank(bytes, { start: pos, end: scanner.pos });
}

/** Whether a value is null, "", [] or {}. */
function isBlank(bytes: Buffer, { start, end }: Span): boolean {
  const first = bytes[start];
  if (first === LETTER_N) return true;
  if (first === QUOTE) return end - start <= 2;
  if (first !== OPEN_ARRAY && first !== OPEN_OBJECT) return false;
  for (let at = start + 1; at < end - 1; at++) if ((bytes[at] ?? 0) > SPACE) return false;
  return true;
}
