// The events of the Responses API over a WebSocket: what tells them apart, and those of the gateway. It owns no connection.
import { ERRORS, errorBody, GatewayError } from '../../errors.ts';
import { retryHeaders } from '../../http/exchange/response-writer.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';
import { decodeString, JsonScanner } from '../../wire/json/json.ts';

const QUOTE = 0x22;
/** How the gateway's own error events begin in a stream. */
const ERROR_START = Buffer.from('{"type":"error",');

/** The events after which a response has no others. */
const LAST: ReadonlySet<string> = new Set([
  'response.completed',
  'response.incomplete',
  'response.cancelled',
  'response.failed',
  'error',
]);

/** What an event is, as far as a relay needs it. */
export interface EventFacts {
  /** Empty for anything but a JSON object with a type. */
  readonly type: string;
  /** The lane of the connection that it belongs to. */
  readonly streamId: string | undefined;
  /** Whether it ends its response. */
  readonly isLast: boolean;
}

const scanner = new JsonScanner();

/** @param text a whole message */
export function eventFacts(text: Buffer): EventFacts {
  let type = '';
  let streamId: string | undefined;
  scanner.reset(text);
  if (scanner.enterObject()) {
    while (scanner.nextMember()) {
      const { pos: start } = scanner;
      const isType = scanner.keyIs('type');
      const isRead = (isType || scanner.keyIs('stream_id')) && text[start] === QUOTE;
      if (!scanner.skipValue() || !isRead) continue;
      const value = decodeString(text, { start, end: scanner.pos });
      if (isType) type = value;
      else streamId = value;
    }
  }
  return { type, streamId, isLast: LAST.has(type) };
}

/** An error event of the gateway. @param streamId the lane whose event failed */
export function errorEvent(error: GatewayError, streamId: string | undefined): string {
  return errorAnswer(error.status, errorBody(error), retryHeaders(error), streamId);
}

/**
 * The event for an error answer in HTTP.
 * @param body its JSON
 * @param headers those that tell when to repeat it
 */
export function errorAnswer(
  status: number,
  body: string,
  headers: Readonly<Record<string, string>>,
  streamId: string | undefined,
): string {
  const error = memberOf(parse(body), 'error');
  if (typeof error !== 'object' || error === null)
    return errorEvent(new GatewayError('upstream_unusable_response'), streamId);
  // The name and status that the API has for it here: clients send their whole input again then.
  const isUnknown = memberOf(error, 'code') === 'response_not_found';
  return JSON.stringify({
    type: 'error',
    status: isUnknown ? 400 : status,
    error: isUnknown ? { ...error, code: 'previous_response_not_found' } : error,
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    ...(streamId === undefined ? {} : { stream_id: streamId }),
  });
}

/**
 * An event of a stream as a message. The gateway's own errors get a status and a lane, without which some clients wait for more.
 * @param data of one frame
 */
export function asMessage(data: Buffer, streamId: string | undefined): Buffer | string {
  if (!data.subarray(0, ERROR_START.length).equals(ERROR_START)) return data;
  const event = parse(data.toString());
  const code = memberOf(event, 'code');
  if (typeof event !== 'object' || event === null || 'status' in event || typeof code !== 'string')
    return data;
  const status = Object.entries(ERRORS).find(([name]) => name === code)?.[1].status ?? 502;
  const lane = streamId === undefined || 'stream_id' in event ? {} : { stream_id: streamId };
  return JSON.stringify({ ...event, status, ...lane });
}

/** The answer to steering, which the gateway does not offer: an upstream would begin responses that no request has reserved. */
export function steerFailed(text: Buffer, streamId: string | undefined): string {
  const event = parse(text.toString());
  const steer = {
    previous_response_id: memberOf(event, 'previous_response_id') ?? '',
    input: memberOf(event, 'input') ?? [],
  };
  const message = 'This gateway does not support steering. Send the input with the next response.create.';
  const error = { type: 'invalid_request_error', code: 'steering_not_supported', message };
  const lane = streamId === undefined ? {} : { stream_id: streamId };
  return JSON.stringify({ type: 'response.steer.failed', sequence_number: 0, steer, error, ...lane });
}
