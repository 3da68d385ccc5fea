// Names of header fields: what may be one, and which belong to one connection and end there (RFC 9110, 7.6.1). Which others may
// pass is said where they do.

/** What the name of a field may be: RFC 9110, 5.6.2. */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/**
 * The fields that `connection` names, in lower case: they are for the next hop alone, whatever they are called.
 * Undefined where it names none but the usual two.
 */
export function connectionNames(headers: Headers): ReadonlySet<string> | undefined {
  const value = headers['connection'];
  if (value === undefined || value === 'keep-alive' || value === 'close') return undefined;
  const names = (typeof value === 'string' ? value : value.join(',')).split(',');
  return new Set(names.map((name) => name.trim().toLowerCase()));
}
