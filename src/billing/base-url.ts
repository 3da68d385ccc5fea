// The URLs of the gateway that pages show.
import { TLSSocket } from 'node:tls';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { isUnspecified } from '../http/own-host.ts';

/** @returns the base URL for SDKs, `…/v1`; from the host of this request when `public_url` names no host */
export function baseUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  const isNamed = !isUnspecified(new URL(public_url));
  return `${isNamed || host === undefined ? public_url : `${schemeOf(exchange)}://${host}`}/v1`;
}

/** The root of the gateway under the host of this request, for development on this machine. */
export function rootUrl(exchange: Exchange, { public_url }: DynamicConfig): string {
  const { host } = exchange.request.headers;
  return host === undefined
    ? public_url
    : `${schemeOf(exchange)}://${host}${new URL(public_url).pathname.replace(/\/+$/, '')}`;
}

function schemeOf({ request }: Exchange): 'http' | 'https' {
  return request.socket instanceof TLSSocket ? 'https' : 'http';
}
