// Connections of HTTP libraries to others: agents and dispatchers that obey the rules in force, also after a reload.
import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { isIP, Socket } from 'node:net';
import type { Agent as Dispatcher } from 'undici';
import type { OutboundRules, TlsConfig } from '../../config/schema/outbound-schema.ts';
import { createConnect, createEgress, type Egress } from './dialer.ts';

/**
 * Loads the HTTP client of webhooks and token endpoints, which most gateways do without, and its parser, which it would load at the
 * first connection: an upgrade in place may have replaced the file by then.
 */
export async function loadHttpClient(): Promise<typeof import('undici')> {
  const [client] = await Promise.all([import('undici'), import('undici/lib/llhttp/llhttp_simd-wasm.js')]);
  return client;
}

/** Milliseconds for one connection of a library. */
const TIMEOUT_MS = 5_000;

export class Outbound {
  #rules: OutboundRules | undefined;
  /** By origin. Secure contexts are costly. */
  #egresses = new Map<string, Egress | undefined>();

  /** @param rules default: all connections are direct */
  constructor(rules?: OutboundRules) {
    this.#rules = rules;
  }

  /** From now on new connections obey these. */
  replace(rules: OutboundRules | undefined): void {
    this.#rules = rules;
    this.#egresses = new Map();
  }

  /** An agent for `node:http` or `node:https`. @param tls in place of the rules' */
  agent(isTls: boolean, options: AgentOptions = {}, tls?: TlsConfig): HttpAgent {
    const egressTo = (url: URL) =>
      tls === undefined ? this.#egressTo(url) : createEgress(this.#rules, url, tls);
    return createAgent(isTls, egressTo, TIMEOUT_MS, options);
  }

  /** A dispatcher for one `fetch`; undefined where that connects directly. Destroy it afterwards. */
  async dispatcherFor(url: URL): Promise<Dispatcher | undefined> {
    const egress = this.#egressTo(url);
    if (egress === undefined) return undefined;
    const connect = createConnect(egress, { timeoutMs: TIMEOUT_MS });
    const { Agent } = await loadHttpClient();
    return new Agent({
      connect: (target, callback) =>
        connect({ ...target, hostname: target.hostname.replace(/^\[|\]$/g, '') }, (outcome) =>
          outcome instanceof Error ? callback(outcome, null) : callback(null, outcome),
        ),
    });
  }

  #egressTo(url: URL): Egress | undefined {
    if (this.#rules === undefined) return undefined;
    const { origin } = url;
    if (!this.#egresses.has(origin)) {
      const { server_name: _, ...tls } = this.#rules.tls ?? {};
      const isTls = Object.keys(tls).length > 0;
      this.#egresses.set(origin, createEgress(this.#rules, url, isTls ? tls : undefined));
    }
    return this.#egresses.get(origin);
  }
}

/** An agent whose connections take the egress to their target. @param egressTo undefined for a plain connection */
export function createAgent(
  isTls: boolean,
  egressTo: (url: URL) => Egress | undefined,
  timeoutMs: number,
  options: AgentOptions = {},
): HttpAgent {
  const agent = isTls ? new HttpsAgent(options) : new HttpAgent(options);
  const direct = agent.createConnection.bind(agent);
  agent.createConnection = (wanted, callback) => {
    const hostname = ('host' in wanted && wanted.host) || 'localhost';
    const port = String(('port' in wanted && wanted.port) || (isTls ? 443 : 80));
    const host = `${isIP(hostname) === 6 ? `[${hostname}]` : hostname}:${port}`;
    const protocol = isTls ? 'https:' : 'http:';
    const egress = egressTo(new URL(`${protocol}//${host}`));
    if (egress === undefined) return direct(wanted, callback);
    createConnect(egress, { timeoutMs })({ protocol, hostname, host, port }, (outcome) =>
      outcome instanceof Error ? callback?.(outcome, new Socket()) : callback?.(null, outcome),
    );
    return undefined;
  };
  return agent;
}
