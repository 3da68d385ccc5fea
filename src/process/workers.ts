// The workers of one primary: as many as were asked for, each replaced when it ends, later from time to time when the next one
// ends as well, and all of them ended together. What they serve is not known here.

import { setTimeout as pause } from 'node:timers/promises';
import { startDeadline } from '../deadline.ts';
import { Backoff, type BackoffOptions } from '../redis/reconnect-backoff.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { BEAT_MS, type ToWorker, type WorkerReport, type WorkerStart } from './worker-messages.ts';
import { type Ended, WorkerProcess } from './worker-process.ts';

/** In milliseconds. */
export interface WorkerTimes {
  /** Without a sign of life for so long, a worker is killed. */
  readonly hung: number;
  /** A worker that does not serve by then is killed; when none does, there is no start. */
  readonly start: number;
  /** Waits before another worker takes the place of one that has ended. */
  readonly restart: Pick<BackoffOptions, 'firstMs' | 'longestMs' | 'calmMs'>;
}

/**
 * A worker is hung when it has missed ten signs of life: a large configuration takes half a second of its time, a machine that
 * stalls a few. One that ends now and then comes back at once; one that always does, every half minute.
 */
export const WORKER_TIMES: WorkerTimes = {
  hung: 10_000,
  start: 60_000,
  restart: { firstMs: 250, longestMs: 30_000, calmMs: 60_000 },
};

/** No worker came up. The message is for the operator. */
export class WorkersStartError extends Error {
  override readonly name = 'WorkersStartError';
}

interface WorkersOptions {
  readonly count: number;
  /** With what a worker starts now. The port is known here. */
  readonly begin: () => Omit<WorkerStart, 'kind' | 'port' | 'count'>;
  /** Of the public listener, as configured. */
  readonly port: number;
  readonly logger: Logger;
  readonly metrics: Metrics['workers'];
  readonly onLine: (line: string) => void;
  /** The last report of one that has ended. */
  readonly onGone: (report: WorkerReport) => void;
  readonly times?: WorkerTimes;
}

/** A place for one worker, whichever has it. */
interface Slot {
  readonly number: number;
  readonly backoff: Backoff;
  current: WorkerProcess | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** Beyond it the primary was not running itself, and has heard nobody. */
const STALL_MS = 3 * BEAT_MS;
/** For those who have not yet begun to serve when everything ends. */
const ABANDON_MS = 3_000;

export class Workers {
  readonly #options: WorkersOptions;
  readonly #times: WorkerTimes;
  readonly #slots: readonly Slot[];
  /** All that were forked and have not ended, those who leave among them. */
  readonly #alive = new Set<WorkerProcess>();
  readonly #up = Promise.withResolvers<string>();
  #url: string | undefined;
  #port: number;
  #lastFailure = 'none has begun to serve';
  #isClosing = false;
  #isClean = true;
  #watch: NodeJS.Timeout | undefined;
  readonly #empty = Promise.withResolvers<void>();

  constructor(options: WorkersOptions) {
    this.#options = options;
    this.#times = options.times ?? WORKER_TIMES;
    this.#port = options.port;
    const clock = { now: () => performance.now(), random: Math.random };
    this.#slots = Array.from({ length: options.count }, (_, index) => ({
      number: index + 1,
      backoff: new Backoff({ ...this.#times.restart, ...clock }),
      current: undefined,
      timer: undefined,
    }));
  }

  /**
   * Resolves with the address of the public listener as soon as one serves.
   * @throws WorkersStartError with the words of a worker that says why it cannot start, or when time is up
   */
  async start(): Promise<string> {
    let lookedAt = performance.now();
    this.#watch = setInterval(() => {
      const now = performance.now();
      if (now - lookedAt > STALL_MS) for (const worker of this.#alive) worker.forgive();
      else this.#look();
      lookedAt = now;
    }, BEAT_MS);
    this.#tell();
    for (const slot of this.#slots) this.#fork(slot);
    const stop = startDeadline(this.#times.start, () => {
      const text = `no worker serves after ${this.#times.start / 1000} s: ${this.#lastFailure}`;
      this.#up.reject(new WorkersStartError(`tollgate: ${text}`));
    });
    try {
      return await this.#up.promise;
    } catch (error) {
      await this.close(ABANDON_MS);
      throw error;
    } finally {
      stop();
    }
  }

  get count(): number {
    return this.#slots.length;
  }

  /** Those that take requests. */
  get serving(): readonly WorkerProcess[] {
    return [...this.#alive].filter(({ state }) => state === 'serving');
  }

  get inFlight(): number {
    return [...this.#alive].reduce((sum, { inFlight }) => sum + inFlight, 0);
  }

  broadcast(message: ToWorker): void {
    for (const worker of this.#alive) worker.send(message);
  }

  /** What each of them knows now; of one that does not answer within `ms`, what it said last. */
  async reports(ms: number): Promise<readonly WorkerReport[]> {
    const asked = [...this.#alive];
    await Promise.all(asked.map((worker) => worker.refresh(ms)));
    // One that has ended meanwhile is in the sum of those that are gone.
    return asked.flatMap(({ state, report }) => (state === 'ended' || report === undefined ? [] : [report]));
  }

  /**
   * Tells all of them to end, and waits for it.
   * @param patienceMs after that they are killed
   * @returns whether each ended as it should
   */
  async close(patienceMs: number): Promise<boolean> {
    this.#isClosing = true;
    for (const { timer } of this.#slots) clearTimeout(timer);
    this.broadcast({ kind: 'close' });
    if (this.#alive.size === 0) this.#empty.resolve();
    const over = new AbortController();
    const late = pause(patienceMs, undefined, { signal: over.signal }).then(
      () => {
        for (const worker of this.#alive) {
          this.#options.logger.error({ worker: worker.number }, 'a worker does not end, and is killed');
          worker.kill('late');
        }
      },
      () => undefined,
    );
    await this.#empty.promise;
    over.abort();
    await late;
    clearInterval(this.#watch);
    return this.#isClean;
  }

  #fork(slot: Slot): void {
    // The port of those who are there; when the last of them has ended it is free, and no other is to be taken.
    if (this.#alive.size === 0 && this.#url !== undefined) this.#port = Number(new URL(this.#url).port || 80);
    const { begin, onLine } = this.#options;
    const worker = new WorkerProcess({
      number: slot.number,
      greet: () =>
        this.#isClosing
          ? { kind: 'close' }
          : { kind: 'begin', ...begin(), port: this.#port, count: this.count },
      onReady: (url) => this.#ready(slot, url),
      onLeaving: () => {
        if (!this.#isClosing) this.#replace(slot, 'fault');
      },
      onLine,
      onEnded: (end) => this.#ended(slot, worker, end),
      now: () => performance.now(),
    });
    slot.current = worker;
    this.#alive.add(worker);
  }

  #ready(slot: Slot, url: string): void {
    slot.backoff.succeeded();
    this.#url ??= url;
    this.#tell();
    this.#up.resolve(this.#url);
  }

  #ended(slot: Slot, worker: WorkerProcess, { code, signal }: Ended): void {
    this.#alive.delete(worker);
    this.#tell();
    if (worker.report !== undefined) this.#options.onGone(worker.report);
    const how = signal === null ? `it ended with ${code}` : `it ended by ${signal}`;
    this.#lastFailure = worker.failure ?? how;
    if (this.#isClosing) {
      if (code !== 0 && worker.hasServed) this.#isClean = false;
      if (this.#alive.size === 0) this.#empty.resolve();
      return;
    }
    // One that said that it leaves has been replaced.
    if (slot.current !== worker) return;
    if (this.#url === undefined && worker.failure !== undefined) {
      this.#up.reject(new WorkersStartError(worker.failure));
      return;
    }
    const { pid, failure } = worker;
    const cause =
      worker.killed ?? (failure !== undefined ? 'start' : signal === null ? ('exit' as const) : 'signal');
    const about = { worker: worker.number, pid, code, signal, cause, failure };
    this.#replace(slot, cause, about);
  }

  /** Another worker gets the place, now or later. */
  #replace(slot: Slot, cause: string, about: object = { worker: slot.number, cause }): void {
    slot.current = undefined;
    const waitMs = Math.round(slot.backoff.next());
    const { logger, metrics } = this.#options;
    metrics.restarts.inc({ cause });
    const words = 'a worker has ended, and another one is to take its place';
    logger.error({ ...about, wait_ms: waitMs, tries: slot.backoff.tries }, words);
    slot.timer = setTimeout(() => this.#fork(slot), waitMs);
  }

  /** Kills those who are silent for too long. */
  #look(): void {
    const { logger } = this.#options;
    for (const worker of this.#alive) {
      const { state, silentMs, number, pid } = worker;
      const isStarting = state === 'starting';
      if (silentMs < (isStarting ? this.#times.start : this.#times.hung)) continue;
      const about = { worker: number, pid, silent_ms: Math.round(silentMs) };
      logger.error(
        about,
        isStarting ? 'a worker does not start, and is killed' : 'a worker hangs, and is killed',
      );
      worker.kill(isStarting ? 'late' : 'hung');
    }
  }

  #tell(): void {
    const { metrics } = this.#options;
    metrics.workers.set({ state: 'configured' }, this.count);
    metrics.workers.set({ state: 'serving' }, this.serving.length);
  }
}
