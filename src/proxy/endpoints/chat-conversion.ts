// Conversion of a completion to the equivalent stream, from the completion's own bytes: numbers, texts and unknown fields stay
// unchanged, and a large completion is not copied.
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { JsonScanner } from '../../wire/json/json.ts';
import {
  arrayOf,
  beginsWith,
  EMPTY_OBJECT,
  EMPTY_STRING,
  elementsOf,
  type Json,
  type JsonMember,
  membersOf,
  NULL,
  objectOf,
  oneLine,
} from '../../wire/json/json-pieces.ts';

const QUOTE = 0x22;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;

const CHUNK: Json = [Buffer.from('"chat.completion.chunk"')];

/**
 * @param body a complete and valid JSON object
 * @param alias JSON string token for `model`, or undefined to leave it
 * @param includeUsage whether the client requested the usage chunk
 * @returns for each choice a chunk with its whole message and one with its finish reason, then `[DONE]`; undefined when
 *   the first choice has neither a message nor a text
 */
export function asStream(
  body: Buffer,
  alias: Buffer | undefined,
  includeUsage: boolean,
): Buffer | BodyPieces | undefined {
  const scanner = new JsonScanner();
  const common = membersOf([body], scanner);
  // Line breaks occur only between tokens, so this scan has seen all of them.
  const { sawLineBreak } = scanner;
  const choices = elementsOf(common.get('choices')).map((choice) => membersOf(choice));
  const [first] = choices;
  const isText = beginsWith(first?.get('text'), QUOTE);
  if (!isText && !beginsWith(first?.get('message'), OPEN_OBJECT)) return undefined;
  const usage = common.get('usage');
  common.delete('choices');
  common.delete('usage');
  // Chunks of text completions have the same `object` as the completion.
  if (!isText) common.set('object', CHUNK);
  if (alias !== undefined && common.has('model')) common.set('model', [alias]);

  const events: Buffer[] = [];
  const add = (choice: Iterable<JsonMember> | undefined, more: Iterable<JsonMember> = []) => {
    const list: JsonMember = ['choices', arrayOf(choice === undefined ? [] : [objectOf(choice)])];
    const event = objectOf([...common, list, ...more]);
    events.push(Buffer.from('data: '), ...(sawLineBreak ? oneLine(event) : event), Buffer.from('\n\n'));
  };
  for (const [position, choice] of choices.entries()) {
    const index = choice.get('index') ?? [Buffer.from(String(position))];
    const content: JsonMember = isText
      ? ['text', choice.get('text') ?? EMPTY_STRING]
      : ['delta', asDelta(choice.get('message') ?? EMPTY_OBJECT)];
    const finish = choice.get('finish_reason') ?? NULL;
    choice.delete('message');
    // Members in the order of a chunk; the rest of the choice (logprobs, filter results) follows.
    add(new Map([['index', index], content, ...choice, ['finish_reason', NULL]]));
    if (beginsWith(finish, LETTER_N)) continue;
    add([
      ['index', index],
      isText ? ['text', EMPTY_STRING] : ['delta', EMPTY_OBJECT],
      ['finish_reason', finish],
    ]);
  }
  if (includeUsage && usage !== undefined && beginsWith(usage, OPEN_OBJECT))
    add(undefined, [['usage', usage]]);
  events.push(Buffer.from('data: [DONE]\n\n'));
  return body.length > LARGE_BODY ? new BodyPieces(events) : Buffer.concat(events);
}

/** Clients merge tool calls by `index`, which a completion lacks. */
function asDelta(message: Json): Json {
  const members = membersOf(message);
  const calls = elementsOf(members.get('tool_calls'));
  if (calls.length === 0) return message;
  const indexed = calls.map((call, index) => {
    const own = membersOf(call);
    if (own.size === 0 || own.has('index')) return call;
    return objectOf([['index', [Buffer.from(String(index))]], ...own]);
  });
  members.set('tool_calls', arrayOf(indexed));
  return objectOf(members);
}
