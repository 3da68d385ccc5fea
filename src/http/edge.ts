// Edge checks: validates the request line and headers before anything else reads them (an allow-list). Pure functions of the parsed
// head.
import { GatewayError } from '../errors.ts';
import { HOST } from './exchange/absolute-form.ts';
import type { IncomingRequest } from './incoming-request.ts';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS']);
/** Default `allow` header of a 405. */
export const ALLOWED_METHODS = [...METHODS].join(', ');

const MAX_FIELDS = 100;
/** RFC 9112, 3.2.1: origin form (`toOriginForm` has made it), printable ASCII; no backslash (some servers read it as a slash), no fragment. */
const TARGET = /^\/[\x21\x22\x24-\x5b\x5d-\x7e]*$/;
/** Encoded NUL and line ends have no legitimate use in a target. */
const ENCODED_CONTROL = /%0[0ad]/i;
const PLAIN_NAME = /^[A-Za-z0-9-]+$/;
/** RFC 9110, 5.6.2. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const ASCII_VALUE = /^[\x20-\x7e\t]*$/;
/** RFC 9110, 5.5: including bytes above ASCII. */
const FIELD_VALUE = /^[\x20-\x7e\x80-\xff\t]*$/;
/** Length of a name in a message, in characters. */
const MAX_NAME = 64;
const HOST_LENGTH = 'host'.length;
/** RFC 9112, 6.2, up to what a number holds exactly. One spelling: no sign, list or leading zero. */
const CONTENT_LENGTH = /^(?:0|[1-9]\d{0,14})$/;
/** Fields whose repetition is ambiguous between parsers (request smuggling). */
const SINGLE = new Map(
  [
    'host',
    'content-length',
    'transfer-encoding',
    'authorization',
    'api-key',
    'x-api-key',
    'content-type',
    'content-encoding',
    'expect',
  ].map((name, index) => [name, 1 << index]),
);

/**
 * Fields that the gateway reads or forwards. CGI-like servers read `content_length` as `content-length`, so other spellings of these
 * are rejected. Their values are ASCII, except for cookies.
 */
const READ = new Set([
  ...SINGLE.keys(),
  'accept',
  'access-control-request-headers',
  'access-control-request-method',
  'anthropic-beta',
  'anthropic-version',
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

/** Common spellings → bit of SINGLE, 0 for any other field: a fast path without further checks of the name. */
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
 * Validates the request line and headers (RFC 9110, RFC 9112 and the stricter rules above).
 * @returns the rejection; undefined if the request is valid
 */
export function checkEdge(request: IncomingRequest): GatewayError | undefined {
  const { method = '', url = '', rawHeaders, httpVersionMajor, httpVersionMinor } = request;
  // Node's parser also accepts 0.9 and 2.0 in the request line.
  if (httpVersionMajor !== 1 || httpVersionMinor > 1) return invalid('The HTTP version is not supported.');
  if (!METHODS.has(method)) return new GatewayError('method_not_allowed');
  if (!TARGET.test(url) || ENCODED_CONTROL.test(url)) return invalid('The request target is malformed.');

  const { changed } = request;
  const fault = changed === undefined ? checkFields(rawHeaders) : checkValues(rawHeaders, changed);
  if (fault !== undefined) return fault;
  request.pass();
  const { host, 'content-length': length, 'transfer-encoding': coding, expect: expected } = request.headers;
  if (host === undefined && httpVersionMinor !== 0) return invalid('The Host header is missing.');

  if (length !== undefined && !CONTENT_LENGTH.test(length))
    return invalid('The Content-Length is malformed.');
  if (coding !== undefined) {
    // RFC 9112, 6.1: against request smuggling, only one spelling and no Content-Length beside it.
    if (coding.toLowerCase() !== 'chunked')
      return invalid('The only supported Transfer-Encoding is chunked.');
    if (length !== undefined) return invalid('Content-Length and Transfer-Encoding cannot be combined.');
    if (httpVersionMinor === 0) return invalid('Transfer-Encoding needs HTTP/1.1.');
  }
  if (
    (method === 'GET' || method === 'HEAD') &&
    (coding !== undefined || (length !== undefined && length !== '0'))
  ) {
    return invalid(`A ${method} request cannot have a body here.`);
  }
  if (expected !== undefined && !/^100-continue$/i.test(expected))
    return new GatewayError('expectation_failed');
  return undefined;
}

/** Checks each name and value, and that no field of SINGLE is repeated. */
function checkFields(raw: readonly string[]): GatewayError | undefined {
  if (raw.length > MAX_FIELDS * 2) return new GatewayError('headers_too_large');
  /** One bit per field of SINGLE. */
  let seen = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const field = raw[i] ?? '';
    let bit = COMMON.get(field);
    if (bit === undefined) {
      const fault = checkName(field);
      if (fault !== undefined) return invalid(fault);
      bit = SINGLE.get(field.toLowerCase()) ?? 0;
    }
    const fault = checkValue(field, raw[i + 1] ?? '');
    if (fault !== undefined) return fault;
    if ((seen & bit) !== 0) return invalid(`The header ${field.toLowerCase()} is given more than once.`);
    seen |= bit;
  }
  return undefined;
}

/** @param at offsets of the names */
function checkValues(raw: readonly string[], at: readonly number[]): GatewayError | undefined {
  for (const i of at) {
    const fault = checkValue(raw[i] ?? '', raw[i + 1] ?? '');
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function checkValue(field: string, value: string): GatewayError | undefined {
  if (!ASCII_VALUE.test(value) && (isAsciiOnly(field.toLowerCase()) || !FIELD_VALUE.test(value)))
    return invalid(`The header ${field.slice(0, MAX_NAME)} has a character that is not allowed.`);
  if (field.length === HOST_LENGTH && field.toLowerCase() === 'host' && !HOST.test(value))
    return invalid('The Host header is malformed.');
  return undefined;
}

/** @returns what is wrong with a field name; undefined if it is valid */
function checkName(field: string): string | undefined {
  if (PLAIN_NAME.test(field)) return undefined;
  if (!TOKEN.test(field)) return 'The name of a header field is not allowed.';
  const name = field.toLowerCase().replaceAll(/[^a-z0-9]/g, '-');
  return READ.has(name) ? `The header ${field} could be taken for ${name}.` : undefined;
}

function invalid(message: string): GatewayError {
  return new GatewayError('invalid_http', message);
}

/** @param code error code of llhttp or of Node's server */
export function edgeRejectionFor(code: string | undefined): GatewayError {
  if (code === 'HPE_HEADER_OVERFLOW') return new GatewayError('headers_too_large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new GatewayError('request_timeout');
  return new GatewayError('invalid_http');
}

/** Not for cookies: those of other applications on the domain may contain any bytes, and browsers send them all. */
function isAsciiOnly(name: string): boolean {
  return READ.has(name) && name !== 'cookie';
}
