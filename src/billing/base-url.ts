// The base URL that pages tell people to put into their SDK.
import type { DynamicConfig } from '../config/schema.ts';
import type { Exchange } from '../http/exchange.ts';

/** Hosts that a listener may bind to and that nobody can connect to by that name (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2). */
const UNSPECIFIED = new Set(['0.0.0.0', '[::]']);

/**
 * @returns the root of the API as clients reach it, `…/v1`. Without a `public_url` that names a host, the one by which this
 *   very request came: the edge has checked its form.
 */
export function baseUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  const isNamed = !UNSPECIFIED.has(new URL(public_url).hostname);
  return `${isNamed || host === undefined ? public_url : `http://${host}`}/v1`;
}

/** The root of the gateway under the name by which this very request came, for who develops on this machine. */
export function rootUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  return host === undefined
    ? public_url
    : `http://${host}${new URL(public_url).pathname.replace(/\/+$/, '')}`;
}
