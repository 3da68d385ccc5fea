// What calls through http-proxy-3 have in common: realtime sessions and passthrough calls. The gateway builds their requests, so that
// no other header of the client is forwarded.
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Upstream } from './upstream.ts';

/** A request for http-proxy-3, which only needs its shape: the socket is never used. */
export function proxiedRequest(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
): IncomingMessage {
  const request = new IncomingMessage(new Socket());
  request.method = method;
  request.url = path;
  request.httpVersion = '1.1';
  request.httpVersionMajor = 1;
  request.httpVersionMinor = 1;
  request.headers = { ...headers };
  return request;
}

/** @param connectTimeout in milliseconds */
export function proxyOptions(baseUrl: string, connectTimeout: number) {
  return {
    target: new URL(baseUrl).origin,
    changeOrigin: true,
    prependPath: false,
    // Keep the path unchanged instead of parsing and rebuilding it.
    toProxy: true,
    connectTimeout,
  };
}

/**
 * Calls `ask` with a valid credential, and once more with a new token if the upstream rejects the current one.
 * @throws GatewayError upstream_auth_error, or the stop reason of the exchange; what `ask` throws
 */
export async function askAuthorized<T>(
  upstream: Upstream,
  exchange: Exchange,
  ask: () => Promise<T>,
  isTokenRejected: (result: T) => boolean,
): Promise<T> {
  const pending = upstream.authorize();
  if (pending !== undefined) await exchange.orStopped(pending);
  const { token } = upstream;
  const result = await ask();
  if (token === undefined || !isTokenRejected(result) || !(await upstream.replaceToken(token))) return result;
  return exchange.stopReason === undefined ? ask() : result;
}
