// Overload control (load shedding): measures event loop delay and heap, and decides which share of new requests to reject.
// Running requests continue: a new stream must not slow down those already begun.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { AcceptQueue } from '../http/accept/accept-queue.ts';
import type { DecodeQueue } from '../http/pieces/decode-queue.ts';
import type { Handler } from '../http/router.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** One measurement of the process. */
export interface Load {
  /** Mean event loop delay over the last window, in milliseconds. */
  readonly delayMs: number;
  /** Used share of V8's heap limit, from 0 to 1. */
  readonly heap: number;
}

type Limits = DynamicConfig['overload'];
type Cause = 'event_loop' | 'heap' | 'accept_queue' | 'decode_queue';

/** Consecutive windows over the limit that mean overload; a single stall of the machine does not. */
const SUSTAINED_WINDOWS = 3;
/** Maximum rejected share for event loop delay. Some requests must pass, to detect recovery. */
const MAX_SHARE = 0.95;
/** Change of the share per window: it grows within a second and shrinks slowly. */
const GROWTH = 0.1;
const DECLINE = 0.05;
/** Hysteresis: below this fraction of the limit the share shrinks; in between it stays. */
const CALM = 0.5;
/** Hysteresis: the heap must fall to this fraction of its limit. */
const HEAP_CALM = 0.9;

/** Computes the share of new requests to reject from each window's measurement. It has no clock of its own. */
export class LoadShedder {
  #share = 0;
  #windows = 0;
  #isHeapFull = false;
  /** A request is rejected when this sum passes 1: an even spread without randomness. */
  #sum = 0;

  /** From 0 to 1. */
  get share(): number {
    return this.#isHeapFull ? 1 : this.#share;
  }

  get cause(): Cause | undefined {
    if (this.#isHeapFull) return 'heap';
    return this.#share > 0 ? 'event_loop' : undefined;
  }

  /** Takes the measurement of a finished window. */
  update({ delayMs, heap }: Load, limits: Limits): void {
    this.#updateShare(limits.event_loop_delay === 'off' ? 0 : delayMs / limits.event_loop_delay);
    if (limits.heap === 'off') this.#isHeapFull = false;
    else this.#isHeapFull = heap > (this.#isHeapFull ? limits.heap * HEAP_CALM : limits.heap);
  }

  /** Counts a new request. @returns whether to reject it */
  shouldReject(): boolean {
    const { share } = this;
    if (share === 0) {
      this.#sum = 0;
      return false;
    }
    this.#sum += share;
    // Tolerates rounding errors of the sum.
    if (this.#sum < 1 - 1e-9) return false;
    this.#sum -= 1;
    return true;
  }

  /** @param pressure the delay as a multiple of its limit */
  #updateShare(pressure: number): void {
    this.#windows = pressure > 1 ? this.#windows + 1 : 0;
    if (this.#windows >= SUSTAINED_WINDOWS) {
      this.#share = Math.min(MAX_SHARE, hundredths(this.#share + GROWTH * Math.min(pressure, 3)));
    } else if (pressure < CALM) {
      this.#share = Math.max(0, hundredths(this.#share - DECLINE));
    }
  }
}

/** Removes rounding errors, which would keep the share from reaching 0. */
function hundredths(share: number): number {
  return Math.round(share * 100) / 100;
}

interface OverloadControlOptions {
  /** `overload` of the configuration in force. */
  readonly limits: () => Limits;
  readonly logger: Logger;
  readonly metrics: Metrics['overload'];
  /** Default: measures this process. */
  readonly measure?: () => Load;
  /** Those of the public listener. */
  readonly queues?: {
    readonly acceptQueue?: Pick<AcceptQueue, 'isOverloaded' | 'takeReport' | 'waitMs'>;
    readonly decodeQueue?: Pick<DecodeQueue, 'isOverloaded' | 'takeReport'>;
  };
}

/** Report of an absent queue. */
const NOTHING = { waitMs: 0, rejected: 0 };
/** Length of a window. */
const WINDOW_MS = 250;
/** Above this event loop delay, or this wait in the accept queue, a client may have disconnected before its request is read. */
const LATE_MS = 20;
const LONG_WAIT_MS = 100;
/** `retry-after`: a second, plus up to four more in proportion to the rejected share. */
const RETRY_MS = 1_000;
const RETRY_SPAN_MS = 4_000;

export class OverloadControl {
  readonly #options: OverloadControlOptions;
  readonly #shedder = new LoadShedder();
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
    this.#timer = setInterval(() => this.#tick(), WINDOW_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#stopMeasuring();
  }

  get isOverloaded(): boolean {
    return this.#cause !== undefined;
  }

  /** Whether requests may be read long after they were sent; it is true before requests are rejected. */
  get isLate(): boolean {
    const acceptQueue = this.#options.queues?.acceptQueue;
    if (this.#delayMs > LATE_MS) return true;
    return acceptQueue !== undefined && (acceptQueue.waitMs > LONG_WAIT_MS || acceptQueue.isOverloaded);
  }

  /** Wraps a handler. @returns a handler that throws GatewayError `overloaded` for rejected requests */
  guard(handler: Handler): Handler {
    return (exchange) => (this.#shedder.shouldReject() ? this.#reject() : handler(exchange));
  }

  async #reject(): Promise<void> {
    const { cause = 'event_loop', share } = this.#shedder;
    this.#options.metrics.refused.inc({ cause });
    // A small body arrives with its head. Once it has been read, the connection can stay open.
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('overloaded', undefined, { retryAfterMs: RETRY_MS + RETRY_SPAN_MS * share });
  }

  #tick(): void {
    const { limits, logger, metrics, queues } = this.#options;
    const { acceptQueue, decodeQueue } = queues ?? {};
    const load = this.#measure();
    const { waitMs, rejected } = acceptQueue?.takeReport() ?? NOTHING;
    const decoding = decodeQueue?.takeReport() ?? NOTHING;
    metrics.refused.inc({ cause: 'decode_queue' }, decoding.rejected);
    metrics.decodeWait.set(decoding.waitMs / 1000);
    this.#shedder.update(load, limits());
    const { share } = this.#shedder;
    const before = this.#cause;
    const cause =
      this.#shedder.cause ??
      (acceptQueue?.isOverloaded === true ? 'accept_queue' : undefined) ??
      (decodeQueue?.isOverloaded === true ? 'decode_queue' : undefined);
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
    if (cause === undefined) logger.info(about, 'no longer overloaded; accepting all requests');
    else logger.warn({ ...about, cause }, 'overloaded; rejecting new requests');
  }
}

/** Sampling interval of the monitor. */
const RESOLUTION_MS = 20;

function processMeter(): { measure: () => Load; stop: () => void } {
  const monitor = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  monitor.enable();
  return {
    measure: () => {
      // The mean: a busy loop makes every sample late, a single stall only one.
      const mean = monitor.count === 0 ? 0 : monitor.mean / 1e6;
      monitor.reset();
      const { used_heap_size, heap_size_limit } = getHeapStatistics();
      return { delayMs: Math.max(0, mean - RESOLUTION_MS), heap: used_heap_size / heap_size_limit };
    },
    stop: () => monitor.disable(),
  };
}
