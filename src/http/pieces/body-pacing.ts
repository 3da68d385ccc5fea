// Cooperative scheduling for large bodies: bounds their share of the event loop and the machine while other requests are served.
// Workers record their work and pause when told; handling the body is their task.

/**
 * Milliseconds of work before other requests get a tick. A request needs several short ticks per response and waits for this at
 * each of them.
 */
const WORK_MS = 0.3;
/** Bytes of work before a pause, however fast: the kernel's copying is not measured. */
const WORK_BYTES = 256 * 1024;
/**
 * Pause in milliseconds while other requests are served. Yielding a tick alone helps those that wait for the event loop, but not
 * clients and upstreams that need the processor: a body that moves without pauses wakes its sender and receiver all the time.
 * Timers count whole milliseconds from the start of a tick, so the pause takes between one and two. Pacing limits large bodies to
 * about 100 MB/s, as much as a network of 1 Gbit/s carries.
 */
const PAUSE_MS = 2;
/**
 * Longest wait of a pause for those before it, in milliseconds. Beyond, bodies come faster than they may move: a longer line would end with
 * clients that have left, while the event loop looks idle and no request is rejected.
 */
const MAX_LINE_MS = 50;
/** The process counts as serving for this many milliseconds after a small request began. */
const RECENT_MS = 100;

/** Running requests, and those of them with a large body in work. */
let exchanges = 0;
let working = 0;
/** Start of the latest small request that has ended. */
let servedAt = Number.NEGATIVE_INFINITY;
/** End of the last scheduled pause; pauses of several bodies are consecutive. */
let pausedUntil = 0;

/** Call at the start of every request. */
export function exchangeBegan(): void {
  exchanges += 1;
}

/** Call at the end of every request. */
export function exchangeEnded({
  started,
  isLarge,
}: {
  readonly started: number;
  readonly isLarge: boolean;
}): void {
  exchanges -= 1;
  if (!isLarge && started > servedAt) servedAt = started;
}

/** Pacing of one large body, from its start to `end`. */
export class BodyPacing {
  /** Fraction of the work allowed before a pause; 1 and more means that a pause is due. */
  #spent = 0;
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  #isThrottling = false;
  #isOver = false;

  constructor() {
    working += 1;
  }

  /** Whether a pause is due. */
  get isDue(): boolean {
    return this.#spent >= 1;
  }

  /** Records work since the last pause. @param ms its duration in milliseconds, if measured */
  record(bytes: number, ms = 0): void {
    this.#spent += Math.max(ms / WORK_MS, bytes / WORK_BYTES);
  }

  /** Pauses; one at a time. @param then called after the pause, but not after `end` */
  pause(then: () => void): void {
    this.#spent = 0;
    const now = performance.now();
    if (exchanges <= working && now - servedAt > RECENT_MS) {
      this.#immediate = setImmediate(then);
      return;
    }
    pausedUntil = Math.min(Math.max(now, pausedUntil) + PAUSE_MS, now + MAX_LINE_MS);
    this.#timer = setTimeout(
      () => {
        // Timers of one tick would otherwise run several pieces of work in it.
        this.#immediate = setImmediate(then);
      },
      Math.ceil(pausedUntil - now),
    );
  }

  /** Pauses the source of the work if a pause is due, and resumes it afterwards. */
  throttle(source: { pause(): unknown; resume(): unknown }): void {
    if (this.#isThrottling || !this.isDue) return;
    this.#isThrottling = true;
    source.pause();
    this.pause(() => {
      this.#isThrottling = false;
      source.resume();
    });
  }

  /** The work is complete or abandoned. A paused source stays paused. Idempotent. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    working -= 1;
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }
}
