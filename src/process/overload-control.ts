// Whether this process takes more work than it can do, and how much of what is new it turns away then. What runs goes on: a
// stream that was begun is worth more than one that would make all of them slow. It measures and decides; who asks is told.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { AcceptQueue } from '../http/accept/accept-queue.ts';
import type { Handler } from '../http/router.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** What the process is like at the moment. */
export interface Load {
  /** Milliseconds by which the event loop was late, on average over the last window. */
  readonly delayMs: number;
  /** Of V8's limit, from 0 to 1. */
  readonly heap: number;
}

type Limits = DynamicConfig['overload'];
type Cause = 'event_loop' | 'heap' | 'accept_queue';

/** So many windows in a row over the limit: one stall (a machine that is busy elsewhere) is no overload. */
const SUSTAINED = 3;
/** The most that is turned away for a slow loop: some are always tried, or nobody would notice that it is over. */
const MOST = 0.95;
/** By these the share grows and shrinks from window to window: it has to be there in a second, and may go slowly. */
const GROWTH = 0.1;
const DECLINE = 0.05;
/** Below this part of the limit it is over; in between things stay as they are. */
const CALM = 0.5;
/** The heap is to fall to this part of its limit before it counts as low again. */
const HEAP_CALM = 0.9;

/** The share of new requests to turn away, from one window to the next. It has no clock and measures nothing. */
export class Shedding {
  #share = 0;
  #windows = 0;
  #isHeapFull = false;
  /** Turned away are those at which this passes one: an even spread, without chance. */
  #sum = 0;

  /** From 0 to 1. */
  get share(): number {
    return this.#isHeapFull ? 1 : this.#share;
  }

  get cause(): Cause | undefined {
    if (this.#isHeapFull) return 'heap';
    return this.#share > 0 ? 'event_loop' : undefined;
  }

  /** A window has ended. */
  note({ delayMs, heap }: Load, limits: Limits): void {
    this.#noteDelay(limits.event_loop_delay === 'off' ? 0 : delayMs / limits.event_loop_delay);
    if (limits.heap === 'off') this.#isHeapFull = false;
    else this.#isHeapFull = heap > (this.#isHeapFull ? limits.heap * HEAP_CALM : limits.heap);
  }

  /** A request has come. @returns whether it is to be turned away */
  refuses(): boolean {
    const { share } = this;
    if (share === 0) {
      this.#sum = 0;
      return false;
    }
    this.#sum += share;
    // Sums of tenths must still reach one.
    if (this.#sum < 1 - 1e-9) return false;
    this.#sum -= 1;
    return true;
  }

  /** @param pressure the delay as a multiple of its limit */
  #noteDelay(pressure: number): void {
    this.#windows = pressure > 1 ? this.#windows + 1 : 0;
    if (this.#windows >= SUSTAINED) {
      this.#share = Math.min(MOST, hundredths(this.#share + GROWTH * Math.min(pressure, 3)));
    } else if (pressure < CALM) {
      this.#share = Math.max(0, hundredths(this.#share - DECLINE));
    }
  }
}

/** Without the dust of sums, which would keep a share from ever being none. */
function hundredths(share: number): number {
  return Math.round(share * 100) / 100;
}

interface OverloadControlOptions {
  /** `overload` of the configuration in force. */
  readonly limits: () => Limits;
  readonly logger: Logger;
  readonly metrics: Metrics['overload'];
  /** Default: this process. */
  readonly measure?: () => Load;
  /** Of the public listener. */
  readonly acceptQueue?: Pick<AcceptQueue, 'isOverloaded' | 'takeReport'>;
  /** Length of a window in milliseconds. Default 250. */
  readonly windowMs?: number;
}

const WINDOW_MS = 250;
/** With a loop that is later than this, a client may have left before its request is read. */
const LATE_MS = 20;
/** Clients are sent away for a second, and for longer the more are. */
const RETRY_MS = 1_000;
const RETRY_SPAN_MS = 4_000;

export class OverloadControl {
  readonly #options: OverloadControlOptions;
  readonly #shedding = new Shedding();
  readonly #measure: () => Load;
  #timer: NodeJS.Timeout | undefined;
  #delayMs = 0;
  #cause: Cause | undefined;
  #stopMeasuring: () => void = () => undefined;

  constructor(options: OverloadControlOptions) {
    this.#options = options;
    if (options.measure !== undefined) this.#measure = options.measure;
    else {
      const meter = processMeter();
      this.#measure = meter.measure;
      this.#stopMeasuring = meter.stop;
    }
  }

  start(): void {
    this.#timer = setInterval(() => this.#look(), this.#options.windowMs ?? WINDOW_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#stopMeasuring();
  }

  get isOverloaded(): boolean {
    return this.#cause !== undefined;
  }

  /** Whether a request may be read long after it was sent, also where it is not so late that requests are rejected. */
  get isLate(): boolean {
    return this.#delayMs > LATE_MS || this.#options.acceptQueue?.isOverloaded === true;
  }

  /**
   * A handler that is only called while there is room for more.
   * @returns one that throws GatewayError `overloaded` instead
   */
  guard(handler: Handler): Handler {
    return (exchange) => (this.#shedding.refuses() ? this.#refuse() : handler(exchange));
  }

  async #refuse(): Promise<void> {
    const { cause = 'event_loop', share } = this.#shedding;
    this.#options.metrics.refused.inc({ cause });
    // A small body comes with its head: when it has been read, the connection need not be closed.
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('overloaded', undefined, { retryAfterMs: RETRY_MS + RETRY_SPAN_MS * share });
  }

  #look(): void {
    const { limits, logger, metrics, acceptQueue } = this.#options;
    const load = this.#measure();
    const { waitMs, rejected } = acceptQueue?.takeReport() ?? { waitMs: 0, rejected: 0 };
    this.#shedding.note(load, limits());
    const { share } = this.#shedding;
    const before = this.#cause;
    const cause = this.#shedding.cause ?? (acceptQueue?.isOverloaded === true ? 'accept_queue' : undefined);
    this.#cause = cause;
    this.#delayMs = load.delayMs;
    metrics.acceptWait.set(waitMs / 1000);
    metrics.delay.set(load.delayMs / 1000);
    metrics.heap.set(load.heap);
    metrics.share.set(share);
    if (cause === before) return;
    const about = {
      delay_ms: Math.round(load.delayMs),
      heap: Math.round(load.heap * 100) / 100,
      connections_rejected: rejected,
    };
    if (cause === undefined) logger.info(about, 'no longer overloaded: every request is taken');
    else logger.warn({ ...about, cause }, 'overloaded: new requests are turned away');
  }
}

/** Between two looks of the monitor at the clock. */
const RESOLUTION_MS = 20;

function processMeter(): { measure: () => Load; stop: () => void } {
  const monitor = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  monitor.enable();
  return {
    measure: () => {
      // The mean of the looks: each turn of a loop that is always busy is long, and of a stalled one only one is.
      const mean = monitor.count === 0 ? 0 : monitor.mean / 1e6;
      monitor.reset();
      const { used_heap_size, heap_size_limit } = getHeapStatistics();
      return { delayMs: Math.max(0, mean - RESOLUTION_MS), heap: used_heap_size / heap_size_limit };
    },
    stop: () => monitor.disable(),
  };
}
