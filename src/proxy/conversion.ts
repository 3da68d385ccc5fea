// A completion as the stream that it would have been: put together from the completion's own bytes, so that numbers, texts
// and unknown fields stay as they were written, and of a large one nothing is copied. Whether there is reason to do this is for the caller.
import { LARGE_BODY } from '../http/body-buffer.ts';
import { BodyPieces } from '../http/body-pieces.ts';
import { decodeString, JsonScanner } from './json.ts';

/** A JSON text: its pieces, one behind the other. */
type Json = readonly Buffer[];
/** The members of an object by name, each value as it stands. Of equal keys the last counts. */
type Members = Map<string, Json>;
type Member = readonly [name: string, value: Json];

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;

const NO_BYTES: Buffer = Buffer.alloc(0);
const NULL_TEXT = Buffer.from('null');
const NULL: Json = [NULL_TEXT];
const NOTHING: Json = [Buffer.from('{}')];
const EMPTY: Json = [Buffer.from('""')];
const CHUNK: Json = [Buffer.from('"chat.completion.chunk"')];
const COMMA = Buffer.from(',');

/**
 * @param body a complete and valid JSON object
 * @param alias JSON string token for `model`, or undefined to leave it
 * @param includeUsage whether the client asked for the usage chunk
 * @returns for every choice a chunk with all of its message and one with its finish reason, then `[DONE]`; undefined when
 *   the first choice has neither a message nor a text
 */
export function asStream(
  body: Buffer,
  alias: Buffer | undefined,
  includeUsage: boolean,
): Buffer | BodyPieces | undefined {
  const scanner = new JsonScanner();
  const common = membersOf([body], scanner);
  // A line break stands between tokens only, so that this scan has seen every one.
  const { sawLineBreak } = scanner;
  const choices = elementsOf(common.get('choices')).map((choice) => membersOf(choice));
  const [first] = choices;
  const isText = startsWith(first?.get('text'), QUOTE);
  if (!isText && !startsWith(first?.get('message'), OPEN_OBJECT)) return undefined;
  const usage = common.get('usage');
  common.delete('choices');
  common.delete('usage');
  // A chunk of a text completion is called what the whole of it is called.
  if (!isText) common.set('object', CHUNK);
  if (alias !== undefined && common.has('model')) common.set('model', [alias]);

  const events: Buffer[] = [];
  const add = (choice: Iterable<Member> | undefined, more: Iterable<Member> = []) => {
    const list: Member = ['choices', array(choice === undefined ? [] : [object(choice)])];
    const event = object([...common, list, ...more]);
    events.push(Buffer.from('data: '), ...(sawLineBreak ? oneLine(event) : event), Buffer.from('\n\n'));
  };
  for (const [place, choice] of choices.entries()) {
    const index = choice.get('index') ?? [Buffer.from(String(place))];
    const said: Member = isText
      ? ['text', choice.get('text') ?? EMPTY]
      : ['delta', asDelta(choice.get('message') ?? NOTHING)];
    const finish = choice.get('finish_reason') ?? NULL;
    choice.delete('message');
    // First in the order of a chunk, the rest of the choice (log probabilities, filter results) behind it.
    add(new Map([['index', index], said, ...choice, ['finish_reason', NULL]]));
    if (finish[0]?.equals(NULL_TEXT) === true) continue;
    add([['index', index], isText ? ['text', EMPTY] : ['delta', NOTHING], ['finish_reason', finish]]);
  }
  if (includeUsage && usage !== undefined && startsWith(usage, OPEN_OBJECT))
    add(undefined, [['usage', usage]]);
  events.push(Buffer.from('data: [DONE]\n\n'));
  return body.length > LARGE_BODY ? new BodyPieces(events) : Buffer.concat(events);
}

/** Clients put tool calls together by `index`, which a completion does not have. */
function asDelta(message: Json): Json {
  const members = membersOf(message);
  const calls = elementsOf(members.get('tool_calls'));
  if (calls.length === 0) return message;
  const indexed = calls.map((call, index) => {
    const own = membersOf(call);
    if (own.size === 0 || own.has('index')) return call;
    return object([['index', [Buffer.from(String(index))]], ...own]);
  });
  members.set('tool_calls', array(indexed));
  return object(members);
}

/** @param json in one piece, as everything is that was read and not made */
function membersOf([bytes = NO_BYTES]: Json, scanner = new JsonScanner()): Members {
  const members: Members = new Map();
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

function elementsOf(json: Json | undefined): Json[] {
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
  // White space may stand before the value.
  scanner.peek();
  const start = scanner.pos;
  scanner.skipValue();
  return [bytes.subarray(start, scanner.pos)];
}

function startsWith(json: Json | undefined, byte: number): boolean {
  return json?.[0]?.[0] === byte;
}

function object(members: Iterable<Member>): Json {
  const parts: Buffer[] = [];
  for (const [name, value] of members) {
    parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}${JSON.stringify(name)}:`), ...value);
  }
  return parts.length === 0 ? NOTHING : [...parts, Buffer.from('}')];
}

function array(elements: readonly Json[]): Json {
  const parts = elements.flatMap((element, index) => (index === 0 ? element : [COMMA, ...element]));
  return [Buffer.from('['), ...parts, Buffer.from(']')];
}

/** A copy on one line, as an event needs it: line breaks stand between tokens only, where a space means the same. */
function oneLine(json: Json): Json {
  const copy = Buffer.concat(json);
  for (const lineBreak of [LF, CR]) {
    for (let at = copy.indexOf(lineBreak); at !== -1; at = copy.indexOf(lineBreak, at + 1)) copy[at] = SPACE;
  }
  return [copy];
}
