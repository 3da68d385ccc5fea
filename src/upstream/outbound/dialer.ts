// Opens connections to others: directly, or through the tunnel of an HTTP proxy (tunnel.ts), with the TLS settings of the
// configuration.
import { type LookupFunction, type OnReadOpts, Socket } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import type { buildConnector } from 'undici';
import createConnector from 'undici/lib/core/connect.js';
import type { OutboundRules, TlsConfig } from '../../config/schema/outbound-schema.ts';
import { proxyFor } from '../../config/source/outbound-rules.ts';
import type { Connect } from './connect.ts';
import { Tunnel } from './tunnel.ts';

/** TLS options of a connection. Empty: the defaults of Node.js. */
export interface TlsSettings {
  readonly secureContext?: SecureContext;
  readonly servername?: string;
}

/** How connections to one origin are made. */
export interface Egress {
  readonly proxy?: { readonly url: URL; readonly tls: TlsSettings };
  readonly tls: TlsSettings;
}

/** The egress to an origin; undefined where nothing is configured for it. @param tls of the target */
export function createEgress(
  rules: OutboundRules | undefined,
  url: URL,
  tls: TlsConfig | undefined,
): Egress | undefined {
  const proxy = proxyFor(rules, url);
  if (proxy === undefined && (tls === undefined || url.protocol !== 'https:')) return undefined;
  // The `server_name` is for upstreams only.
  const { server_name: _, ...toProxy } = rules?.tls ?? {};
  return {
    ...(proxy === undefined ? {} : { proxy: { url: proxy, tls: settingsOf(toProxy) } }),
    tls: settingsOf(tls ?? {}),
  };
}

function settingsOf({ ca, cert, key, server_name }: TlsConfig): TlsSettings {
  const hasContext = ca !== undefined || cert !== undefined;
  return {
    ...(hasContext ? { secureContext: createSecureContext({ ca, cert, key }) } : {}),
    ...(server_name === undefined ? {} : { servername: server_name }),
  };
}

export interface DialOptions {
  /** Milliseconds for name resolution, proxy and TLS together. */
  readonly timeoutMs: number;
  readonly lookup?: LookupFunction | undefined;
  /** As for `net.connect`: the bytes go to this callback, without a stream. */
  readonly onread?: OnReadOpts;
}

/**
 * TCP keep-alive: detects a dead host during a long wait for a response. Node then probes each second and gives up after ten
 * probes, 20 s in total.
 */
export const TCP_KEEP_ALIVE_MS = 10_000;

const COMMON = {
  autoSelectFamily: true,
  keepAlive: true,
  keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
  allowH2: false,
} as const;

export function createConnect(egress: Egress | undefined, options: DialOptions): Connect {
  const { timeoutMs, lookup, onread } = options;
  const toHost = { ...COMMON, ...(lookup === undefined ? {} : { lookup }) };
  if (egress?.proxy === undefined) {
    return connectBy({
      ...toHost,
      timeout: timeoutMs,
      ...egress?.tls,
      ...(onread === undefined ? {} : { onread }),
    });
  }
  const { url, tls } = egress.proxy;
  const steps = {
    proxy: url,
    // The tunnel has one deadline for all steps.
    dial: connectBy({ ...toHost, timeout: 0, ...tls }),
    secure: connectBy({ ...COMMON, timeout: 0, ...egress.tls }),
    timeoutMs,
  };
  return (target, callback) =>
    new Tunnel(steps, target, (outcome) => {
      if (outcome instanceof Socket && onread !== undefined) readInto(outcome, onread);
      callback(outcome);
    });
}

function connectBy(options: buildConnector.BuildOptions): Connect {
  const connector = createConnector(options);
  return (target, callback) => {
    const made: unknown = connector(target, (error, socket) => {
      // On failure undici omits the second argument, despite its types.
      callback(
        socket instanceof Socket ? socket : (error ?? new Error('connecting failed without an error')),
      );
    });
    return made instanceof Socket ? made : { destroy: () => undefined };
  };
}

/** A socket on top of another one cannot read into a given buffer, so its stream is read for the callback. */
function readInto(socket: Socket, { callback }: OnReadOpts): void {
  socket.on('data', (bytes: Buffer) => callback.call(socket, bytes.length, bytes));
  socket.resume();
}
