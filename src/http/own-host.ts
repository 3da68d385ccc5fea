// Which names in a Host header are the gateway's own. A page of somebody else's can give its own name the gateway's address (DNS
// rebinding), and is then of one origin with it; it cannot do that with an address, nor with a name that no public DNS has.
import { isIP } from 'node:net';
import { isLoopback } from '../config/schema/addresses.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from './exchange/exchange.ts';

/** Hosts that a listener may bind to and that no client can connect to by that name (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2). */
const UNSPECIFIED = new Set(['0.0.0.0', '[::]']);
/** Top-level domains that cannot be registered (RFC 6761, RFC 6762, RFC 8375, ICANN), and what Kubernetes calls services by. */
const PRIVATE = /\.(?:localhost|local|internal|test|svc|home\.arpa)$/;

/** @returns undefined for what names no host */
function hostOf(header: string, scheme = 'http:'): URL | undefined {
  const text = `${scheme}//${header.replace(/\.(?=:\d*$|$)/, '')}`;
  return URL.canParse(text) ? new URL(text) : undefined;
}

function isAddress({ hostname }: URL): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) !== 0;
}

/** Whether a URL names no host by which the gateway could be reached. */
export function isUnspecified({ hostname }: URL): boolean {
  return UNSPECIFIED.has(hostname);
}

/**
 * Pages are for the host and the port of `public_url`, and for addresses: a proxy may put the gateway's into Host. Loopback names are
 * as good, with any port, where the gateway is for this machine: a forwarded port is another one.
 *
 * @param publicUrl where the pages are published
 * @param listenHost what the listener binds to
 * @throws GatewayError unknown_host
 */
export function requireOwnHost({ request }: Exchange, publicUrl: string, listenHost: string): void {
  const own = new URL(publicUrl);
  const host = hostOf(request.headers.host ?? '', own.protocol);
  if (host !== undefined) {
    if (host.host === hostOf(own.host, own.protocol)?.host) return;
    const listens = hostOf(isIP(listenHost) === 6 ? `[${listenHost}]` : listenHost);
    const isLocal = isLoopback(own) || isUnspecified(own) || (listens !== undefined && isLoopback(listens));
    if (isAddress(host) || (isLocal && isLoopback(host))) return;
  }
  // A name that is the operator's own business is in no message.
  const isNamed = !isUnspecified(own) && !isLoopback(own);
  const way = isNamed
    ? `Open it at ${publicUrl}.`
    : 'Open it by an address, or have the operator set public_url.';
  throw new GatewayError('unknown_host', `This page is not published under this name. ${way}`);
}

/**
 * Whether an origin other than the published one is the gateway's own: the same as in the Host header, and an address or a loopback
 * name. Any other name could be somebody else's for the gateway's address.
 */
export function isLocalOrigin(origin: string, host: string | undefined): boolean {
  if (!URL.canParse(origin)) return false;
  const url = new URL(origin);
  const isSame = origin === `http://${host}` || origin === `https://${host}`;
  return isSame && (isAddress(url) || isLoopback(url));
}

/** The names by which the admin listener may be asked. */
export class AdminHosts {
  readonly #names: ReadonlySet<string>;

  /** @param names beyond addresses and names that no public DNS has; `*` for all */
  constructor(names: readonly string[]) {
    this.#names = new Set(names.map((name) => name.toLowerCase().replace(/\.$/, '')));
  }

  /** @param header the Host header; without one, no browser asks */
  accepts(header: string | undefined): boolean {
    if (header === undefined || this.#names.has('*')) return true;
    const url = hostOf(header);
    if (url === undefined) return false;
    const { hostname } = url;
    const isPrivate = isAddress(url) || !hostname.includes('.') || PRIVATE.test(hostname);
    return isPrivate || this.#names.has(hostname);
  }
}
