// Whether a JSON object without choices is an answer of some endpoint, an error without OpenAI's wrapper, or neither. Only for the rare
// objects that need it: what a chat completion shows is read on the way by chat-chunk.ts.
import { eventData, isErrorObject, memberOf, parse, readErrorAnswer } from './error-answer.ts';
import { JsonScanner } from './json.ts';

export type Shape = 'answer' | 'error' | 'other';

/** Members that answers have and errors have not. */
const ANSWER_MEMBERS = ['choices', 'output', 'data', 'results', 'text'] as const;
/** What is larger is no error. */
const MAX_ERROR_BYTES = 64 * 1024;
const LETTER_N = 0x6e;
const QUOTE = 0x22;

const scanner = new JsonScanner();

/**
 * @param bytes a valid JSON object stands in `[start, end)`
 * @param isWhole it is all of the answer, and no event of a stream
 */
export function shapeOf(bytes: Buffer, start = 0, end = bytes.length, isWhole = true): Shape {
  if (end - start > MAX_ERROR_BYTES) return 'answer';
  scanner.reset(bytes, start, end);
  let isNamed = false;
  if (!scanner.enterObject()) return 'other';
  while (scanner.nextMember()) {
    const isSet = scanner.peek() !== LETTER_N;
    if (isSet && ANSWER_MEMBERS.some((name) => scanner.keyIs(name))) return 'answer';
    isNamed ||= scanner.keyIs('object') && scanner.peek() === QUOTE;
    scanner.skipValue();
  }
  if (isErrorObject(parse(bytes.toString('utf8', start, end)), isWhole)) return 'error';
  return isNamed ? 'answer' : 'other';
}

/** Whether it is an array with an error object in front, as Google sends it. */
export function isErrorList(body: Buffer): boolean {
  if (body.length > MAX_ERROR_BYTES) return false;
  const list = parse(body.toString());
  return Array.isArray(list) && Boolean(memberOf(list[0], 'error'));
}

/** Whether the first event of a stream with data holds an error. */
export function isErrorEvent(text: string): boolean {
  const data = parse(eventData(text));
  return (
    Boolean(memberOf(data, 'error')) ||
    (data !== undefined && shapeOf(Buffer.from(eventData(text))) === 'error')
  );
}

/**
 * What an error frame says in which no SDK sees an error: it has no wrapper, and no name for what it is.
 * @param text its data
 * @param isTyped events of its endpoint differ by their type
 * @returns undefined where SDKs see it
 */
export function textOfBareError(frame: Buffer, text: string, isTyped: boolean): string | undefined {
  const data = parse(text);
  const type = memberOf(data, 'type');
  const isEvent = isTyped && typeof type === 'string' && /^error$|\./.test(type);
  if (isEvent || memberOf(data, 'error') || /^event: ?error\r?$/m.test(frame.toString())) return undefined;
  const { message } = readErrorAnswer(502, Buffer.from(text));
  return message === '' ? 'The upstream reported an error.' : message;
}
