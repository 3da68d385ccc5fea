// The upstreams that operators have drained. The store has them; a process polls it, and at once when a message announces a change.
// While the store is away, the last known drains stay in force.
import { Repeat } from '../../repeat.ts';
import { singleFlight } from '../../single-flight.ts';
import type { UpstreamDrain, UpstreamStore } from '../../store/upstream-record.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { UpstreamState } from './upstream-state.ts';

const INTERVAL_MS = 1000;

/** Messages of the fleet: read the drains again; and report the states of your upstreams. */
export const DRAINS_CHANGED = '{"upstreams":"drains"}';
export const REPORT_STATES = '{"upstreams":"states"}';

interface DrainsOptions {
  readonly store: Pick<UpstreamStore, 'drains' | 'expire'>;
  readonly logger: Pick<Logger, 'info'>;
  /** Pause between two polls in milliseconds, for tests. */
  readonly intervalMs?: number;
}

export class Drains {
  readonly #options: DrainsOptions;
  #drains: ReadonlyMap<string, UpstreamDrain> = new Map();
  readonly #poll = singleFlight(() => this.#read());
  readonly #polls: Repeat;

  constructor(options: DrainsOptions) {
    this.#options = options;
    const { intervalMs = INTERVAL_MS } = options;
    this.#polls = new Repeat(() =>
      this.#poll()
        .catch(() => undefined)
        .then(() => intervalMs),
    );
  }

  /** The drain of an upstream that is in force now. */
  of(upstream: string): UpstreamDrain | undefined {
    const drain = this.#drains.get(upstream);
    return drain === undefined || isOver(drain) ? undefined : drain;
  }

  /** Reads the drains and begins to poll. @throws GatewayError `store_unavailable` */
  async start(): Promise<void> {
    await this.#read();
    this.#polls.start(this.#options.intervalMs ?? INTERVAL_MS);
  }

  /** Reads what the store has now; resolves when it is in force. @throws GatewayError `store_unavailable` */
  async refresh(): Promise<void> {
    // A poll under way may have read before the change.
    await this.#poll.running()?.catch(() => undefined);
    await this.#poll();
  }

  /** Resolves when a poll under way has ended. */
  async stop(): Promise<void> {
    await this.#polls.stop();
    await this.#poll.running()?.catch(() => undefined);
  }

  async #read(): Promise<void> {
    const { store, logger } = this.#options;
    const before = this.#drains;
    // Without an answer the time of a known drain ends nevertheless.
    for (const drain of before.values()) if (isOver(drain)) this.#end(drain);
    const known = this.#drains;
    const rows = await store.drains();
    const over = rows.filter(isOver);
    this.#drains = new Map(rows.filter((row) => !isOver(row)).map((row) => [row.upstream, row]));
    for (const drain of this.#drains.values()) {
      const { upstream, actor: by, at, until, reason } = drain;
      if (known.get(upstream)?.at !== at)
        logger.info({ upstream, by, at, until, reason }, 'upstream drained; it gets no new requests');
    }
    for (const upstream of known.keys())
      if (!this.#drains.has(upstream)) logger.info({ upstream }, 'upstream resumed; it gets requests again');
    await Promise.all(over.map((drain) => store.expire(drain)));
  }

  #end({ upstream, until }: UpstreamDrain): void {
    this.#drains = new Map([...this.#drains].filter(([name]) => name !== upstream));
    const text = 'upstream resumed, because the time of its drain is over; it gets requests again';
    this.#options.logger.info({ upstream, until }, text);
  }
}

/** A drain as it is shown. */
export function shownDrain({ actor: by, at, until, reason }: UpstreamDrain): UpstreamState['drained'] {
  return { by, at, until, reason };
}

/** Whether its time is over. */
export function isOver({ until }: UpstreamDrain): boolean {
  return until !== null && Date.parse(until) <= Date.now();
}
