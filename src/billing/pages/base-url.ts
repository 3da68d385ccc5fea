// The base URL that pages tell people to put into their SDK.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { isUnspecified } from '../../http/own-host.ts';

/**
 * @returns the root of the API as clients reach it, `…/v1`. Without a `public_url` that names a host, the address by
 *   which this very request came.
 */
export function baseUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  const isNamed = !isUnspecified(new URL(public_url));
  return `${isNamed || host === undefined ? public_url : `http://${host}`}/v1`;
}

/** The root of the gateway under the name by which this very request came, for who develops on this machine. */
export function rootUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  return host === undefined
    ? public_url
    : `http://${host}${new URL(public_url).pathname.replace(/\/+$/, '')}`;
}
