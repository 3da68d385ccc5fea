// One worker process as the primary sees it: fork, messages, heartbeats, log lines and exit. workers.ts owns the restarts.

import cluster, { type Worker } from 'node:cluster';
import { StringDecoder } from 'node:string_decoder';
import { startDeadline } from '../deadline.ts';
import type { HealthReport } from '../http/admin/health.ts';
import { type FromWorker, type ToWorker, WORKER_VARIABLE, type WorkerReport } from './worker-messages.ts';

export interface WorkerExit {
  readonly code: number | null;
  readonly signal: string | null;
}

interface WorkerProcessOptions {
  /** Number of the worker slot, from 1; a replacement has the same number. */
  readonly number: number;
  /** The reply to its `hello`. */
  readonly firstMessage: () => ToWorker;
  readonly onReady: (url: string) => void;
  readonly onLeaving: () => void;
  /** `connections` has changed. */
  readonly onConnections: () => void;
  /** Receives complete log lines. */
  readonly onLines: (lines: string) => void;
  /** Called once, after the exit and the last log line. */
  readonly onExit: (exit: WorkerExit) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

export class WorkerProcess {
  readonly number: number;
  readonly #options: WorkerProcessOptions;
  readonly #worker: Worker;
  // Only this class writes the fields below.
  state: 'starting' | 'serving' | 'leaving' | 'ended' = 'starting';
  /** Whether it ever accepted requests. */
  hasServed = false;
  /** The last report received. */
  report: WorkerReport | undefined;
  health: HealthReport | undefined;
  /** Requests in flight at the last heartbeat. */
  inFlight = 0;
  /** As last told. */
  connections = 0;
  /** The worker's own message about why it cannot start. */
  failure: string | undefined;
  /** Why the primary killed it, if it did. */
  killed: 'hung' | 'late' | undefined;
  #lastHeartbeatAt: number;
  #waiters: (() => void)[] = [];

  constructor(options: WorkerProcessOptions) {
    this.#options = options;
    this.number = options.number;
    this.#lastHeartbeatAt = options.now();
    const worker = cluster.fork({ [WORKER_VARIABLE]: `${options.number}` });
    this.#worker = worker;
    worker.on('message', (message: FromWorker) => this.#onMessage(message));
    // A broken channel is followed by the exit. A failed fork emits nothing but 'error' on the process.
    worker.on('error', () => undefined);
    worker.process.on('error', () => this.#onExit({ code: null, signal: null }));
    forwardLines(worker.process.stdout, options.onLines);
    // 'close' instead of 'exit': log lines may still arrive after 'exit'.
    worker.process.on('close', (code, signal) => this.#onExit({ code, signal }));
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /** Milliseconds since the last heartbeat; while starting, since the fork. */
  get silentMs(): number {
    return this.#options.now() - this.#lastHeartbeatAt;
  }

  /** Restarts the heartbeat timeout, after the primary itself was stalled. */
  resetHeartbeat(): void {
    this.#lastHeartbeatAt = this.#options.now();
  }

  send(message: ToWorker): void {
    if (this.#worker.isConnected()) this.#worker.send(message, () => undefined);
  }

  /** Requests a report. Resolves when it arrives, or after `ms`; then `report` is the previous one. */
  refresh(ms: number): Promise<void> {
    if (this.state !== 'serving' && this.state !== 'leaving') return Promise.resolve();
    return new Promise((resolve) => {
      const stop = startDeadline(ms, resolve);
      this.#waiters.push(() => {
        stop();
        resolve();
      });
      if (this.#waiters.length === 1) this.send({ kind: 'report' });
    });
  }

  /** Uses SIGKILL, because workers ignore catchable signals. */
  kill(why?: 'hung' | 'late'): void {
    this.killed ??= why;
    this.#worker.process.kill('SIGKILL');
  }

  #onMessage(message: FromWorker): void {
    switch (message.kind) {
      case 'hello':
        this.send(this.#options.firstMessage());
        return;
      case 'ready':
        this.#lastHeartbeatAt = this.#options.now();
        this.state = 'serving';
        this.hasServed = true;
        this.#options.onReady(message.url);
        return;
      case 'failed':
        this.failure = message.message;
        return;
      case 'beat':
        this.#lastHeartbeatAt = this.#options.now();
        this.inFlight = message.inFlight;
        this.health = message.health ?? this.health;
        return;
      case 'report':
        this.report = message.report;
        for (const done of this.#waiters.splice(0)) done();
        return;
      case 'connections':
        this.connections = message.count;
        this.#options.onConnections();
        return;
      case 'leaving':
        this.state = 'leaving';
        this.#options.onLeaving();
    }
  }

  #onExit(exit: WorkerExit): void {
    if (this.state === 'ended') return;
    this.state = 'ended';
    for (const done of this.#waiters.splice(0)) done();
    this.#options.onExit(exit);
  }
}

/** Longer lines are discarded. In characters. */
const MAX_LINE = 16 * 1024 * 1024;

/** Passes a log on, whole lines together. It drops an incomplete last line, which would be invalid JSON. */
function forwardLines(stream: NodeJS.ReadableStream | null, onLines: (lines: string) => void): void {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  stream?.on('data', (bytes: Buffer) => {
    const text = rest + decoder.write(bytes);
    const end = text.lastIndexOf('\n') + 1;
    rest = text.length - end > MAX_LINE ? '' : text.slice(end);
    if (end > 0) onLines(text.slice(0, end));
  });
  stream?.on('error', () => undefined);
}
