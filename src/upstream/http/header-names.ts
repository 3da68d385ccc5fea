// Header field names: their syntax, the hop-by-hop fields that `connection` names (RFC 9110, 7.6.1), and those in which vendors send the
// id of a request. The senders hold the allow-lists of end-to-end fields.

/** Syntax of a field name: RFC 9110, 5.6.2. */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** The first of them that a response has counts. */
const REQUEST_ID_HEADERS = [
  'x-request-id',
  'request-id',
  'x-amzn-requestid',
  'apim-request-id',
  'mistral-correlation-id',
  'x-generation-id',
  'x-ds-trace-id',
] as const;

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/**
 * The hop-by-hop fields that `connection` names, in lower case; they must not be forwarded.
 * Undefined if it names none besides `keep-alive` or `close`.
 */
export function connectionNames(headers: Headers): ReadonlySet<string> | undefined {
  const value = headers['connection'];
  if (value === undefined || value === 'keep-alive' || value === 'close') return undefined;
  const names = (typeof value === 'string' ? value : value.join(',')).split(',');
  return new Set(names.map((name) => name.trim().toLowerCase()));
}

/** The vendor's id of the request in its response headers, of any length. */
export function requestIdOf(headers: Headers): string | undefined {
  const name = REQUEST_ID_HEADERS.find((each) => headers[each] !== undefined);
  const id = name === undefined ? undefined : headers[name];
  return typeof id === 'string' ? id : undefined;
}
