// How connections of one upstream leave: proxy, TLS settings, and the same for libraries that make requests for it. It watches the
// expiry of the client certificate.
import type { Agent } from 'node:http';
import type { UpstreamConfig } from '../../config/schema/config-schema.ts';
import { certificatesIn, EXPIRY_MARGIN_MS } from '../../config/schema/pem.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { createEgress, type Egress } from './dialer.ts';
import { createAgent, Outbound } from './outbound.ts';

/** Minimum interval of warnings about the expiry. */
const WARN_EVERY_MS = 86_400_000;

interface UpstreamEgressOptions {
  readonly upstream: string;
  readonly config: UpstreamConfig;
  readonly metrics: Pick<Metrics, 'upstreamCertificateExpiry'>;
  /** A connection is made with a client certificate that ends soon, or has ended. @param end Unix milliseconds */
  readonly onExpiry: (end: number) => void;
}

export class UpstreamEgress {
  /** For requests to other hosts than that of `base_url`, such as a token endpoint. */
  readonly outbound = new Outbound();
  readonly #options: UpstreamEgressOptions;
  #egress: Egress | undefined;
  #agent: Agent | undefined;
  /** End of the client certificate, in Unix milliseconds. */
  #end: number | undefined;
  #isStarted = false;
  #warnedAt = Number.NEGATIVE_INFINITY;

  constructor(options: UpstreamEgressOptions) {
    this.#options = options;
    this.replace(options.config);
  }

  /** New connections take the proxy and the certificates of this configuration of the same upstream. */
  replace(config: UpstreamConfig): void {
    if (config.kind === 'builtin') return;
    const url = new URL(config.base_url);
    this.#egress = createEgress(config.outbound, url, config.tls);
    this.outbound.replace(config.outbound);
    if (this.#egress === undefined) return;
    this.#agent ??= createAgent(url.protocol === 'https:', this.current, config.timeouts.connect);
    const end = certificatesIn(config.tls?.cert ?? '')[0]?.validToDate.getTime();
    if (end !== this.#end) this.#warnedAt = Number.NEGATIVE_INFINITY;
    this.#end = end;
    this.#showExpiry();
  }

  /** For a connection to `base_url` that is made now; undefined: directly, with the defaults of Node.js. */
  readonly current = (): Egress | undefined => {
    const now = Date.now();
    if (
      this.#end !== undefined &&
      this.#end - now < EXPIRY_MARGIN_MS &&
      now - this.#warnedAt > WARN_EVERY_MS
    ) {
      this.#warnedAt = now;
      this.#options.onExpiry(this.#end);
    }
    return this.#egress;
  };

  /** For requests of a library to `base_url`; undefined where it connects as Node.js does. */
  get agent(): Agent | undefined {
    return this.#egress === undefined ? undefined : this.#agent;
  }

  start(): void {
    this.#isStarted = true;
    this.#showExpiry();
  }

  stop(): void {
    this.#isStarted = false;
    const { upstream, metrics } = this.#options;
    metrics.upstreamCertificateExpiry.remove({ upstream });
  }

  #showExpiry(): void {
    const { upstream, metrics } = this.#options;
    if (!this.#isStarted || this.#end === undefined) return;
    metrics.upstreamCertificateExpiry.set({ upstream }, Math.floor(this.#end / 1000));
  }
}
