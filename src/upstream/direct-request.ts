// Requests beside the attempts of models: realtime sessions and passthrough calls. Each has a connection of its own, and the gateway
// builds it, so that no other header of the client is forwarded.
import { type ClientRequest, request as httpRequest, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { startDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { TCP_KEEP_ALIVE_MS } from './outbound/dialer.ts';
import type { Upstream } from './upstream.ts';

/**
 * Connects to an upstream, and sends the head as soon as the body begins. Nothing is reported before this returns.
 * @param options method, path and headers; the path is sent unchanged
 * @param connectMs deadline of the connection in milliseconds; when it passes, the request fails with `upstream_timeout`
 * @throws Error for a path or headers that HTTP does not allow
 */
export function directRequest(
  { config, agent }: Upstream,
  options: Pick<RequestOptions, 'method' | 'path' | 'headers'>,
  connectMs: number,
): ClientRequest {
  if (config.kind !== 'http') throw new GatewayError('internal_error', undefined, { cause: 'a builtin' });
  const url = new URL(config.base_url);
  const all = { ...urlToHttpOptions(url), ...options, agent: agent ?? false };
  const request = url.protocol === 'https:' ? httpsRequest(all) : httpRequest(all);
  return request.once('socket', (socket) => {
    socket.setNoDelay(true).setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    // An agent hands over connections that are ready.
    if (!socket.connecting) return;
    const late = new GatewayError('upstream_timeout', undefined, { cause: 'deadline: connect' });
    const stop = startDeadline(connectMs, () => request.destroy(late));
    socket.once('close', stop).once('connect', stop);
  });
}

/**
 * Calls `ask` with a valid credential, and once more with a new token if the upstream rejects the current one.
 * @throws GatewayError upstream_auth_error, or the stop reason of the exchange; what `ask` throws
 */
export async function askAuthorized<T>(
  { credential }: Upstream,
  exchange: Exchange,
  ask: () => Promise<T>,
  isTokenRejected: (result: T) => boolean,
): Promise<T> {
  const pending = credential.ready();
  if (pending !== undefined) await exchange.orStopped(pending);
  const { token } = credential;
  const result = await ask();
  if (token === undefined || !isTokenRejected(result) || !(await credential.replaceToken(token)))
    return result;
  return exchange.stopReason === undefined ? ask() : result;
}
