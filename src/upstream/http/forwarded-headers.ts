// Headers of clients that are forwarded to one upstream: a fixed allow-list and the names of the configuration.
import type { Protocol } from '../../config/schema/endpoint-names.ts';
import { forwardFault } from '../../config/schema/upstream-schema.ts';
import { connectionNames } from './header-names.ts';

/** Upstreams of each API need these, and they carry no credential or address. */
export const ALWAYS_FORWARDED: Readonly<Record<Protocol, readonly string[]>> = {
  openai: ['openai-beta', 'x-client-request-id'],
  anthropic: ['anthropic-version', 'anthropic-beta', 'x-client-request-id'],
};
/** Passed on unchanged where this process does not trace; otherwise replaced by its own span. */
export const FORWARDED_TRACE = ['traceparent', 'tracestate'] as const;
/** The gateway's keys. */
const KEY = /[0-9a-f]{32}/g;
const PLAIN_NAME = /^[a-z0-9-]+$/;

export type ClientHeaders = Readonly<Record<string, string | string[] | undefined>>;

export class ForwardedHeaders {
  /** As configured, for reports. */
  readonly configured: readonly string[];
  readonly #names: readonly string[];
  /** Beginnings of names, without the `*`. */
  readonly #prefixes: readonly string[];
  /** The upstream's own headers, which clients cannot replace. */
  readonly #own: ReadonlySet<string>;
  readonly #always: readonly string[];

  /**
   * @param configured names in lower case; a `*` at the end stands for any rest
   * @param own headers that the configuration sets
   */
  constructor(configured: readonly string[] = [], own: Iterable<string> = [], protocol: Protocol = 'openai') {
    this.configured = configured;
    this.#always = ALWAYS_FORWARDED[protocol];
    this.#own = new Set(Array.from(own, (name) => name.toLowerCase()));
    this.#names = configured.filter((name) => !name.endsWith('*'));
    this.#prefixes = configured.flatMap((name) => (name.endsWith('*') ? [name.slice(0, -1)] : []));
  }

  /** Whether the configuration names this header. @param name in lower case */
  includes(name: string): boolean {
    return this.#names.includes(name) || this.#matches(name);
  }

  /**
   * Copies the forwarded headers of a client, except hop-by-hop ones and those that hold its key.
   * @param keepsTrace whether the trace context of the client is forwarded too
   */
  copy(client: ClientHeaders, to: Record<string, string>, keepsTrace = false): void {
    const hopByHop = connectionNames(client);
    const copy = (name: string, isConfigured: boolean): void => {
      const value = client[name];
      if (typeof value !== 'string' || hopByHop?.has(name) === true) return;
      if (!isConfigured || !(this.#own.has(name) || holdsKeyOf(client, value))) to[name] = value;
    };
    for (const name of this.#always) copy(name, false);
    if (keepsTrace) for (const name of FORWARDED_TRACE) copy(name, false);
    for (const name of this.#names) copy(name, true);
    if (this.#prefixes.length === 0) return;
    for (const name in client) if (this.#matches(name)) copy(name, true);
  }

  #matches(name: string): boolean {
    return (
      this.#prefixes.some((prefix) => name.startsWith(prefix)) &&
      PLAIN_NAME.test(name) &&
      forwardFault(name) === undefined
    );
  }
}

/** Whether a value contains the key that the client authenticates with, in a header or as a subprotocol of a session. */
function holdsKeyOf(client: ClientHeaders, value: string): boolean {
  const given = ['authorization', 'x-api-key', 'api-key', 'sec-websocket-protocol']
    .map((name) => client[name])
    .join();
  return given.match(KEY)?.some((key) => value.includes(key)) === true;
}
