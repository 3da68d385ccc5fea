// One worker of several, from its first message to its end: it starts a gateway with what the primary gives it, does what it is
// told, and drains by itself when the primary is gone. Signals are the primary's: those that reach a whole process group
// (Ctrl-C, a service manager) are not heard here, so that they do not count twice.
import cluster from 'node:cluster';
import { parseBytes } from '../config/load-config.ts';
import { reloadableConfig } from '../config/reloadable.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { FileBytes } from '../config/source/config-file.ts';
import type { HealthReport } from '../http/admin/health.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import {
  BEAT_MS,
  type FromWorker,
  REPORT_MS,
  type ToWorker,
  WORKER_VARIABLE,
  type WorkerReport,
  type WorkerStart,
} from './worker-messages.ts';

/** The most of its time that a worker spends on reports nobody asked for. */
const REPORT_SHARE = 0.01;

/** What a gateway does for the primary that it belongs to. */
export interface WorkerMember {
  /** Puts this content of the file in force, or keeps what is. */
  take(bytes: Buffer): void;
  /** The file holds something that cannot be used; the primary has said what is wrong with it. */
  refuse(): void;
  health(): Promise<HealthReport>;
  report(): Promise<WorkerReport>;
}

/** A gateway in a worker. */
interface WorkerApp {
  readonly config: Config;
  readonly url: string;
  readonly inFlight: number;
  readonly member: WorkerMember;
  close(): Promise<boolean>;
}

/** Of a worker's gateway, beside what every gateway is told. */
export interface WorkerSlot {
  /** Of the public listener. */
  readonly port: number;
  /** How many workers share what the configuration says of all together. */
  readonly count: number;
}

interface WorkerOptions {
  readonly env: NodeJS.ProcessEnv;
  /** With the number of the worker in every line. */
  readonly logger: Logger;
  readonly start: (
    loaded: { readonly config: Config; readonly source: FileBytes },
    slot: WorkerSlot,
  ) => Promise<WorkerApp>;
  /** Why it did not start, in words. */
  readonly describe: (error: unknown) => string;
  /** Writes out what is left of the log. */
  readonly flush: () => Promise<void>;
}

/** The number of this worker, from 1; undefined when this process is none. To be asked once. */
export function workerNumber(env: NodeJS.ProcessEnv): number | undefined {
  const text = env[WORKER_VARIABLE];
  delete env[WORKER_VARIABLE];
  return text === undefined || !cluster.isWorker ? undefined : Number(text);
}

/** Serves until it is told to end. @returns the exit code: 0 when everything was closed as it should be */
export async function runWorker(options: WorkerOptions): Promise<number> {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined);
  const code = await new WorkerRun(options).run();
  await options.flush();
  // The channel alone would keep it.
  if (process.connected) process.disconnect?.();
  return code;
}

class WorkerRun {
  readonly #options: WorkerOptions;
  readonly #begun = Promise.withResolvers<WorkerStart>();
  /** Resolves with the exit code that a clean end has. */
  readonly #stopped = Promise.withResolvers<0 | 1>();
  #app: WorkerApp | undefined;
  /** What was said while it started, newest last. */
  #early: ToWorker[] = [];
  #isStopped = false;
  #health: HealthReport | undefined;
  #reporting: NodeJS.Timeout | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  async run(): Promise<number> {
    const { logger, env, start, describe } = this.#options;
    this.#listen();
    say({ kind: 'hello' });
    const begin = await Promise.race([this.#begun.promise, this.#stopped.promise]);
    if (typeof begin === 'number') return begin;
    let app: WorkerApp;
    try {
      app = await start(loadedFrom(begin, env), { port: begin.port, count: begin.count });
    } catch (error) {
      await saidFully({ kind: 'failed', message: describe(error) });
      return 1;
    }
    this.#app = app;
    if (begin.isRejected) app.member.refuse();
    for (const message of this.#early.splice(0)) this.#hear(message);
    if (!this.#isStopped) say({ kind: 'ready', url: app.url });
    const beating = setInterval(() => this.#beat(app), BEAT_MS);
    this.#beat(app);
    this.#reportIn(app, REPORT_MS);
    logger.info({ pid: process.pid }, 'a worker serves');

    const isEarly = this.#isStopped;
    const code = await this.#stopped.promise;
    const closing = app.close();
    // Told to stop while it started: it has promised nothing to anybody.
    if (isEarly) void app.close();
    const isClean = await closing;
    clearInterval(beating);
    clearTimeout(this.#reporting);
    await this.#report(app);
    return isClean ? code : 1;
  }

  #listen(): void {
    const { logger } = this.#options;
    process.on('message', (message: ToWorker) => this.#hear(message));
    const { worker } = cluster;
    worker?.on('disconnect', () => {
      // Node would end the process here, with all that runs.
      worker.exitedAfterDisconnect = true;
      if (!this.#isStopped)
        logger.warn({ pid: process.pid }, 'the primary is gone: the worker drains, and ends');
      // A start may wait for something, and nobody needs its end.
      if (this.#app === undefined) process.exit(1);
      this.#stop(0);
    });
    process.on('uncaughtException', (err) => {
      logger.fatal({ err }, 'an exception that nothing caught: the worker drains, and ends');
      if (this.#isStopped) return;
      say({ kind: 'leaving' });
      this.#stop(1);
    });
    process.on('unhandledRejection', (err) =>
      logger.error({ err }, 'a promise failed that nobody waited for'),
    );
  }

  #hear(message: ToWorker): void {
    if (message.kind === 'begin') this.#begun.resolve(message);
    else if (message.kind === 'close') {
      if (this.#isStopped) void this.#app?.close();
      else this.#stop(0);
    } else if (this.#app === undefined) this.#early.push(message);
    else this.#act(this.#app, message);
  }

  #act(app: WorkerApp, message: Exclude<ToWorker, { kind: 'begin' | 'close' }>): void {
    switch (message.kind) {
      case 'config': {
        app.member.take(message.bytes);
        const { hash } = app.config;
        if (hash === message.hash) return;
        const words = 'this worker could not take over the configuration, and goes on with its last one';
        this.#options.logger.error({ config_hash: hash, wanted: message.hash }, words);
        return;
      }
      case 'rejected':
        app.member.refuse();
        return;
      case 'report':
        void this.#report(app);
    }
  }

  #stop(code: 0 | 1): void {
    this.#isStopped = true;
    this.#stopped.resolve(code);
  }

  /** It waits for nothing: a store that hangs is no hung worker. */
  #beat(app: WorkerApp): void {
    const health = this.#health;
    say({ kind: 'beat', inFlight: app.inFlight, ...(health === undefined ? {} : { health }) });
    void app.member.health().then((report) => {
      if (this.#health === undefined) say({ kind: 'beat', inFlight: app.inFlight, health: report });
      this.#health = report;
    });
  }

  #reportIn(app: WorkerApp, ms: number): void {
    this.#reporting = setTimeout(async () => {
      const began = performance.now();
      await this.#report(app);
      // With thousands of models it takes long, and requests wait meanwhile.
      if (!this.#isStopped)
        this.#reportIn(app, Math.max(REPORT_MS, (performance.now() - began) / REPORT_SHARE));
    }, ms);
  }

  async #report(app: WorkerApp): Promise<void> {
    await saidFully({ kind: 'report', report: await app.member.report() });
  }
}

/** What was given at the start of the primary with what is in force now, as a process that lived through both has it. */
function loadedFrom({ file, first, bytes }: WorkerStart, env: NodeJS.ProcessEnv) {
  const config = parseBytes(first, file, env);
  const source: FileBytes = { bytes, isRegular: false };
  if (first.equals(bytes)) return { config, source };
  return { config: reloadableConfig(config, parseBytes(bytes, file, env)).config, source };
}

function say(message: FromWorker): void {
  // Whoever does not hear it any more needs no answer.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

function saidFully(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}
