// One worker as the primary sees it: forked, spoken to, heard of, and its end. When another takes its place is workers.ts's
// affair.

import cluster, { type Worker } from 'node:cluster';
import { StringDecoder } from 'node:string_decoder';
import { startDeadline } from '../deadline.ts';
import type { HealthReport } from '../http/admin/health.ts';
import { type FromWorker, type ToWorker, WORKER_VARIABLE, type WorkerReport } from './worker-messages.ts';

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
}

interface WorkerProcessOptions {
  /** Of its place among the workers, from 1: whoever takes the place has it too. */
  readonly number: number;
  /** What to say to it when it can hear. */
  readonly greet: () => ToWorker;
  readonly onReady: (url: string) => void;
  readonly onLeaving: () => void;
  /** Whole lines of its log. */
  readonly onLine: (line: string) => void;
  /** Called once, when nothing more comes from it. */
  readonly onEnded: (end: Ended) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

export class WorkerProcess {
  readonly number: number;
  readonly #options: WorkerProcessOptions;
  readonly #worker: Worker;
  #state: 'starting' | 'serving' | 'leaving' | 'ended' = 'starting';
  #heardAt: number;
  #report: WorkerReport | undefined;
  #waiters: (() => void)[] = [];
  #health: HealthReport | undefined;
  #inFlight = 0;
  #failure: string | undefined;
  /** Why the primary killed it. */
  #killed: 'hung' | 'late' | undefined;
  #hasServed = false;

  constructor(options: WorkerProcessOptions) {
    this.#options = options;
    this.number = options.number;
    this.#heardAt = options.now();
    const worker = cluster.fork({ [WORKER_VARIABLE]: `${options.number}` });
    this.#worker = worker;
    worker.on('message', (message: FromWorker) => this.#hear(message));
    // A channel that breaks ends with the process, and a process that cannot be forked has no other event.
    worker.on('error', () => undefined);
    worker.process.on('error', () => this.#end({ code: null, signal: null }));
    readLines(worker.process.stdout, options.onLine);
    // 'close' and not 'exit': until then there may be lines of its log.
    worker.process.on('close', (code, signal) => this.#end({ code, signal }));
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  get state(): 'starting' | 'serving' | 'leaving' | 'ended' {
    return this.#state;
  }

  /** One that never did has promised nothing to anybody. */
  get hasServed(): boolean {
    return this.#hasServed;
  }

  /** What it said last of itself. */
  get report(): WorkerReport | undefined {
    return this.#report;
  }

  get health(): HealthReport | undefined {
    return this.#health;
  }

  /** Answers under way, as of its last sign of life. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Why it could not start, in its own words. */
  get failure(): string | undefined {
    return this.#failure;
  }

  get killed(): 'hung' | 'late' | undefined {
    return this.#killed;
  }

  /** Milliseconds without a sign of life; of one that starts, since its fork. */
  get silentMs(): number {
    return this.#options.now() - this.#heardAt;
  }

  /** The primary itself did not listen for a while: nobody else is to blame. */
  forgive(): void {
    this.#heardAt = this.#options.now();
  }

  send(message: ToWorker): void {
    if (this.#worker.isConnected()) this.#worker.send(message, () => undefined);
  }

  /** Asks for a report. Resolves when it is there, or after `ms`: then the last one has to do. */
  refresh(ms: number): Promise<void> {
    if (this.#state !== 'serving' && this.#state !== 'leaving') return Promise.resolve();
    return new Promise((resolve) => {
      const stop = startDeadline(ms, resolve);
      this.#waiters.push(() => {
        stop();
        resolve();
      });
      if (this.#waiters.length === 1) this.send({ kind: 'report' });
    });
  }

  /** Signals that can be caught are not heard by workers. */
  kill(why?: 'hung' | 'late'): void {
    this.#killed ??= why;
    this.#worker.process.kill('SIGKILL');
  }

  #hear(message: FromWorker): void {
    switch (message.kind) {
      case 'hello':
        this.send(this.#options.greet());
        return;
      case 'ready':
        this.#heardAt = this.#options.now();
        this.#state = 'serving';
        this.#hasServed = true;
        this.#options.onReady(message.url);
        return;
      case 'failed':
        this.#failure = message.message;
        return;
      case 'beat':
        this.#heardAt = this.#options.now();
        this.#inFlight = message.inFlight;
        this.#health = message.health ?? this.#health;
        return;
      case 'report':
        this.#report = message.report;
        for (const done of this.#waiters.splice(0)) done();
        return;
      case 'leaving':
        this.#state = 'leaving';
        this.#options.onLeaving();
    }
  }

  #end(end: Ended): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    for (const done of this.#waiters.splice(0)) done();
    this.#options.onEnded(end);
  }
}

/** What is longer is no line of a log. */
const MAX_LINE = 16 * 1024 * 1024;

/** A line that was cut by the end of its process is left out: half of a JSON object is of no use to anybody. */
function readLines(stream: NodeJS.ReadableStream | null, onLine: (line: string) => void): void {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  stream?.on('data', (bytes: Buffer) => {
    const text = rest + decoder.write(bytes);
    const end = text.lastIndexOf('\n') + 1;
    rest = text.length - end > MAX_LINE ? '' : text.slice(end);
    for (const line of text.slice(0, end).split(/(?<=\n)/)) if (line !== '') onLine(line);
  });
  stream?.on('error', () => undefined);
}
