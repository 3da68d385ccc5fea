// What the endpoints of the echo upstream share: requests, answers, rejections, and the text that the model says.
import { memberOf, parse } from '../../wire/error-answer.ts';
import type { ResponseHeaders } from '../transport.ts';

export interface EchoAnswer {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** Delivered one by one: the frames of a stream, or the pieces of a body. */
  readonly parts: readonly Buffer[];
}

export interface EchoRequest {
  readonly model: string;
  readonly members: Readonly<Record<string, unknown>>;
  /** Unix time in seconds. */
  readonly created: number;
}

/** An event of a stream. With a type, its frame names it. */
export interface StreamEvent {
  readonly type?: string;
  readonly [name: string]: unknown;
}

/** A request that a vendor would reject. */
export class EchoFault extends Error {
  readonly answer: EchoAnswer;

  constructor(message: string, param: string | null = null, code: string | null = null, status = 400) {
    super(message);
    this.answer = jsonAnswer({ error: { message, type: 'invalid_request_error', param, code } }, status);
  }
}

/** Maximum answer length in tokens; a longer one ends with `length`. */
const MAX_ECHO_ANSWER = 2_000;
/** Maximum characters per token; bounds how much of a text is split. */
const MAX_TOKEN = 24;

export function jsonAnswer(value: object, status = 200): EchoAnswer {
  const body = Buffer.from(JSON.stringify(value));
  const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
  return { status, headers, parts: [body] };
}

export function answerOf(type: string, ...parts: readonly (string | Buffer)[]): EchoAnswer {
  return { status: 200, headers: { 'content-type': type }, parts: parts.map((part) => Buffer.from(part)) };
}

/** @param last frame behind the events */
export function streamAnswer(events: readonly StreamEvent[], ...last: readonly string[]): EchoAnswer {
  const frames = events.map((event) => {
    const name = event.type === undefined ? '' : `event: ${event.type}\n`;
    return `${name}data: ${JSON.stringify(event)}\n\n`;
  });
  return answerOf('text/event-stream; charset=utf-8', ...frames, ...last);
}

/** Reads a JSON body. @param defaultModel for requests without a model @throws EchoFault */
export function readEchoBody(bytes: Buffer, created: number, defaultModel?: string): EchoRequest {
  const body = parse(bytes.toString());
  if (body === undefined) throw new EchoFault('The body is not valid JSON.');
  if (!isRecord(body)) throw new EchoFault('The body is not a JSON object.');
  const model = body['model'] ?? defaultModel;
  if (typeof model !== 'string') throw new EchoFault('You must provide a model parameter.', 'model');
  return { model, members: body, created };
}

/**
 * The model's answer, in pieces: words with their leading space, long ones in parts. They are streamed and counted as tokens.
 * @param said by the user
 * @param limits members that may limit the number of pieces, in order of precedence
 * @throws EchoFault for an invalid limit
 */
export function replyTo(said: string, members: EchoRequest['members'], ...limits: readonly string[]) {
  const text = said === '' ? 'Say something, and I will say it back.' : `You said: ${said}`;
  const head = text.slice(0, (MAX_ECHO_ANSWER + 1) * MAX_TOKEN);
  const all = head.match(/\s{0,8}\S{1,8}|\s{1,8}/gu) ?? [];
  const pieces = all.slice(0, readLimit(members, limits));
  return { pieces, text: pieces.join(''), isCut: pieces.length < all.length };
}

function readLimit(members: EchoRequest['members'], names: readonly string[]): number {
  const name = names.find((each) => (members[each] ?? null) !== null);
  if (name === undefined) return MAX_ECHO_ANSWER;
  const value = members[name];
  if (typeof value !== 'number' || !Number.isInteger(value))
    throw new EchoFault(`Invalid type for '${name}': expected an integer.`, name, 'invalid_type');
  if (value < 1)
    throw new EchoFault(
      `Invalid '${name}': expected a value of at least 1.`,
      name,
      'integer_below_min_value',
    );
  return Math.min(value, MAX_ECHO_ANSWER);
}

/** The text of a message; undefined for a wrong type. Parts without text (images, audio) count as empty. */
export function contentText(content: unknown): string | undefined {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return undefined;
  const texts: unknown[] = content.map((part) => memberOf(part, 'text'));
  return texts.filter((text) => typeof text === 'string').join('');
}

/** Four characters per token: accurate enough, and cheap for long prompts. */
export function echoTokens(text: string): number {
  return Math.ceil(text.length / 4);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
