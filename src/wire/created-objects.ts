// The objects that an upstream created with a response: the response, its items, the containers in which code ran, and the files in
// those. stored-responses.ts and object-owners.ts record who owns them.
import { decodeString, JsonScanner } from './json.ts';

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
}

/** Maximum items per answer; no model creates more. */
export const MAX_ITEMS = 1_000;
const MAX_TEXT_BYTES = 1_024;
const QUOTE = 0x22;
const LETTER_F = 0x66;

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
