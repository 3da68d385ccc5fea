// What an upstream has made with a response, by its answer: the response itself, its items, the containers in which code ran, and the
// files in those. Whose all that is from then on, is recorded by stored-responses.ts and object-owners.ts.
import { decodeString, JsonScanner } from './json.ts';

export interface CreatedItem {
  readonly id: string;
  /** It is kept by the upstream, or is only named by its id, also where the response is not stored. */
  readonly isLasting: boolean;
}

export interface CreatedObjects {
  /** Of the response, where the upstream stores it. */
  readonly id?: string | undefined;
  readonly isStored: boolean;
  readonly items: readonly CreatedItem[];
}

/** Of one answer; more is no answer of a model. */
export const MAX_ITEMS = 1_000;
const QUOTE = 0x22;
const LETTER_F = 0x66;

/** Types whose items have all of their content in themselves, so that without the stored response the id means nothing. */
const WHOLE = new Set(['message', 'reasoning', 'function_call', 'custom_tool_call']);

/** By a whole response, or a list of items; of something else, nothing. */
export function createdIn(body: Buffer): CreatedObjects {
  const scanner = new JsonScanner();
  scanner.reset(body);
  let id: string | undefined;
  let isStored = true;
  const items: CreatedItem[] = [];
  if (!scanner.enterObject()) return { isStored, items };
  while (scanner.nextMember()) {
    if (scanner.keyIs('id')) id = textAt(scanner, body);
    else if (scanner.keyIs('store')) {
      isStored = scanner.peek() !== LETTER_F;
      scanner.skipValue();
    } else if (scanner.keyIs('output') || scanner.keyIs('data')) {
      forEachElement(scanner, () => readItem(scanner, body, items));
    } else scanner.skipValue();
  }
  return { id: isStored ? id : undefined, isStored, items };
}

/** The ids in an item of a conversation, or in a list of them. */
export function itemsIn(body: Buffer): readonly string[] {
  const { items } = createdIn(body);
  const alone: CreatedItem[] = [];
  const scanner = new JsonScanner();
  scanner.reset(body);
  readItem(scanner, body, alone);
  return [...items, ...alone].map(({ id }) => id);
}

/** Reads the item at the place of the scanner. */
export function readItem(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  if (!scanner.enterObject()) {
    scanner.skipValue();
    return;
  }
  let id: string | undefined;
  let type = '';
  while (scanner.nextMember()) {
    if (scanner.keyIs('id')) id = textAt(scanner, bytes);
    else if (scanner.keyIs('type')) type = textAt(scanner, bytes) ?? '';
    else if (scanner.keyIs('container_id')) add(into, textAt(scanner, bytes), true);
    else if (scanner.keyIs('content')) forEachElement(scanner, () => readPart(scanner, bytes, into));
    else scanner.skipValue();
  }
  add(into, id, !WHOLE.has(type));
}

/** Reads the annotation at the place of the scanner: a file in a container is the one that is made with an answer. */
export function readAnnotation(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  if (!scanner.enterObject()) {
    scanner.skipValue();
    return;
  }
  let container: string | undefined;
  let file: string | undefined;
  while (scanner.nextMember()) {
    if (scanner.keyIs('container_id')) container = textAt(scanner, bytes);
    else if (scanner.keyIs('file_id')) file = textAt(scanner, bytes);
    else scanner.skipValue();
  }
  if (container === undefined) return;
  add(into, container, true);
  add(into, file, true);
}

function readPart(scanner: JsonScanner, bytes: Buffer, into: CreatedItem[]): void {
  if (!scanner.enterObject()) {
    scanner.skipValue();
    return;
  }
  while (scanner.nextMember()) {
    if (scanner.keyIs('annotations')) forEachElement(scanner, () => readAnnotation(scanner, bytes, into));
    else scanner.skipValue();
  }
}

function forEachElement(scanner: JsonScanner, read: () => void): void {
  if (!scanner.enterArray()) {
    scanner.skipValue();
    return;
  }
  while (scanner.nextElement()) read();
}

function textAt(scanner: JsonScanner, bytes: Buffer): string | undefined {
  const isText = scanner.peek() === QUOTE;
  const { pos: start } = scanner;
  if (!scanner.skipValue() || !isText || scanner.pos - start > 1_024) return undefined;
  return decodeString(bytes, { start, end: scanner.pos });
}

function add(into: CreatedItem[], id: string | undefined, isLasting: boolean): void {
  if (id !== undefined && id !== '' && into.length < MAX_ITEMS) into.push({ id, isLasting });
}
