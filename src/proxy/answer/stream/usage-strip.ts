// Removal of the usage that the gateway requested from a chat chunk: the member, or the whole chunk if no choice has content. Only
// chunks with usage come here, one in most streams.

import { decodeString, JsonScanner, type Span } from '../../../wire/json/json.ts';
import { bytesStartWith, readFields } from '../../../wire/sse-fields.ts';
import { withoutMembers } from '../../request/member-edits.ts';
import type { Edit } from '../../request/request-scan.ts';

/** Members of every chunk, and those that only the gateway's request for usage adds. */
const ENVELOPE = ['id', 'created', 'model', 'system_fingerprint', 'stream_options', 'obfuscation'] as const;
/** Members that some vendor sends in every chunk. They alone do not justify a chunk of their own. */
const USUAL = ['provider', 'service_tier', 'x_groq'] as const;

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
const isKey = (name: string) => scanner.keyIs(name);

/** What to do with a chunk that has usage: to edit it, or to hide it. */
interface UsageRemoval {
  /** With offsets in the bytes that were read. */
  readonly edits?: readonly Edit[];
  /** The other members of a chunk to hide, by name: each as it was sent, name and value. */
  readonly hidden?: ReadonlyMap<string, Buffer>;
}

/** How many choices have their finish reason. */
export type FinishedChoices = 'none' | 'some' | 'all';

/**
 * @param bytes holds a frame whose data is a chunk with usage in `[start, end)`
 * @returns undefined to leave it unchanged
 */
export function withoutUsage(
  bytes: Buffer,
  start: number,
  end: number,
  finished: FinishedChoices,
): UsageRemoval | undefined {
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
  const others: { readonly key: Span; readonly end: number }[] = [];
  while (scanner.nextMember()) {
    const key = scanner.keySpan;
    scanner.peek();
    const { pos } = scanner;
    if (scanner.keyIs('choices')) {
      hasContent = choicesHaveContent(bytes, finished === 'all');
      choices = { start: pos, end: scanner.pos };
    } else if (scanner.keyIs('usage')) {
      scanner.skipValue();
      usages.push({ start: key.start, end: scanner.pos });
    } else if (scanner.keyIs('object')) {
      if (bytesStartWith(bytes, TEXT_OBJECT, pos, to)) emptyChoice = EMPTY_TEXT_CHOICE;
      scanner.skipValue();
    } else if (ENVELOPE.some(isKey)) scanner.skipValue();
    else {
      const isUsual = USUAL.some(isKey);
      if (!isFilled(bytes)) continue;
      others.push({ key, end: scanner.pos });
      hasMore ||= !isUsual;
    }
  }
  if (scanner.fault !== null) return undefined;
  // Behind a finish reason a chunk of its own would harm: some clients take the finish reason of the last chunk.
  if (!hasContent && (!hasMore || finished !== 'none')) {
    const members = others.map(({ key, end: behind }): [string, Buffer] => [
      decodeString(bytes, key),
      bytes.subarray(key.start, behind),
    ]);
    return { hidden: new Map(members) };
  }
  const [first, ...more] = usages;
  if (first === undefined) return undefined;
  if (choices === undefined) {
    const member = Buffer.from(`"choices":${emptyChoice}`);
    return { edits: [{ span: first, bytes: member }, ...withoutMembers(bytes, more)] };
  }
  const edits = withoutMembers(bytes, usages);
  if (isBlank(bytes, choices)) edits.push({ span: choices, bytes: Buffer.from(emptyChoice) });
  return { edits: edits.toSorted((a, b) => a.span.start - b.span.start) };
}

/**
 * Skips the choices. Whether one of them has content: a delta, a text, a finish reason.
 * @param isRoleKnown whether a role alone is no content
 */
function choicesHaveContent(bytes: Buffer, isRoleKnown: boolean): boolean {
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
      else
        while (scanner.nextMember()) {
          const isRole = isRoleKnown && scanner.keyIs('role');
          hasContent = (isFilled(bytes) && !isRole) || hasContent;
        }
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
