// A completion as the stream that it would have been: put together from the completion's own bytes, so that numbers, texts
// and unknown fields stay as they were written. Whether there is reason to do this is for the caller.
import { decodeString, JsonScanner } from './json.ts';

/** The members of an object by name, each value as it stands. Of equal keys the last counts. */
type Members = Map<string, Buffer>;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;

const NULL = Buffer.from('null');
const NOTHING = Buffer.from('{}');
const EMPTY = Buffer.from('""');
const CHUNK = Buffer.from('"chat.completion.chunk"');

/**
 * @param body a complete and valid JSON object
 * @param alias JSON string token for `model`, or undefined to leave it
 * @param includeUsage whether the client asked for the usage chunk
 * @returns for every choice a chunk with all of its message and one with its finish reason, then `[DONE]`; undefined when
 *   the first choice has neither a message nor a text
 */
export function asStream(body: Buffer, alias: Buffer | undefined, includeUsage: boolean): Buffer | undefined {
  const common = membersOf(body);
  const choices = elementsOf(common.get('choices')).map(membersOf);
  const [first] = choices;
  const isText = first?.get('text')?.[0] === QUOTE;
  if (!isText && first?.get('message')?.[0] !== OPEN_OBJECT) return undefined;
  const usage = common.get('usage');
  common.delete('choices');
  common.delete('usage');
  // A chunk of a text completion is called what the whole of it is called.
  if (!isText) common.set('object', CHUNK);
  if (alias !== undefined && common.has('model')) common.set('model', alias);

  const events: Buffer[] = [];
  const add = (choice: Iterable<[string, Buffer]> | undefined, more: Iterable<[string, Buffer]> = []) => {
    const list: [string, Buffer] = ['choices', array(choice === undefined ? [] : [object(choice)])];
    events.push(Buffer.from('data: '), oneLine(object([...common, list, ...more])), Buffer.from('\n\n'));
  };
  for (const [place, choice] of choices.entries()) {
    const index = choice.get('index') ?? Buffer.from(String(place));
    const said: [string, Buffer] = isText
      ? ['text', choice.get('text') ?? EMPTY]
      : ['delta', asDelta(choice.get('message') ?? NOTHING)];
    const finish = choice.get('finish_reason') ?? NULL;
    choice.delete('message');
    // First in the order of a chunk, the rest of the choice (log probabilities, filter results) behind it.
    add(new Map([['index', index], said, ...choice, ['finish_reason', NULL]]));
    if (finish.equals(NULL)) continue;
    add([['index', index], isText ? ['text', EMPTY] : ['delta', NOTHING], ['finish_reason', finish]]);
  }
  if (includeUsage && usage?.[0] === OPEN_OBJECT) add(undefined, [['usage', usage]]);
  events.push(Buffer.from('data: [DONE]\n\n'));
  return Buffer.concat(events);
}

/** Clients put tool calls together by `index`, which a completion does not have. */
function asDelta(message: Buffer): Buffer {
  const members = membersOf(message);
  const calls = elementsOf(members.get('tool_calls'));
  if (calls.length === 0) return message;
  const indexed = calls.map((call, index) => {
    const own = membersOf(call);
    if (own.size === 0 || own.has('index')) return call;
    return object([['index', Buffer.from(String(index))], ...own]);
  });
  members.set('tool_calls', array(indexed));
  return object(members);
}

function membersOf(bytes: Buffer): Members {
  const members: Members = new Map();
  const scanner = new JsonScanner();
  scanner.reset(bytes);
  if (!scanner.enterObject()) return members;
  let from = scanner.pos;
  while (scanner.nextMember()) {
    // Between the last value and this one stand a comma, the key and its colon.
    const key = { start: bytes.indexOf(QUOTE, from), end: bytes.lastIndexOf(QUOTE, scanner.pos - 1) + 1 };
    members.set(decodeString(bytes, key), valueAt(scanner, bytes));
    from = scanner.pos;
  }
  return members;
}

function elementsOf(bytes: Buffer | undefined): Buffer[] {
  const elements: Buffer[] = [];
  const scanner = new JsonScanner();
  if (bytes === undefined) return elements;
  scanner.reset(bytes);
  if (!scanner.enterArray()) return elements;
  while (scanner.nextElement()) elements.push(valueAt(scanner, bytes));
  return elements;
}

function valueAt(scanner: JsonScanner, bytes: Buffer): Buffer {
  // White space may stand before the value.
  scanner.peek();
  const start = scanner.pos;
  scanner.skipValue();
  return bytes.subarray(start, scanner.pos);
}

function object(members: Iterable<[string, Buffer]>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of members) {
    parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}${JSON.stringify(name)}:`), value);
  }
  return parts.length === 0 ? NOTHING : Buffer.concat([...parts, Buffer.from('}')]);
}

function array(elements: readonly Buffer[]): Buffer {
  const parts = elements.flatMap((element, index) => (index === 0 ? [element] : [Buffer.from(','), element]));
  return Buffer.concat([Buffer.from('['), ...parts, Buffer.from(']')]);
}

/** The same JSON on one line, as an event needs it: line breaks stand between tokens only, where a space means the same. */
function oneLine(json: Buffer): Buffer {
  for (let at = 0; at < json.length; at++) {
    if (json[at] === LF || json[at] === CR) json[at] = SPACE;
  }
  return json;
}
