// The one writer of complete answers: JSON, pages and errors, each with its length. Streams are written by the relay.
import { STATUS_CODES } from 'node:http';
import { errorBody, type GatewayError, isServerFault, MAX_RETRY_AFTER_MS } from '../../errors.ts';
import type { BodyPieces } from '../pieces/body-pieces.ts';
import { type BodyEvents, BodyWriter } from '../pieces/body-writer.ts';
import type { Exchange } from './exchange.ts';
import { batchWrite } from './write-batch.ts';

export type AnswerHeaders = Readonly<Record<string, string | number>>;

/**
 * For how long, and for how many bytes, the rest of an unread request is swallowed so that the client can read our answer:
 * many clients send all they have before they read. Silence ends it sooner.
 */
const LINGER_MS = 30_000;
const LINGER_SILENCE_MS = 1_000;
const LINGER_BYTES = 64 * 1024 * 1024;

/** Up to this size a body is copied behind its head, which costs less than a second piece to write. */
const ONE_PIECE_BYTES = 16 * 1024;

/**
 * Writes status, headers and body: at once, or a large body in pieces, each in a turn of its own. Does nothing if an answer has
 * begun or the client is gone.
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
  // Not read to its end: what follows on this connection could be taken for a new request (RFC 9112, 9.6).
  const unread = !request.complete && hasBody(exchange);
  if (unread) head['connection'] = 'close';
  response.writeHead(status, head);
  if (unread) lingeringEnd(exchange, Buffer.isBuffer(bytes) ? bytes : bytes.whole());
  else if (!Buffer.isBuffer(bytes)) writePieces(exchange, bytes);
  else if (bytes.length > ONE_PIECE_BYTES) response.end(bytes);
  else {
    exchange.isEnding = true;
    // As Latin-1, which has a letter for every byte, Node writes it in one piece with the head.
    batchWrite(() => response.end(bytes.toString('latin1'), 'latin1'));
  }
}

function writePieces(exchange: Exchange, pieces: BodyPieces): void {
  const { response } = exchange;
  exchange.isEnding = true;
  const events: BodyEvents = {
    onStall() {},
    onWritten: () => response.end(),
    onLost: () => response.destroy(),
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

/** Answers with the error object, and the retry headers that the error table asks for. */
export function answerError(exchange: Exchange, error: GatewayError, headers: AnswerHeaders = {}): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  answer(
    exchange,
    error.status,
    { 'content-type': 'application/json', ...challenge(error), ...retryHeaders(error), ...headers },
    errorBody(error),
  );
}

/** RFC 9110, 15.5.2: a 401 says how to authenticate; RFC 6750, 3.1: and whether what was sent is not valid. */
function challenge({ status, code }: GatewayError): Record<string, string> {
  if (status !== 401) return {};
  const fault = code === 'missing_api_key' ? '' : ', error="invalid_token"';
  return { 'www-authenticate': `Bearer realm="tollgate"${fault}` };
}

/**
 * `retry-after` (whole seconds, 1 to 60: zero or text makes SDKs loop at once, and some wait without a cap) and
 * `retry-after-ms`, which most SDKs prefer, where waiting helps, `x-should-retry: false` where it does not.
 */
export function retryHeaders(error: GatewayError): Record<string, string> {
  switch (error.retry) {
    case 'wait': {
      // Zero and NaN count as one.
      const ms = Math.min(Math.max(Math.ceil(error.retryAfterMs) || 1, 1), MAX_RETRY_AFTER_MS);
      return { 'retry-after': String(Math.ceil(ms / 1000)), 'retry-after-ms': String(ms) };
    }
    case 'no':
      // Where SDKs would try again, and at 403, which says less than it means: proxies answer so for a moment.
      return error.status === 429 || error.status === 403 || isServerFault(error.status)
        ? { 'x-should-retry': 'false' }
        : {};
    case 'default':
      return {};
  }
}

/** An error as the bytes of a whole answer that closes its connection, for where there is no exchange. */
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

/** Whether the request announced a body: one of its own length or a chunked one (RFC 9112, 6.3). */
export function hasBody({ request }: Exchange): boolean {
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/**
 * Sends the body, then reads on for a moment before the connection closes: closing over unread bytes makes the kernel
 * send RST, and the client would lose the answer that tells it what was wrong.
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
  // After its FIN nothing can come that would be lost, whether the body was whole or not.
  socket.once('end', end);
  request.resume();
}
