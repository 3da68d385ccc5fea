// Request targets in absolute form, `POST http://gateway/v1/… HTTP/1.1`, which clients of proxies send (RFC 9112, 3.2.2). They become
// origin form before anything reads the target, so that every check sees one form.
import type { IncomingMessage } from 'node:http';

const SLASH = 0x2f;
/** RFC 9110, 7.2, restricted to characters of host names; IPv6 in brackets. */
export const HOST = /^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;
/** A DNS name with a port: `http/accept` reads an authority of no other length. */
const MAX_AUTHORITY = 261;
/** `http://` or `https://` and an authority, for expressions that read a request line before it is parsed. */
export const ORIGIN = `(?:[hH][tT]{2}[pP][sS]?://[^/?# ]{1,${MAX_AUTHORITY}})?`;
const ABSOLUTE = /^https?:\/\/([^/?#]+)(.*)$/i;

/**
 * Changes a target in absolute form, and Host to its authority. Any other target and a malformed Host stay, for `checkEdge` to reject.
 * @returns the target
 */
export function toOriginForm(request: IncomingMessage): string {
  const { url = '' } = request;
  if (url.charCodeAt(0) === SLASH) return url;
  const { headers, rawHeaders } = request;
  const [, authority = '', rest = ''] = ABSOLUTE.exec(url) ?? [];
  if (!HOST.test(authority) || authority.length > MAX_AUTHORITY) return url;
  const hosts = rawHeaders.flatMap((name, at) =>
    at % 2 === 0 && name.toLowerCase() === 'host' ? [at + 1] : [],
  );
  if (!hosts.every((at) => HOST.test(rawHeaders[at] ?? ''))) return url;
  for (const at of hosts) rawHeaders[at] = authority;
  // HTTP/1.0 has no Host; HTTP/1.1 without one is malformed.
  if (hosts.length > 0) headers.host = authority;
  request.url = rest.startsWith('/') ? rest : `/${rest}`;
  return request.url;
}
