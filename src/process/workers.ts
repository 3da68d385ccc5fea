// The worker slots of the primary: forks the configured number of workers, restarts exited ones with backoff, kills hung ones,
// and shuts all of them down together.

import { setTimeout as pause } from 'node:timers/promises';
import { startDeadline } from '../deadline.ts';
import { ConnectionShares } from '../http/accept/connection-shares.ts';
import { Backoff, type BackoffOptions } from '../redis/reconnect-backoff.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { HEARTBEAT_MS, type ToWorker, type WorkerReport, type WorkerStart } from './worker-messages.ts';
import { type WorkerExit, WorkerProcess } from './worker-process.ts';

/** In milliseconds. */
export interface WorkerTimes {
  /** Heartbeat timeout, after which a worker is killed. */
  readonly hung: number;
  /** Start timeout, after which a worker is killed. When no worker serves by then, the start fails. */
  readonly start: number;
  /** Backoff between the exit of a worker and its restart. */
  readonly restart: Pick<BackoffOptions, 'firstMs' | 'maxMs' | 'resetMs'>;
}

/**
 * Ten missed heartbeats mean hung: a large configuration blocks for half a second, a stalled machine for a few seconds. A worker
 * that exits occasionally restarts at once, one that always exits every 30 seconds.
 */
export const WORKER_TIMES: WorkerTimes = {
  hung: 10_000,
  start: 60_000,
  restart: { firstMs: 250, maxMs: 30_000, resetMs: 60_000 },
};

/** No worker started. The message is for the operator. */
export class WorkersStartError extends Error {
  override readonly name = 'WorkersStartError';
}

interface WorkersOptions {
  readonly count: number;
  /** The data for a worker that starts now; this class adds the port. */
  readonly begin: () => Omit<WorkerStart, 'kind' | 'port' | 'count'>;
  /** Configured port of the public listener. */
  readonly port: number;
  readonly logger: Logger;
  readonly metrics: Metrics['workers'];
  readonly onLines: (lines: string) => void;
  /** Receives the last report of an exited worker. */
  readonly onExited: (report: WorkerReport) => void;
  readonly times?: WorkerTimes;
}

/** A slot for one worker and its successors. */
interface Slot {
  readonly number: number;
  readonly backoff: Backoff;
  current: WorkerProcess | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** A longer gap between two ticks means that the primary itself was stalled and received no heartbeats. */
const STALL_MS = 3 * HEARTBEAT_MS;
/** Shutdown timeout after a failed start. */
const ABANDON_MS = 3_000;

export class Workers {
  readonly #options: WorkersOptions;
  readonly #times: WorkerTimes;
  readonly #slots: readonly Slot[];
  /** All forked workers that have not exited, including those that are leaving. */
  readonly #alive = new Set<WorkerProcess>();
  readonly #firstUrl = Promise.withResolvers<string>();
  #url: string | undefined;
  #port: number;
  #lastFailure = 'none has started';
  #isClosing = false;
  #isClean = true;
  #watch: NodeJS.Timeout | undefined;
  readonly #empty = Promise.withResolvers<void>();
  readonly #shares = new ConnectionShares();

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
   * Resolves with the URL of the public listener when the first worker serves.
   * @throws WorkersStartError with the message of a worker that cannot start, or after the start timeout
   */
  async start(): Promise<string> {
    let lastTickAt = performance.now();
    this.#watch = setInterval(() => {
      const now = performance.now();
      if (now - lastTickAt > STALL_MS) for (const worker of this.#alive) worker.resetHeartbeat();
      else this.#killHung();
      lastTickAt = now;
      this.#balance();
    }, HEARTBEAT_MS);
    this.#updateGauges();
    for (const slot of this.#slots) this.#fork(slot);
    const stop = startDeadline(this.#times.start, () => {
      const text = `no worker serves after ${this.#times.start / 1000} s: ${this.#lastFailure}`;
      this.#firstUrl.reject(new WorkersStartError(`tollgate: ${text}`));
    });
    try {
      return await this.#firstUrl.promise;
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

  /** The workers that accept requests. */
  get serving(): readonly WorkerProcess[] {
    return [...this.#alive].filter(({ state }) => state === 'serving');
  }

  get inFlight(): number {
    return [...this.#alive].reduce((sum, { inFlight }) => sum + inFlight, 0);
  }

  broadcast(message: ToWorker): void {
    for (const worker of this.#alive) worker.send(message);
  }

  /** A fresh report of each worker; the previous one of a worker that does not answer within `ms`. */
  async reports(ms: number): Promise<readonly WorkerReport[]> {
    const queried = [...this.#alive];
    await Promise.all(queried.map((worker) => worker.refresh(ms)));
    // The reports of workers that have exited since then went to `onExited`.
    return queried.flatMap(({ state, report }) =>
      state === 'ended' || report === undefined ? [] : [report],
    );
  }

  /**
   * Shuts all workers down gracefully and waits for them to exit.
   * @param timeoutMs after it the remaining workers are killed
   * @returns whether every worker exited cleanly
   */
  async close(timeoutMs: number): Promise<boolean> {
    this.#isClosing = true;
    for (const { timer } of this.#slots) clearTimeout(timer);
    this.broadcast({ kind: 'close' });
    if (this.#alive.size === 0) this.#empty.resolve();
    const over = new AbortController();
    const late = pause(timeoutMs, undefined, { signal: over.signal }).then(
      () => {
        for (const worker of this.#alive) {
          this.#options.logger.error({ worker: worker.number }, 'worker did not exit in time; killing it');
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
    // With a free port (0), the last worker's exit releases it: bind the same port again.
    if (this.#alive.size === 0 && this.#url !== undefined) this.#port = Number(new URL(this.#url).port || 80);
    const { begin, onLines } = this.#options;
    const worker = new WorkerProcess({
      number: slot.number,
      firstMessage: () =>
        this.#isClosing
          ? { kind: 'close' }
          : { kind: 'begin', ...begin(), port: this.#port, count: this.count },
      onReady: (url) => this.#onReady(slot, url),
      onLeaving: () => {
        if (!this.#isClosing) this.#restart(slot, 'fault');
      },
      onConnections: () => this.#balance(),
      onLines,
      onExit: (exit) => this.#onExit(slot, worker, exit),
      now: () => performance.now(),
    });
    slot.current = worker;
    this.#alive.add(worker);
  }

  #onReady(slot: Slot, url: string): void {
    slot.backoff.succeeded();
    this.#url ??= url;
    this.#updateGauges();
    this.#firstUrl.resolve(this.#url);
  }

  #onExit(slot: Slot, worker: WorkerProcess, { code, signal }: WorkerExit): void {
    this.#alive.delete(worker);
    this.#updateGauges();
    if (worker.report !== undefined) this.#options.onExited(worker.report);
    const how = signal === null ? `it exited with code ${code}` : `it was killed by ${signal}`;
    this.#lastFailure = worker.failure ?? how;
    if (this.#isClosing) {
      if (code !== 0 && worker.hasServed) this.#isClean = false;
      if (this.#alive.size === 0) this.#empty.resolve();
      return;
    }
    // A leaving worker has been replaced already.
    if (slot.current !== worker) return;
    if (this.#url === undefined && worker.failure !== undefined) {
      this.#firstUrl.reject(new WorkersStartError(worker.failure));
      return;
    }
    const { pid, failure } = worker;
    const cause =
      worker.killed ?? (failure !== undefined ? 'start' : signal === null ? ('exit' as const) : 'signal');
    const about = { worker: worker.number, pid, code, signal, cause, failure };
    this.#restart(slot, cause, about);
  }

  /** Forks a new worker into the slot, after the backoff. */
  #restart(slot: Slot, cause: string, about: object = { worker: slot.number, cause }): void {
    slot.current = undefined;
    const waitMs = Math.round(slot.backoff.next());
    const { logger, metrics } = this.#options;
    metrics.restarts.inc({ cause });
    logger.error({ ...about, wait_ms: waitMs, tries: slot.backoff.tries }, 'worker exited; restarting it');
    slot.timer = setTimeout(() => this.#fork(slot), waitMs);
  }

  /** Has workers with too many connections close some. One that may hang takes no others. */
  #balance(): void {
    if (this.#isClosing) return;
    const accepting = this.serving.filter(({ silentMs }) => silentMs < STALL_MS);
    const excess = this.#shares.excess(accepting, performance.now());
    for (const worker of excess?.above ?? []) worker.send({ kind: 'shed', keep: excess?.keep ?? 0 });
  }

  /** Kills workers whose heartbeat or start is overdue. */
  #killHung(): void {
    const { logger } = this.#options;
    for (const worker of this.#alive) {
      const { state, silentMs, number, pid } = worker;
      const isStarting = state === 'starting';
      if (silentMs < (isStarting ? this.#times.start : this.#times.hung)) continue;
      const about = { worker: number, pid, silent_ms: Math.round(silentMs) };
      logger.error(
        about,
        isStarting ? 'worker did not start in time; killing it' : 'worker is hung; killing it',
      );
      worker.kill(isStarting ? 'late' : 'hung');
    }
  }

  #updateGauges(): void {
    const { metrics } = this.#options;
    metrics.workers.set({ state: 'configured' }, this.count);
    metrics.workers.set({ state: 'serving' }, this.serving.length);
  }
}
