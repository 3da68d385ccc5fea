// The objects that an upstream created with a response: the response, its items, the containers in which code ran, and the files in
// those. stored-responses.ts and object-owners.ts record who owns them.
import { createHash } from 'node:crypto';
import { decodeString, JsonScanner } from './json/json.ts';

export interface CreatedItem {
  readonly id: string;
  /** Whether later requests may refer to it although the response is not stored. */
  readonly isLasting: boolean;
}

export interface CreatedObjects {
  /** Id of the response, if the upstream stores it. */
  readonly id?: string | undefined;
  readonly isStored: boolean;
  readonly items: readonly CreatedItem[];
  /** Digests of encrypted contents, where the target that made them is recorded. Default: none. */
  readonly seals?: readonly string[];
}

/** Maximum items per answer; no model creates more. */
export const MAX_ITEMS = 1_000;
const MAX_TEXT_BYTES = 1_024;
const QUOTE = 0x22;
const LETTER_F = 0x66;
const KEY = Buffer.from('"encrypted_content"');
/** Of one text, the last ones. */
const MAX_SEALS = 64;
/** Of the key in one text, and of one content in bytes: a body of nothing else must not block the event loop. */
const MAX_LOOKS = 128;
const MAX_CONTENT_BYTES = 1024 * 1024;
const COLON = 0x3a;
const BACKSLASH = 0x5c;

/** Types of items that contain all of their content: without the stored response, their id means nothing. */
const WHOLE = new Set(['message', 'reasoning', 'function_call', 'custom_tool_call']);

/** @param body a response, or a list of items; anything else creates nothing */
export function createdIn(body: Buffer): CreatedObjects {
  const scanner = new JsonScanner();
  scanner.reset(body);
  let id: string | undefined;
  let isStored = true;
  const items: CreatedItem[] = [];
  forEachMember(scanner, () => {
    if (scanner.keyIs('id')) id = textAt(scanner, body);
    else if (scanner.keyIs('store')) isStored = scanner.skipIf(LETTER_F) === null;
    else if (scanner.keyIs('output') || scanner.keyIs('data')) {
      forEachElement(scanner, () => readItem(scanner, body, items));
    } else scanner.skipValue();
  });
  return { id: isStored ? id : undefined, isStored, items };
}

/** The ids in an item of a conversation, or in a list of items. */
export function itemsIn(body: Buffer): readonly string[] {
  const items = [...createdIn(body).items];
  const scanner = new JsonScanner();
  scanner.reset(body);
  readItem(scanner, body, items);
  return items.map(({ id }) => id);
}

/** Reads the item at the position of the scanner. */
export function readItem(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  let id: string | undefined;
  let type = '';
  forEachMember(scanner, () => {
    if (scanner.keyIs('id')) id = textAt(scanner, bytes);
    else if (scanner.keyIs('type')) type = textAt(scanner, bytes) ?? '';
    else if (scanner.keyIs('container_id')) add(into, textAt(scanner, bytes), true);
    else if (scanner.keyIs('content')) forEachElement(scanner, () => readPart(scanner, bytes, into));
    else scanner.skipValue();
  });
  add(into, id, !WHOLE.has(type));
}

function readPart(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  forEachMember(scanner, () => {
    if (scanner.keyIs('annotations')) forEachElement(scanner, () => readAnnotation(scanner, bytes, into));
    else scanner.skipValue();
  });
}

/** Reads the annotation at the position of the scanner. A file in a container was created with the answer. */
export function readAnnotation(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  let container: string | undefined;
  let file: string | undefined;
  forEachMember(scanner, () => {
    if (scanner.keyIs('container_id')) container = textAt(scanner, bytes);
    else if (scanner.keyIs('file_id')) file = textAt(scanner, bytes);
    else scanner.skipValue();
  });
  if (container === undefined) return;
  add(into, container, true);
  add(into, file, true);
}

/** @param read called on each member; must skip its value. Skips anything but an object */
function forEachMember(scanner: JsonScanner, read: () => void): void {
  if (scanner.enterObject()) while (scanner.nextMember()) read();
  else scanner.skipValue();
}

/** @param read called on each element; must skip it. Skips anything but an array */
function forEachElement(scanner: JsonScanner, read: () => void): void {
  if (scanner.enterArray()) while (scanner.nextElement()) read();
  else scanner.skipValue();
}

/** The string at the position of the scanner, which it skips; undefined for anything else. */
function textAt(scanner: JsonScanner, bytes: Buffer): string | undefined {
  const span = scanner.skipIf(QUOTE);
  if (span === null || span.end - span.start > MAX_TEXT_BYTES) return undefined;
  return decodeString(bytes, span);
}

function add(into: CreatedItem[], id: string | undefined, isLasting: boolean): void {
  if (id !== undefined && id !== '' && into.length < MAX_ITEMS) into.push({ id, isLasting });
}

/**
 * Digests of the encrypted contents in a JSON text, or in frames with JSON, the last first. Within a text of JSON its key cannot occur:
 * quotes are escaped there.
 */
export function sealsIn(bytes: Buffer, max = MAX_SEALS): readonly string[] {
  const seals = new Set<string>();
  let at = bytes.lastIndexOf(KEY);
  for (let looks = 0; at !== -1 && seals.size < max && looks < MAX_LOOKS; looks += 1) {
    const content = stringAfter(bytes, at + KEY.length);
    if (content !== undefined) seals.add(createHash('sha256').update(content).digest('base64url'));
    at = at === 0 ? -1 : bytes.lastIndexOf(KEY, at - 1);
  }
  return [...seals];
}

/** The value behind a key, if it is a string that is not empty. */
function stringAfter(bytes: Buffer, from: number): Buffer | string | undefined {
  const colon = afterSpace(bytes, from);
  if (bytes[colon] !== COLON) return undefined;
  const start = afterSpace(bytes, colon + 1);
  if (bytes[start] !== QUOTE) return undefined;
  const end = bytes.indexOf(QUOTE, start + 1);
  // No encrypted content has a quote in it.
  if (end <= start + 1 || bytes[end - 1] === BACKSLASH) return undefined;
  const content = bytes.subarray(start + 1, end);
  if (content.length > MAX_CONTENT_BYTES) return undefined;
  if (!content.includes(BACKSLASH)) return content;
  // Some serializers escape a slash, which base64 has. Upstreams also send what is no JSON.
  try {
    return decodeString(bytes, { start, end: end + 1 });
  } catch {
    return undefined;
  }
}

function afterSpace(bytes: Buffer, start: number): number {
  let at = start;
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at += 1;
  return at;
}
