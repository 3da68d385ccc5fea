// Decides whether a JSON object without choices is an answer of some endpoint, an error without OpenAI's wrapper, or neither. Few objects
// need this: chat-chunk.ts reads chat completions.
import { eventData, isErrorObject, memberOf, parse, readErrorAnswer } from './error-answer.ts';
import { JsonScanner } from './json/json.ts';
import { millisecondsOf } from './token-usage.ts';

export type Shape = 'answer' | 'error' | 'other';

/** Members of answers that errors do not have. */
const ANSWER_MEMBERS = ['choices', 'output', 'data', 'results', 'text'] as const;
/** Larger objects are not errors. */
const MAX_ERROR_BYTES = 64 * 1024;
const LETTER_N = 0x6e;
const QUOTE = 0x22;

const scanner = new JsonScanner();

/**
 * @param bytes with a valid JSON object in `[start, end)`
 * @param isWhole whether it is the whole answer, and not an event of a stream
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

/** What is counted in an answer without tokens. */
export interface AnswerContents {
  /** Elements of `data`; undefined where it is no array. */
  readonly items: number | undefined;
  /** `duration` in milliseconds; 0 without one. */
  readonly milliseconds: number;
}

export function contentsOf(body: Buffer): AnswerContents {
  const answer = parse(body.toString());
  const data = memberOf(answer, 'data');
  return {
    items: Array.isArray(data) ? data.length : undefined,
    milliseconds: millisecondsOf(memberOf(answer, 'duration')),
  };
}

/** Whether a finish reason says that a content filter ended the answer; some vendors add what it found. */
export function isContentFilter(finish: string | null): boolean {
  return finish?.startsWith('content_filter') === true;
}

/** Whether a content filter left nothing of a whole response of the Responses API, or of a message of Anthropic's API. */
export function isFilteredResponse(body: Buffer): boolean {
  if (body.length > MAX_ERROR_BYTES || !/"(?:content_filter|refusal)"/.test(body.toString('latin1')))
    return false;
  const response = parse(body.toString());
  const content = memberOf(response, 'content');
  if (memberOf(response, 'stop_reason') === 'refusal') return Array.isArray(content) && content.length === 0;
  const output = memberOf(response, 'output');
  const reason = memberOf(memberOf(response, 'incomplete_details'), 'reason');
  return isContentFilter(String(reason)) && Array.isArray(output) && output.every(isWithoutOutput);
}

/** Reasoning, or a message without content. */
function isWithoutOutput(item: unknown): boolean {
  const content = memberOf(item, 'content');
  const isReasoning = memberOf(item, 'type') === 'reasoning';
  return (
    isReasoning || (memberOf(item, 'type') === 'message' && Array.isArray(content) && content.length === 0)
  );
}

/** Whether the text is an array that begins with an error object, as Google sends it. */
export function isErrorList(bytes: Buffer, start = 0, end = bytes.length): boolean {
  if (end - start > MAX_ERROR_BYTES) return false;
  const list = parse(bytes.toString('utf8', start, end));
  return Array.isArray(list) && Boolean(memberOf(list[0], 'error'));
}

/** Whether the first event with data of a stream is an error. */
export function isErrorEvent(text: string): boolean {
  const data = parse(eventData(text));
  return (
    Boolean(memberOf(data, 'error')) ||
    (data !== undefined && shapeOf(Buffer.from(eventData(text))) === 'error')
  );
}

/** By what SDKs recognize an error frame: its member `error`; or its type, too; or the name of its event alone. */
export type ErrorSign = 'wrapper' | 'type' | 'name';

/**
 * The message of an error frame that no SDK recognizes.
 * @param text its data
 * @returns undefined if SDKs recognize it
 */
export function textOfBareError(frame: Buffer, text: string, sign: ErrorSign): string | undefined {
  const lines = frame.toString();
  if (/^event: ?error\r?$/m.test(lines)) return undefined;
  const isField = !/(?:^|[\r\n])data[:\r\n]/.test(lines);
  const data = parse(text);
  const type = memberOf(data, 'type');
  const isEvent = sign === 'type' && typeof type === 'string' && /^error$|\./.test(type);
  if (sign !== 'name' && !isField && (isEvent || memberOf(data, 'error'))) return undefined;
  const { message } = readErrorAnswer(502, Buffer.from(text));
  // The finish reason of a choice says that it failed.
  if (message === '' && memberOf(data, 'choices')) return undefined;
  return message === '' ? 'The upstream reported an error.' : message;
}
