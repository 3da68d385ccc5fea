// Writes complete responses: JSON, pages and errors, each with a content-length. The relay writes streams.
import { STATUS_CODES } from 'node:http';
import { errorBody, type GatewayError, isServerFault, MAX_RETRY_AFTER_MS } from '../../errors.ts';
import type { BodyPieces } from '../pieces/body-pieces.ts';
import { type BodyEvents, BodyWriter } from '../pieces/body-writer.ts';
import { anthropicErrorBody } from './anthropic-error.ts';
import type { Exchange } from './exchange.ts';
import { batchWrite } from './write-batch.ts';

export type AnswerHeaders = Readonly<Record<string, string | number>>;

/**
 * Lingering close: bounds on reading and discarding the rest of an unread request, so that the client can read the response. Many
 * clients send everything before they read. Silence ends it sooner.
 */
const LINGER_MS = 30_000;
const LINGER_SILENCE_MS = 1_000;
const LINGER_BYTES = 64 * 1024 * 1024;

/** Bodies up to this size are copied behind the head, which is cheaper than a second write. */
const SINGLE_WRITE_BYTES = 16 * 1024;

/**
 * Writes status, headers and body; a large body in pieces, one per tick. Does nothing if a response has started or the client
 * is gone.
 * @param body the exact bytes; its length is sent as content-length
 */
export function answer(
  exchange: Exchange,
  status: number,
  headers: AnswerHeaders,
  body: Buffer | string | BodyPieces,
): void {
  const { request, response } = exchange;
  if (response.headersSent || response.destroyed) return;
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const head: Record<string, string | number> = { ...exchange.headers, ...headers };
  // RFC 9110, 8.6: a 204 has no length.
  if (status !== 204) head['content-length'] = bytes.length;
  exchange.access.bytes_out = request.method === 'HEAD' ? 0 : bytes.length;
  // The request is not fully read, so the rest could be parsed as a new request (RFC 9112, 9.6).
  const unread = !request.complete && hasBody(exchange);
  if (unread) head['connection'] = 'close';
  response.writeHead(status, head);
  if (unread) lingeringEnd(exchange, Buffer.isBuffer(bytes) ? bytes : bytes.toBuffer());
  else if (!Buffer.isBuffer(bytes)) writePieces(exchange, bytes);
  else if (bytes.length > SINGLE_WRITE_BYTES) response.end(bytes);
  else {
    exchange.isEnding = true;
    // Node writes a Latin-1 string in one piece with the head, and Latin-1 maps every byte.
    batchWrite(() => response.end(bytes.toString('latin1'), 'latin1'));
  }
}

function writePieces(exchange: Exchange, pieces: BodyPieces): void {
  const { response } = exchange;
  exchange.isEnding = true;
  const events: BodyEvents = {
    onStall() {},
    onWritten: () => response.end(),
    onSourceError: () => response.destroy(),
  };
  const writer = new BodyWriter(response, pieces, events);
  response.once('close', () => writer.cancel());
}

export function answerJson(
  exchange: Exchange,
  status: number,
  value: unknown,
  headers: AnswerHeaders = {},
): void {
  answer(exchange, status, { 'content-type': 'application/json', ...headers }, JSON.stringify(value));
}

/** Writes the error object with the retry headers of the error table. */
export function answerError(exchange: Exchange, error: GatewayError, headers: AnswerHeaders = {}): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  answer(
    exchange,
    error.status,
    { 'content-type': 'application/json', ...challenge(error), ...retryHeaders(error), ...headers },
    exchange.isAnthropic ? anthropicErrorBody(error, exchange.id) : errorBody(error),
  );
}

/** Authentication challenge of a 401 (RFC 9110, 15.5.2), with `invalid_token` for a rejected key (RFC 6750, 3.1). */
function challenge({ status, code }: GatewayError): Record<string, string> {
  if (status !== 401) return {};
  const fault = code === 'missing_api_key' ? '' : ', error="invalid_token"';
  return { 'www-authenticate': `Bearer realm="tollgate"${fault}` };
}

/**
 * Retry headers for SDKs. If waiting helps: `retry-after` (whole seconds, 1 to 60; zero or text makes SDKs loop at once, and some
 * wait without a cap) and `retry-after-ms`, which most SDKs prefer. If not: `x-should-retry: false`.
 */
export function retryHeaders(error: GatewayError): Record<string, string> {
  switch (error.retry) {
    case 'wait': {
      // Zero and NaN become 1.
      const ms = Math.min(Math.max(Math.ceil(error.retryAfterMs) || 1, 1), MAX_RETRY_AFTER_MS);
      return { 'retry-after': String(Math.ceil(ms / 1000)), 'retry-after-ms': String(ms) };
    }
    case 'no':
      // For statuses that SDKs retry, and for 403, which proxies also send for transient conditions.
      return error.status === 429 || error.status === 403 || isServerFault(error.status)
        ? { 'x-should-retry': 'false' }
        : {};
    case 'default':
      return {};
  }
}

/** The bytes of a complete error response that closes the connection, for use without an exchange. */
export function closingAnswer(error: GatewayError): Buffer {
  const body = errorBody(error);
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
    ...retryHeaders(error),
  };
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${fields.join('')}\r\n${body}`,
  );
}

/** Whether the request has a body: a content-length above 0 or chunked framing (RFC 9112, 6.3). */
export function hasBody({ request }: Exchange): boolean {
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/** Answers with an error; cuts a response that has begun and is incomplete. */
export function answerOrCut(exchange: Exchange, error: GatewayError): void {
  if (!exchange.response.headersSent) {
    answerError(exchange, error);
    return;
  }
  exchange.error ??= error;
  exchange.access.outcome = error.code;
  if (!exchange.isEnding && !exchange.response.writableEnded) exchange.response.destroy();
}

/**
 * Sends the body and keeps reading before the connection closes: closing with unread bytes makes the kernel send RST, and the client
 * would lose the response.
 */
function lingeringEnd(exchange: Exchange, bytes: Buffer): void {
  const { request, response } = exchange;
  const { socket } = request;
  let left = LINGER_BYTES;
  const end = () => {
    clearTimeout(silence);
    clearTimeout(deadline);
    request.off('data', onData);
    socket.off('end', end);
    response.end();
  };
  const onData = (chunk: Buffer) => {
    left -= chunk.length;
    silence.refresh();
    if (left < 0) end();
  };
  const silence = setTimeout(end, LINGER_SILENCE_MS);
  const deadline = setTimeout(end, LINGER_MS);
  response.write(bytes);
  exchange.markAnswered();
  request.on('data', onData).once('end', end).once('close', end);
  // After a FIN nothing more can arrive, so nothing can be lost.
  socket.once('end', end);
  request.resume();
}
