// How connections of one upstream leave: proxy, TLS settings, and the same for libraries that make requests for it.
import type { Agent } from 'node:http';
import type { UpstreamConfig } from '../../config/schema/config-schema.ts';
import { createEgress, type Egress } from './dialer.ts';
import { createAgent, Outbound } from './outbound.ts';

export class UpstreamEgress {
  /** For requests to other hosts than that of `base_url`, such as a token endpoint. */
  readonly outbound: Outbound;
  #egress: Egress | undefined;
  #agent: Agent | undefined;

  constructor(config: UpstreamConfig) {
    this.outbound = new Outbound();
    this.replace(config);
  }

  /** New connections take the proxy and the certificates of this configuration of the same upstream. */
  replace(config: UpstreamConfig): void {
    if (config.kind === 'builtin') return;
    const url = new URL(config.base_url);
    this.#egress = createEgress(config.outbound, url, config.tls);
    this.outbound.replace(config.outbound);
    if (this.#egress === undefined) return;
    this.#agent ??= createAgent(url.protocol === 'https:', () => this.#egress, config.timeouts.connect);
  }

  /** To `base_url`; undefined: directly, with the defaults of Node.js. */
  readonly current = (): Egress | undefined => this.#egress;

  /** For requests of a library to `base_url`; undefined where it connects as Node.js does. */
  get agent(): Agent | undefined {
    return this.#egress === undefined ? undefined : this.#agent;
  }
}
