// Host header checks against DNS rebinding: a foreign page can point its own name at the gateway and become same-origin with it, but not
// with an address or a name that public DNS cannot have.
import { isIP } from 'node:net';
import { isLoopback } from '../config/schema/addresses.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from './exchange/exchange.ts';

/** Addresses to bind to that no client connects to (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2). */
const UNSPECIFIED = new Set(['0.0.0.0', '[::]']);
/** Top-level domains that cannot be registered (RFC 6761, RFC 6762, RFC 8375, ICANN), and Kubernetes service names. */
const PRIVATE = /\.(?:localhost|local|internal|test|svc|home\.arpa)$/;

/** @returns undefined if the header is not a host */
function hostOf(header: string, scheme = 'http:'): URL | undefined {
  const text = `${scheme}//${header.replace(/\.(?=:\d*$|$)/, '')}`;
  return URL.canParse(text) ? new URL(text) : undefined;
}

function isAddress({ hostname }: URL): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) !== 0;
}

/** Whether the host of a URL is an unspecified address, which no client can use. */
export function isUnspecified({ hostname }: URL): boolean {
  return UNSPECIFIED.has(hostname);
}

/**
 * Pages are served under the host and port of `public_url`, and under addresses, which a proxy may put into Host. Loopback names are
 * accepted with any port if the gateway is local, because a forwarded port differs.
 *
 * @param publicUrl URL under which the pages are published
 * @param listenHost host that the listener binds to
 * @throws GatewayError unknown_host
 */
export function requireOwnHost(exchange: Exchange, publicUrl: string, listenHost: string): void {
  if (isOwnHost(exchange, publicUrl, listenHost)) return;
  const own = new URL(publicUrl);
  // The message must not reveal an internal name.
  const isPublic = !isUnspecified(own) && !isLoopback(own);
  const advice = isPublic
    ? `Open it at ${publicUrl}.`
    : 'Open it by an address, or have the operator set public_url.';
  throw new GatewayError('unknown_host', `This page is not published under this name. ${advice}`);
}

/** Whether `requireOwnHost` accepts the host of a request. */
export function isOwnHost({ request }: Exchange, publicUrl: string, listenHost: string): boolean {
  const own = new URL(publicUrl);
  const host = hostOf(request.headers.host ?? '', own.protocol);
  if (host === undefined) return false;
  if (host.host === hostOf(own.host, own.protocol)?.host) return true;
  const listens = hostOf(isIP(listenHost) === 6 ? `[${listenHost}]` : listenHost);
  const isLocal = isLoopback(own) || isUnspecified(own) || (listens !== undefined && isLoopback(listens));
  return isAddress(host) || (isLocal && isLoopback(host));
}

/**
 * Whether an origin other than the published one is the gateway's own: it equals the Host header and is an address or a loopback
 * name. Any other name may be a foreign one for the gateway's address.
 */
export function isLocalOrigin(origin: string, host: string | undefined): boolean {
  if (!URL.canParse(origin)) return false;
  const url = new URL(origin);
  const isSame = origin === `http://${host}` || origin === `https://${host}`;
  return isSame && (isAddress(url) || isLoopback(url));
}

/**
 * @param names besides addresses and names outside public DNS; `*` for all
 * @returns whether the admin listener accepts a Host header; browsers always send one
 */
export function adminHostCheck(names: readonly string[]): (header: string | undefined) => boolean {
  const accepted = new Set(names.map((name) => name.toLowerCase().replace(/\.$/, '')));
  return (header) => {
    if (header === undefined || accepted.has('*')) return true;
    const url = hostOf(header);
    if (url === undefined) return false;
    const { hostname } = url;
    const isPrivate = isAddress(url) || !hostname.includes('.') || PRIVATE.test(hostname);
    return isPrivate || accepted.has(hostname);
  };
}
