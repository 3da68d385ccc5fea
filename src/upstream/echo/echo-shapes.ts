// Building blocks of echo responses: sink events, errors, and text split into pieces. The endpoints are in echo-chat.ts and
// echo-others.ts.
import type { GatewayError } from '../../errors.ts';
import type { ResponseHeaders } from '../transport.ts';

/** An event to deliver to the sink. */
export type EchoEvent =
  | { readonly kind: 'head'; readonly status: number; readonly headers: ResponseHeaders }
  | { readonly kind: 'data'; readonly bytes: Buffer }
  | { readonly kind: 'error'; readonly error: GatewayError };

/** A request that a vendor would reject with 400. */
export interface EchoError {
  readonly kind: 'echo_error';
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** Maximum answer length in tokens; a longer one ends with `length`. */
const MAX_ECHO_ANSWER = 2_000;

/** Maximum characters per token; bounds how much of a text is split. */
const MAX_TOKEN = 24;

export function jsonAnswer(status: number, value: object): EchoEvent[] {
  const data = dataEvent(JSON.stringify(value));
  const headers = { 'content-type': 'application/json', 'content-length': String(data.bytes.length) };
  return [{ kind: 'head', status, headers }, data];
}

export function dataEvent(data: string | Buffer): { kind: 'data'; bytes: Buffer } {
  return { kind: 'data', bytes: typeof data === 'string' ? Buffer.from(data) : data };
}

export function echoErrorAnswer({ message, param, code }: EchoError, status = 400): EchoEvent[] {
  return jsonAnswer(status, { error: { message, type: 'invalid_request_error', param, code } });
}

/** A stream of the given frames. */
export function streamAnswer(frames: readonly string[]): EchoEvent[] {
  return [
    { kind: 'head', status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8' } },
    ...frames.map(dataEvent),
  ];
}

/** Splits into words with their leading space, long ones in parts: the units that are streamed and counted as tokens. */
export function pieces(text: string): string[] {
  const head = text.slice(0, (MAX_ECHO_ANSWER + 1) * MAX_TOKEN);
  return head.match(/\s{0,8}\S{1,8}|\s{1,8}/gu) ?? [];
}

/**
 * The members of a request and its model, or an error.
 * @param defaultModel for requests without a model
 */
export function readEchoBody(bytes: Buffer, defaultModel?: string): EchoBody | EchoError {
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString('utf8'));
  } catch {
    return echoError('The body is not valid JSON.', null, null);
  }
  if (!isRecord(body)) return echoError('The body is not a JSON object.', null, null);
  const model = body['model'] ?? defaultModel;
  if (typeof model !== 'string') return echoError('You must provide a model parameter.', 'model', null);
  return { kind: 'body', model, members: body };
}

export interface EchoBody {
  readonly kind: 'body';
  readonly model: string;
  readonly members: Record<string, unknown>;
}

/**
 * The maximum answer length in tokens.
 * @param names members that may set it, in order of precedence
 */
export function readMaxTokens(body: Record<string, unknown>, names: readonly string[]): number | EchoError {
  for (const name of names) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number' || !Number.isInteger(value)) {
      return echoError(`Invalid type for '${name}': expected an integer.`, name, 'invalid_type');
    }
    if (value < 1) {
      return echoError(`Invalid '${name}': expected a value of at least 1.`, name, 'integer_below_min_value');
    }
    return Math.min(value, MAX_ECHO_ANSWER);
  }
  return MAX_ECHO_ANSWER;
}

export function echoError(message: string, param: string | null, code: string | null): EchoError {
  return { kind: 'echo_error', message, param, code };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A typed stream event. */
export interface StreamEvent {
  readonly type: string;
  readonly [name: string]: unknown;
}

export function eventFrame(event: StreamEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}
