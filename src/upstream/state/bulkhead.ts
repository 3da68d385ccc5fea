// The requests in flight of one upstream: their limit, and what metrics say about them.
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { ByLabel } from '../../telemetry/metrics/metric-children.ts';

export class Bulkhead {
  /** Shared by all upstreams of this name: after a reload the old one may still have requests in flight. */
  readonly #gauge: { readonly value: number | undefined; add(by: number): void };
  /** Result → its counter, so that labels are looked up once. */
  readonly #outcomes: ByLabel<{ inc(): void }>;
  readonly #durations: Readonly<Record<'ok' | 'failed', { observe(seconds: number): void }>>;
  #inFlight = 0;

  /** @param upstream its name */
  constructor(upstream: string, metrics: Metrics) {
    this.#outcomes = new ByLabel((outcome) => metrics.upstreamAttempts.child({ upstream, outcome }));
    this.#gauge = metrics.upstreamInFlight.child({ upstream });
    metrics.addUpstream(upstream);
    this.#gauge.add(0);
    this.#durations = {
      ok: metrics.upstreamSeconds.child({ upstream, result: 'ok' }),
      failed: metrics.upstreamSeconds.child({ upstream, result: 'failed' }),
    };
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Of all upstreams of this name, as in the metrics. */
  get inFlightOfName(): number {
    return this.#gauge.value ?? 0;
  }

  /**
   * Takes a slot; `release` frees it, once.
   * @param limit of requests in flight
   * @throws GatewayError upstream_busy if all are taken
   */
  acquire(limit: number): void {
    if (this.#inFlight >= limit) throw new GatewayError('upstream_busy');
    this.#inFlight += 1;
    this.#gauge.add(1);
  }

  /**
   * Frees the slot.
   * @param outcome result of the request: `ok` or a code of the error table
   * @param ms since it was sent, in milliseconds; undefined if it was not sent
   */
  release(outcome: string, ms?: number): void {
    if (ms !== undefined) this.#durations[outcome === 'ok' ? 'ok' : 'failed'].observe(ms / 1000);
    this.#inFlight -= 1;
    this.#gauge.add(-1);
    this.#outcomes.of(outcome).inc();
  }
}
