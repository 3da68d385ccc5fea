// Reports changes of the states of upstreams: one log line each, and an event in the store. Both are limited for each upstream, because
// an upstream that flaps, or one with many models, would flood them.
import { hostname } from 'node:os';
import type { UpstreamEvent, UpstreamStore } from '../../store/upstream-record.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import type { Logger } from '../../telemetry/log/logger.ts';

/** Reports of an upstream at once, and time after which one more is allowed. */
const BURST = 20;
const REFILL_MS = 3000;
/** Events that wait for the store. Beyond it the oldest are dropped; the log has them. */
const MAX_WAITING = 256;
const FLUSH_MS = 1000;

/** Text of the log line, and whether it needs the operator's attention. */
const CHANGES = {
  'breaker open': { isBad: true, text: 'circuit breaker opened; requests go to other targets' },
  'breaker half_open': { isBad: false, text: 'circuit breaker half open' },
  'breaker closed': { isBad: false, text: 'circuit breaker closed; the target gets requests again' },
  cooling_down: {
    isBad: true,
    text: 'target in a cool-down, because it is rate limited or asked for a wait',
  },
  cooled_down: { isBad: false, text: 'cool-down of a target is over' },
  unhealthy: { isBad: true, text: 'health check of an upstream fails; its targets are tried last' },
  disabled: { isBad: false, text: 'upstream disabled; it gets no new requests' },
  enabled: { isBad: false, text: 'upstream enabled; it gets requests again' },
  healthy: { isBad: false, text: 'health check of an upstream succeeds again' },
} as const;

interface StateChange {
  readonly upstream: string;
  /** Undefined for the upstream as a whole. */
  readonly model?: string;
  readonly what: keyof typeof CHANGES;
  /** For people; it quotes nothing that a client sent. */
  readonly reason: string;
  /** Duration of a cool-down, in milliseconds. */
  readonly ms?: number;
}

interface StateLogOptions {
  readonly store: Pick<UpstreamStore, 'addEvents'>;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

interface Budget {
  left: number;
  at: number;
  suppressed: number;
}

export class StateLog {
  readonly #options: StateLogOptions;
  readonly #now: () => number;
  readonly #replica = `${hostname()}:${process.pid}`;
  /** By upstream: names of the configuration only. */
  readonly #budgets = new Map<string, Budget>();
  #waiting: Omit<UpstreamEvent, 'id'>[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StateLogOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  report({ upstream, model, what, reason, ms }: StateChange): void {
    const suppressed = this.#take(upstream);
    if (suppressed === undefined) return;
    const { isBad, text } = CHANGES[what];
    const shown = model === undefined ? undefined : maskKeys(model);
    const about = {
      upstream,
      ...(shown !== undefined && { model: shown }),
      reason,
      ...(ms !== undefined && { for_ms: Math.ceil(ms) }),
      ...(suppressed > 0 && { suppressed }),
    };
    this.#options.logger[isBad ? 'warn' : 'info'](about, text);
    const at = new Date().toISOString();
    this.#waiting.push({
      at,
      upstream,
      model: shown ?? null,
      what,
      reason,
      replica: this.#replica,
      actor: null,
    });
    if (this.#waiting.length > MAX_WAITING) this.#waiting.shift();
    this.#timer ??= setTimeout(() => void this.#flush(), FLUSH_MS).unref();
  }

  /** Writes what waits. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#flush();
  }

  /** @returns the number of reports suppressed since the last one; undefined if this one is */
  #take(upstream: string): number | undefined {
    const now = this.#now();
    const before = this.#budgets.get(upstream) ?? { left: BURST, at: now, suppressed: 0 };
    const left = Math.min(BURST, before.left + (now - before.at) / REFILL_MS);
    const isAllowed = left >= 1;
    this.#budgets.set(upstream, {
      left: isAllowed ? left - 1 : left,
      at: now,
      suppressed: isAllowed ? 0 : before.suppressed + 1,
    });
    return isAllowed ? before.suppressed : undefined;
  }

  async #flush(): Promise<void> {
    this.#timer = undefined;
    const events = this.#waiting.splice(0);
    if (events.length === 0) return;
    try {
      await this.#options.store.addEvents(events);
    } catch {
      // The store is away. They are written with the next change.
      this.#waiting = [...events, ...this.#waiting].slice(-MAX_WAITING);
    }
  }
}
