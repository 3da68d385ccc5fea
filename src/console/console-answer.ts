// Reads bodies and writes answers of the console and its API, with the headers that all of them have.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { STATUS_CODES } from 'node:http';
import { GatewayError } from '../errors.ts';

/** For each answer: nothing is kept, guessed, framed or told to other sites. */
const HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};
const CLOSED_POLICY = "default-src 'none'; frame-ancestors 'none'";

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** @throws GatewayError `request_too_large`; the listener's deadline ends a slow one */
export async function readText(request: IncomingMessage, maxBytes: number): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request) {
    const bytes = Buffer.from(piece);
    size += bytes.length;
    if (size > maxBytes) throw new GatewayError('request_too_large');
    pieces.push(bytes);
  }
  return Buffer.concat(pieces).toString();
}

/** Writes an answer. Does nothing where one has begun. */
export function send(response: ServerResponse, status: number, body: string, headers: Headers): void {
  if (response.headersSent || response.destroyed) return;
  setHeaders(response, headers);
  response.setHeader('content-length', Buffer.byteLength(body));
  response.writeHead(status);
  response.end(body);
}

/** Begins an answer whose body follows in parts. */
export function begin(response: ServerResponse, status: number, headers: Headers): void {
  // Proxies such as nginx pass the parts on as they come.
  setHeaders(response, { ...headers, 'x-accel-buffering': 'no' });
  response.writeHead(status);
}

function setHeaders(response: ServerResponse, headers: Headers): void {
  const own = Object.entries({ 'content-security-policy': CLOSED_POLICY, ...HEADERS, ...headers });
  for (const [name, value] of own) if (value !== undefined) response.setHeader(name, value);
  // An unread body could be taken for the next request.
  if (!response.req.complete) response.setHeader('connection', 'close');
}

/** An answer that is text already, because it is large. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: Headers = {},
): void {
  const body = value instanceof JsonText ? value.text : `${JSON.stringify(value)}\n`;
  send(response, status, body, { 'content-type': 'application/json', ...headers });
}

/** RFC 9457, with the default `type`. `code` is one of the error table; `more` has members of this problem. */
export function sendProblem(response: ServerResponse, error: GatewayError, more: object = {}): void {
  const { status, code, message, param } = error;
  const problem = {
    title: STATUS_CODES[status] ?? 'Error',
    status,
    code,
    detail: message,
    ...(param !== null && { param }),
    ...more,
  };
  const headers = { 'content-type': 'application/problem+json', ...waitHeaders(error) };
  send(response, status, `${JSON.stringify(problem)}\n`, headers);
}

export function waitHeaders(error: GatewayError): Headers {
  return {
    'retry-after': error.retry === 'wait' ? String(Math.ceil(error.retryAfterMs / 1000)) : undefined,
    'www-authenticate': error.status === 401 ? 'Bearer realm="tollgate"' : undefined,
  };
}
