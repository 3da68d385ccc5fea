// What large bodies may take of the event loop and of the machine while others are served. Whoever carries or looks through one
// tells how long it worked, and is told when it may go on. What is done with a body is for whoever does it.

/**
 * So long it is worked, in milliseconds, before everybody else has a turn. Each turn of a request is short, and a few of them
 * make an answer: whoever comes meanwhile waits for this some times.
 */
const WORK_MS = 0.3;
/** Or so much, however quickly: the system has copied it, too, which nobody measures. */
const WORK_BYTES = 256 * 1024;
/**
 * And so long nothing is done then, while others are served. A turn alone helps those who wait for the event loop, and not those
 * whose client or upstream waits for a processor: a body that moves without a pause wakes its sender and its receiver all the
 * time. Timers count whole milliseconds from the beginning of a turn, so that it is more than one and less than two. What is
 * left is a hundred megabytes a second, as much as a network of 1 Gbit/s brings.
 */
const REST_MS = 2;
/** Who was asked something so short a time ago, in milliseconds, will be asked again. */
const SERVED_MS = 100;

/** Requests under way, and those of them with whose bodies something is done. */
let exchanges = 0;
let working = 0;
/** When the last request with nothing large began, of those that have ended. */
let servedAt = Number.NEGATIVE_INFINITY;
/** When the last rest that was given ends: those of several bodies are one behind the other. */
let restUntil = 0;

/** To be told of every request, at its beginning. */
export function exchangeBegan(): void {
  exchanges += 1;
}

/** And at its end. */
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

/** Work on one body that is large, from its beginning to its end. */
export class BodyPacing {
  /** Of what may be done before a rest, from 0 to 1 and beyond. */
  #spent = 0;
  #timer: NodeJS.Timeout | undefined;
  #turn: NodeJS.Immediate | undefined;
  #isHolding = false;
  #isOver = false;

  constructor() {
    working += 1;
  }

  /** Whether it has to rest now. */
  get isDue(): boolean {
    return this.#spent >= 1;
  }

  /**
   * Some work was done since the last rest.
   * @param ms milliseconds, where they were taken
   */
  did(bytes: number, ms = 0): void {
    this.#spent += Math.max(ms / WORK_MS, bytes / WORK_BYTES);
  }

  /** One at a time. @param then called when it may go on; not after `end` */
  rest(then: () => void): void {
    this.#spent = 0;
    const now = performance.now();
    if (exchanges <= working && now - servedAt > SERVED_MS) {
      this.#turn = setImmediate(then);
      return;
    }
    restUntil = Math.max(now, restUntil) + REST_MS;
    this.#timer = setTimeout(
      () => {
        // Several timers of one turn would bring several pieces of work in it.
        this.#turn = setImmediate(then);
      },
      Math.ceil(restUntil - now),
    );
  }

  /** Pauses what the work comes from for the rest that is due, if one is. */
  hold(source: { pause(): unknown; resume(): unknown }): void {
    if (this.#isHolding || !this.isDue) return;
    this.#isHolding = true;
    source.pause();
    this.rest(() => {
      this.#isHolding = false;
      source.resume();
    });
  }

  /** It is done, or given up. What was paused stays so. Idempotent. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    working -= 1;
    clearTimeout(this.#timer);
    clearImmediate(this.#turn);
  }
}
