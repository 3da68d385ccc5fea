// The rules of the edge: what a request must look like before anything else reads it. Everything not allowed here is
// refused, so that nothing behind has to think about it. Pure: it looks at the parsed head and decides.
import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../errors.ts';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS']);
/** For the `allow` header of a 405 where no route says which methods it has. */
export const ALLOWED_METHODS = [...METHODS].join(', ');

const MAX_FIELDS = 100;
/** RFC 9112, 3.2.1: origin form, printable ASCII; no backslash (some servers read it as a slash), no fragment. */
const TARGET = /^\/[\x21\x22\x24-\x5b\x5d-\x7e]*$/;
/** Encoded NUL and line ends have no honest use in a target. */
const ENCODED_CONTROL = /%0[0ad]/i;
/** RFC 9110, 7.2 with the characters that hosts have; IPv6 in brackets. */
const HOST = /^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;
const PLAIN_NAME = /^[A-Za-z0-9-]+$/;
/** RFC 9110, 5.6.2. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const ASCII_VALUE = /^[\x20-\x7e\t]*$/;
/** RFC 9110, 5.5: with bytes above ASCII, whose meaning is the sender's. */
const FIELD_VALUE = /^[\x20-\x7e\x80-\xff\t]*$/;
/** Of a name in a message, in characters. */
const MAX_NAME = 64;
/** RFC 9112, 6.2; up to what a number holds exactly. One spelling: no sign, no list, no leading zero. */
const CONTENT_LENGTH = /^(?:0|[1-9]\d{0,14})$/;
/** Fields of which a second one would make two readers see two requests. */
const SINGLE = new Map(
  [
    'host',
    'content-length',
    'transfer-encoding',
    'authorization',
    'content-type',
    'content-encoding',
    'expect',
  ].map((name, index) => [name, 1 << index]),
);

/**
 * Fields that the gateway reads or passes on. CGI-like servers read `content_length` as `content-length`, so another spelling
 * of one is refused. Values of these are ASCII, but for cookies.
 */
const READ = new Set([
  ...SINGLE.keys(),
  'accept',
  'access-control-request-headers',
  'access-control-request-method',
  'api-key',
  'connection',
  'cookie',
  'forwarded',
  'keep-alive',
  'openai-beta',
  'openai-organization',
  'openai-project',
  'origin',
  'proxy-authorization',
  'sec-fetch-site',
  'sec-websocket-extensions',
  'sec-websocket-key',
  'sec-websocket-protocol',
  'sec-websocket-version',
  'stripe-signature',
  'te',
  'traceparent',
  'tracestate',
  'trailer',
  'upgrade',
  'x-client-request-id',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'x-request-id',
]);

/** Spellings that clients use → as in SINGLE, 0 for any other field: of these the name need not be looked at again. */
const COMMON = new Map(
  [
    ...SINGLE.keys(),
    'accept',
    'accept-encoding',
    'connection',
    'user-agent',
    'x-request-id',
    'x-forwarded-for',
  ]
    .flatMap((name) => [name, name.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase())])
    .map((name) => [name, SINGLE.get(name.toLowerCase()) ?? 0]),
);

/**
 * Checks a request's line and headers (RFC 9110, RFC 9112 and the narrower rules above).
 * @returns the refusal, or undefined if the request may pass
 */
export function checkEdge(request: IncomingMessage): GatewayError | undefined {
  const { method = '', url = '', rawHeaders, httpVersionMajor, httpVersionMinor } = request;
  // Node's parser also lets 0.9 and 2.0 pass as words of the request line.
  if (httpVersionMajor !== 1 || httpVersionMinor > 1) return refuse('The HTTP version is not supported.');
  if (!METHODS.has(method)) return new GatewayError('method_not_allowed');
  if (!TARGET.test(url) || ENCODED_CONTROL.test(url)) return refuse('The request target is malformed.');

  if (rawHeaders.length > MAX_FIELDS * 2) return new GatewayError('headers_too_large');
  /** One bit per field of SINGLE. */
  let seen = 0;
  let host = false;
  let length: string | undefined;
  let coding: string | undefined;
  let expected: string | undefined;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const field = rawHeaders[i] ?? '';
    const value = rawHeaders[i + 1] ?? '';
    let bit = COMMON.get(field);
    if (bit === undefined) {
      const fault = checkName(field);
      if (fault !== undefined) return refuse(fault);
      bit = SINGLE.get(field.toLowerCase()) ?? 0;
    }
    if (!ASCII_VALUE.test(value) && (isAsciiOnly(field.toLowerCase()) || !FIELD_VALUE.test(value)))
      return refuse(`The header ${field.slice(0, MAX_NAME)} has a character that is not allowed.`);
    if (bit === 0) continue;
    const name = field.toLowerCase();
    if ((seen & bit) !== 0) return refuse(`The header ${name} is given more than once.`);
    seen |= bit;
    if (name === 'host') {
      if (!HOST.test(value)) return refuse('The Host header is malformed.');
      host = true;
    } else if (name === 'content-length') length = value;
    else if (name === 'transfer-encoding') coding = value;
    else if (name === 'expect') expected = value;
  }
  if (!host && httpVersionMinor !== 0) return refuse('The Host header is missing.');

  if (length !== undefined && !CONTENT_LENGTH.test(length)) return refuse('The Content-Length is malformed.');
  if (coding !== undefined) {
    // RFC 9112, 6.1: the last word in request smuggling, so one spelling and nothing beside it.
    if (coding.toLowerCase() !== 'chunked') return refuse('The only supported Transfer-Encoding is chunked.');
    if (length !== undefined) return refuse('Content-Length and Transfer-Encoding exclude each other.');
    if (httpVersionMinor === 0) return refuse('Transfer-Encoding needs HTTP/1.1.');
  }
  if (
    (method === 'GET' || method === 'HEAD') &&
    (coding !== undefined || (length !== undefined && length !== '0'))
  ) {
    return refuse(`A ${method} request has no body here.`);
  }
  if (expected !== undefined && !/^100-continue$/i.test(expected))
    return new GatewayError('expectation_failed');
  return undefined;
}

/** @returns what is wrong with the name of a field, or undefined */
function checkName(field: string): string | undefined {
  if (PLAIN_NAME.test(field)) return undefined;
  if (!TOKEN.test(field)) return 'A header field has a name that is not allowed.';
  const name = field.toLowerCase().replaceAll(/[^a-z0-9]/g, '-');
  return READ.has(name) ? `The header ${field} could be taken for ${name}.` : undefined;
}

function refuse(message: string): GatewayError {
  return new GatewayError('invalid_http', message);
}

/** @param code why llhttp, or Node's server, could not read a request */
export function edgeRejectionFor(code: string | undefined): GatewayError {
  if (code === 'HPE_HEADER_OVERFLOW') return new GatewayError('headers_too_large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new GatewayError('request_timeout');
  return new GatewayError('invalid_http');
}

/** Cookies of other applications on the domain come with any bytes, and browsers send them all. */
function isAsciiOnly(name: string): boolean {
  return READ.has(name) && name !== 'cookie';
}
