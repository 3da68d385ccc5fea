// Active health check of one upstream: requests its health path periodically and keeps the state. Sending the request and using
// the state are not its tasks.
import { wrapError } from '../../errors.ts';

/** Equal results in a row that change the state: one lost request is not evidence. */
const CONSECUTIVE = 2;

/** Deadline of one check. */
const DEADLINE_MS = 5000;

/** Upper bound of the delay before the first check. */
const FIRST_MS = 1000;

/** Keeps the checks of many replicas and upstreams out of step. */
const JITTER = 0.2;

/** Runs a function later. @returns a function that cancels it */
export type Schedule = (run: () => void, ms: number) => () => void;

export interface HealthProbeOptions {
  /**
   * Sends one GET of the health path and resolves to the status; its result after an abort is ignored.
   * @throws any error that prevents a response
   */
  readonly check: (signal: AbortSignal) => Promise<number>;
  /** From the end of one check to the start of the next, in milliseconds, ±20 %. */
  readonly intervalMs: number;
  /** Default 5 s. */
  readonly deadlineMs?: number;
  /** Returns [0, 1). */
  readonly random: () => number;
  /** Default: timers that do not keep the process alive. */
  readonly schedule?: Schedule;
  /** Called on each state change. @param reason what failed, for people */
  readonly onChange?: (healthy: boolean, reason: string) => void;
}

/** Healthy until two checks in a row have failed, then unhealthy until two in a row have succeeded. */
export class HealthProbe {
  readonly #options: HealthProbeOptions;
  readonly #schedule: Schedule;
  readonly #deadlineMs: number;
  #healthy = true;
  #since = new Date();
  /** Of the last failure. */
  #reason: string | undefined;
  /** Results in a row that contradict the state. */
  #contrary = 0;
  /** Cancels the pending wait or check; undefined while stopped. */
  #cancel: (() => void) | undefined;

  constructor(options: HealthProbeOptions) {
    this.#options = options;
    this.#schedule = options.schedule ?? unrefTimer;
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
  }

  get healthy(): boolean {
    return this.#healthy;
  }

  /** When the state last changed. */
  get since(): Date {
    return this.#since;
  }

  /** Why the last failed check failed; undefined while healthy. */
  get reason(): string | undefined {
    return this.#healthy ? undefined : this.#reason;
  }

  /** Idempotent. */
  start(): void {
    if (this.#cancel !== undefined) return;
    const { intervalMs, random } = this.#options;
    this.#wait(random() * Math.min(intervalMs, FIRST_MS));
  }

  /** Cancels waits and checks immediately; the state stays. Idempotent. */
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
      cancelDeadline();
    };
    const finish = (fault: string | undefined) => {
      // The first of: deadline, result, `stop`.
      if (isOver) return;
      end();
      // Also after a response, so that its body is not read.
      controller.abort();
      this.#wait(this.#options.intervalMs * (1 - JITTER + 2 * JITTER * this.#options.random()));
      this.#note(fault);
    };
    const cancelDeadline = this.#schedule(
      () => finish(`no answer within ${this.#deadlineMs} ms`),
      this.#deadlineMs,
    );
    this.#cancel = () => {
      end();
      controller.abort();
    };
    this.#run(controller.signal).then(finish);
  }

  /** @returns what is wrong; undefined for a 2xx */
  async #run(signal: AbortSignal): Promise<string | undefined> {
    try {
      const status = await this.#options.check(signal);
      return status >= 200 && status <= 299 ? undefined : `status ${status}`;
    } catch (error) {
      return wrapError(error, 'internal_error').code;
    }
  }

  #note(fault: string | undefined): void {
    const ok = fault === undefined;
    if (!ok) this.#reason = fault;
    if (ok === this.#healthy) {
      this.#contrary = 0;
      return;
    }
    this.#contrary += 1;
    if (this.#contrary < CONSECUTIVE) return;
    this.#contrary = 0;
    this.#healthy = ok;
    this.#since = new Date();
    this.#options.onChange?.(ok, fault ?? `${CONSECUTIVE} checks in a row succeeded`);
  }
}

function unrefTimer(run: () => void, ms: number): () => void {
  const timer = setTimeout(run, ms);
  timer.unref();
  return () => clearTimeout(timer);
}
