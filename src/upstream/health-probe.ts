// The active health check of one upstream: asks its health path now and then and remembers whether it answered well. How
// the request is made, and what the result is used for, is elsewhere.

/** So many equal results in a row change the state: one lost request is no news. */
const CONSECUTIVE = 2;

/** The longest wait for an answer. */
const DEADLINE_MS = 5000;

/** The first check comes within this time. */
const FIRST_MS = 1000;

/** Checks of many replicas and upstreams do not fall into step. */
const JITTER = 0.2;

/** Runs something later. @returns a function that calls it off */
export type Schedule = (run: () => void, ms: number) => () => void;

export interface HealthProbeOptions {
  /**
   * One GET of the health path. Resolves to the status; what it does after its signal was aborted does not matter.
   * @throws whatever prevents an answer
   */
  readonly check: (signal: AbortSignal) => Promise<number>;
  /** From the end of one check to the next, in milliseconds, give or take a fifth. */
  readonly intervalMs: number;
  /** Default 5 s. */
  readonly deadlineMs?: number;
  /** From 0 (included) to 1 (excluded). */
  readonly random: () => number;
  /** Default: timers that do not keep the process alive. */
  readonly schedule?: Schedule;
  /** The state has changed. */
  readonly onChange?: (healthy: boolean) => void;
}

/** Healthy until two checks in a row have failed, then unhealthy until two in a row have succeeded. */
export class HealthProbe {
  readonly #options: HealthProbeOptions;
  readonly #schedule: Schedule;
  readonly #deadlineMs: number;
  #healthy = true;
  /** Results in a row that contradict the state. */
  #contrary = 0;
  /** Ends what is under way, a wait or a check; undefined while it does not run. */
  #cancel: (() => void) | undefined;

  constructor(options: HealthProbeOptions) {
    this.#options = options;
    this.#schedule = options.schedule ?? unrefTimer;
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
  }

  get healthy(): boolean {
    return this.#healthy;
  }

  /** Idempotent. */
  start(): void {
    if (this.#cancel !== undefined) return;
    const { intervalMs, random } = this.#options;
    this.#wait(random() * Math.min(intervalMs, FIRST_MS));
  }

  /** Ends waits and checks at once; the state stays as it is. Idempotent. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #wait(ms: number): void {
    this.#cancel = this.#schedule(() => this.#check(), ms);
  }

  #check(): void {
    const controller = new AbortController();
    let isOver = false;
    const end = () => {
      isOver = true;
      callOff();
    };
    const finish = (ok: boolean) => {
      // The deadline, an answer after it, or `stop`: whichever is first.
      if (isOver) return;
      end();
      // Also of a check that did answer: nothing of it is to be read any more.
      controller.abort();
      this.#wait(this.#options.intervalMs * (1 - JITTER + 2 * JITTER * this.#options.random()));
      this.#note(ok);
    };
    const callOff = this.#schedule(() => finish(false), this.#deadlineMs);
    this.#cancel = () => {
      end();
      controller.abort();
    };
    this.#ask(controller.signal).then(finish);
  }

  async #ask(signal: AbortSignal): Promise<boolean> {
    try {
      const status = await this.#options.check(signal);
      return status >= 200 && status <= 299;
    } catch {
      return false;
    }
  }

  #note(ok: boolean): void {
    if (ok === this.#healthy) {
      this.#contrary = 0;
      return;
    }
    this.#contrary += 1;
    if (this.#contrary < CONSECUTIVE) return;
    this.#contrary = 0;
    this.#healthy = ok;
    this.#options.onChange?.(ok);
  }
}

function unrefTimer(run: () => void, ms: number): () => void {
  const timer = setTimeout(run, ms);
  timer.unref();
  return () => clearTimeout(timer);
}
