// Header field names: their syntax, and the hop-by-hop fields that `connection` names (RFC 9110, 7.6.1). The senders hold the
// allow-lists of end-to-end fields.

/** Syntax of a field name: RFC 9110, 5.6.2. */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

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
