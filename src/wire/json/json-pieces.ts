// JSON values as lists of buffers, so that an answer can be composed from the bytes of another: numbers, texts and unknown members stay
// as written, and nothing large is copied. chat-conversion.ts and event-conversion.ts compose the answers.
import { decodeString, JsonScanner } from './json.ts';

/** The consecutive pieces of a JSON text. */
export type Json = readonly Buffer[];
/** The members of an object by name, with their values as written. Of equal keys the last counts. */
export type JsonMembers = Map<string, Json>;
export type JsonMember = readonly [name: string, value: Json];

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;

const NO_BYTES: Buffer = Buffer.alloc(0);
const COMMA = Buffer.from(',');
export const NULL: Json = [Buffer.from('null')];
export const EMPTY_OBJECT: Json = [Buffer.from('{}')];
export const EMPTY_ARRAY: Json = [Buffer.from('[]')];
export const EMPTY_STRING: Json = [Buffer.from('""')];

/** A string that needs no escapes, or a number. */
export function literal(value: string | number): Json {
  return [Buffer.from(JSON.stringify(value))];
}

/** The members of an object of one piece; none if it is something else. */
export function membersOf([bytes = NO_BYTES]: Json, scanner = new JsonScanner()): JsonMembers {
  const members: JsonMembers = new Map();
  scanner.reset(bytes);
  if (!scanner.enterObject()) return members;
  let from = scanner.pos;
  while (scanner.nextMember()) {
    // Between the previous value and this one are a comma, the key and its colon.
    const key = { start: bytes.indexOf(QUOTE, from), end: bytes.lastIndexOf(QUOTE, scanner.pos - 1) + 1 };
    members.set(decodeString(bytes, key), valueAt(scanner, bytes));
    from = scanner.pos;
  }
  return members;
}

/** The elements of an array of one piece; none if it is something else. */
export function elementsOf(json: Json | undefined): Json[] {
  const elements: Json[] = [];
  const scanner = new JsonScanner();
  const [bytes] = json ?? [];
  if (bytes === undefined) return elements;
  scanner.reset(bytes);
  if (!scanner.enterArray()) return elements;
  while (scanner.nextElement()) elements.push(valueAt(scanner, bytes));
  return elements;
}

function valueAt(scanner: JsonScanner, bytes: Buffer): Json {
  // White space may precede the value.
  scanner.peek();
  const start = scanner.pos;
  scanner.skipValue();
  return [bytes.subarray(start, scanner.pos)];
}

/** Whether the first byte of the value is `byte`. */
export function beginsWith(json: Json | undefined, byte: number): boolean {
  return json?.[0]?.[0] === byte;
}

/** An object of these members. */
export function objectOf(members: Iterable<JsonMember>): Json {
  const parts: Buffer[] = [];
  for (const [name, value] of members) {
    parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}${JSON.stringify(name)}:`), ...value);
  }
  return parts.length === 0 ? EMPTY_OBJECT : [...parts, Buffer.from('}')];
}

/** An array of these elements. */
export function arrayOf(elements: readonly Json[]): Json {
  const parts = elements.flatMap((element, index) => (index === 0 ? element : [COMMA, ...element]));
  return [Buffer.from('['), ...parts, Buffer.from(']')];
}

/** A copy on one line, as an SSE event needs it. Line breaks occur only between tokens, where a space means the same. */
export function oneLine(json: Json): Json {
  const copy = Buffer.concat(json);
  for (const lineBreak of [LF, CR]) {
    for (let at = copy.indexOf(lineBreak); at !== -1; at = copy.indexOf(lineBreak, at + 1)) copy[at] = SPACE;
  }
  return [copy];
}
