// The lifecycle of a worker process: starts a gateway with the configuration from the primary, follows its messages, and drains
// when the primary is gone. It ignores signals, which the primary handles: Ctrl-C or a service manager may signal the whole group.
import cluster from 'node:cluster';
import { parseBytes } from '../config/load-config.ts';
import { reloadableConfig } from '../config/reloadable.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { FileBytes } from '../config/source/config-file.ts';
import { type FileContents, ReferencedFiles } from '../config/source/referenced-files.ts';
import type { HealthReport } from '../http/admin/health.ts';
import { stayAfterDisconnect } from '../http/exchange/node-internals.ts';
import { Repeat } from '../repeat.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import {
  CONNECTIONS_MS,
  type FromWorker,
  HEARTBEAT_MS,
  REPORT_MS,
  type ToWorker,
  WORKER_VARIABLE,
  type WorkerReport,
  type WorkerStart,
} from './worker-messages.ts';

/** Maximum share of a worker's time for unrequested reports. */
const REPORT_SHARE = 0.01;

/** What the primary can ask of a worker's gateway. */
export interface WorkerMember {
  /** Applies this file content with these values of files; keeps the configuration in force when it is invalid. */
  reload(bytes: Buffer, files: FileContents): void;
  /** Notes that the file is invalid. The primary has logged why. */
  markRejected(): void;
  /** Closes connections behind their next responses, all but so many. */
  shed(keep: number): void;
  health(): Promise<HealthReport>;
  report(): Promise<WorkerReport>;
}

/** A gateway in a worker. */
interface WorkerApp {
  readonly config: Config;
  readonly url: string;
  readonly inFlight: number;
  readonly connections: number;
  readonly member: WorkerMember;
  close(): Promise<boolean>;
}

/** The options that only a worker's gateway has. */
export interface WorkerSlot {
  /** Port of the public listener. */
  readonly port: number;
  /** Number of workers that share the limits that the configuration sets for all of them together. */
  readonly count: number;
}

/** A configuration with what it was read from. */
export interface LoadedConfig {
  readonly config: Config;
  readonly source: FileBytes;
  readonly files: ReferencedFiles;
}

interface WorkerOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Has the worker number in every line. */
  readonly logger: Logger;
  readonly start: (loaded: LoadedConfig, slot: WorkerSlot) => Promise<WorkerApp>;
  /** The operator's message for a failed start. */
  readonly describe: (error: unknown) => string;
  /** Flushes the log. */
  readonly flush: () => Promise<void>;
}

/** @returns the number of this worker, from 1; undefined when this process is not a worker. Call it once. */
export function workerNumber(env: NodeJS.ProcessEnv): number | undefined {
  const text = env[WORKER_VARIABLE];
  delete env[WORKER_VARIABLE];
  return text === undefined || !cluster.isWorker ? undefined : Number(text);
}

/** Serves until the primary asks it to stop. @returns the exit code: 0 after a clean shutdown */
export async function runWorker(options: WorkerOptions): Promise<number> {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined);
  const code = await new WorkerRun(options).run();
  await options.flush();
  // An open channel would keep the process alive.
  if (process.connected) process.disconnect?.();
  return code;
}

class WorkerRun {
  readonly #options: WorkerOptions;
  readonly #begin = Promise.withResolvers<WorkerStart>();
  /** Resolves with the exit code for a clean shutdown. */
  readonly #stopped = Promise.withResolvers<0 | 1>();
  #app: WorkerApp | undefined;
  /** Messages received during the start, newest last. */
  #earlyMessages: ToWorker[] = [];
  #isStopped = false;
  #health: HealthReport | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  async run(): Promise<number> {
    const { logger, env, start, describe } = this.#options;
    this.#listen();
    send({ kind: 'hello' });
    const begin = await Promise.race([this.#begin.promise, this.#stopped.promise]);
    if (typeof begin === 'number') return begin;
    let app: WorkerApp;
    try {
      app = await start(loadedFrom(begin, env), { port: begin.port, count: begin.count });
    } catch (error) {
      await sendAndWait({ kind: 'failed', message: describe(error) });
      return 1;
    }
    this.#app = app;
    if (begin.isRejected) app.member.markRejected();
    for (const message of this.#earlyMessages.splice(0)) this.#onMessage(message);
    if (!this.#isStopped) send({ kind: 'ready', url: app.url });
    const heartbeat = setInterval(() => this.#sendHeartbeat(app), HEARTBEAT_MS);
    this.#sendHeartbeat(app);
    let told = 0;
    const connections = setInterval(() => {
      const count = app.connections;
      if (count !== told) send({ kind: 'connections', count });
      told = count;
    }, CONNECTIONS_MS);
    const reports = new Repeat(async () => {
      const began = performance.now();
      await this.#report(app);
      // With thousands of models a report is slow and blocks requests.
      return Math.max(REPORT_MS, (performance.now() - began) / REPORT_SHARE);
    });
    reports.start(REPORT_MS);
    logger.info({ pid: process.pid }, 'worker ready');

    const isEarly = this.#isStopped;
    const code = await this.#stopped.promise;
    void reports.stop();
    const closing = app.close();
    // Stopped during the start: there are no requests to drain.
    if (isEarly) void app.close();
    const isClean = await closing;
    clearInterval(connections);
    clearInterval(heartbeat);
    await this.#report(app);
    return isClean ? code : 1;
  }

  #listen(): void {
    const { logger } = this.#options;
    process.on('message', (message: ToWorker) => this.#onMessage(message));
    const { worker } = cluster;
    worker?.on('disconnect', () => {
      stayAfterDisconnect(worker);
      if (!this.#isStopped) logger.warn({ pid: process.pid }, 'the primary is gone; draining and exiting');
      // A pending start may be blocked and is no longer needed.
      if (this.#app === undefined) process.exit(1);
      this.#stop(0);
    });
    process.on('uncaughtException', (err) => {
      logger.fatal({ err }, 'uncaught exception; draining and exiting');
      if (this.#isStopped) return;
      send({ kind: 'leaving' });
      this.#stop(1);
    });
    process.on('unhandledRejection', (err) => logger.error({ err }, 'unhandled promise rejection'));
  }

  #onMessage(message: ToWorker): void {
    if (message.kind === 'begin') this.#begin.resolve(message);
    else if (message.kind === 'close') {
      if (this.#isStopped) void this.#app?.close();
      else this.#stop(0);
    } else if (this.#app === undefined) this.#earlyMessages.push(message);
    else this.#handle(this.#app, message);
  }

  #handle(app: WorkerApp, message: Exclude<ToWorker, { kind: 'begin' | 'close' }>): void {
    switch (message.kind) {
      case 'config': {
        app.member.reload(message.bytes, message.files);
        const { hash } = app.config;
        if (hash === message.hash) return;
        const text = 'this worker failed to apply the configuration; keeping its previous one';
        this.#options.logger.error({ config_hash: hash, wanted: message.hash }, text);
        return;
      }
      case 'rejected':
        app.member.markRejected();
        return;
      case 'shed':
        app.member.shed(message.keep);
        return;
      case 'report':
        void this.#report(app);
    }
  }

  #stop(code: 0 | 1): void {
    this.#isStopped = true;
    this.#stopped.resolve(code);
  }

  /** Does not wait for the health checks: a store that hangs must not make the worker look hung. */
  #sendHeartbeat(app: WorkerApp): void {
    const health = this.#health;
    send({ kind: 'beat', inFlight: app.inFlight, ...(health === undefined ? {} : { health }) });
    void app.member.health().then((report) => {
      if (this.#health === undefined) send({ kind: 'beat', inFlight: app.inFlight, health: report });
      this.#health = report;
    });
  }

  async #report(app: WorkerApp): Promise<void> {
    await sendAndWait({ kind: 'report', report: await app.member.report() });
  }
}

/** The static configuration of the primary's start with the dynamic one in force, as after a reload in one process. */
function loadedFrom(begin: WorkerStart, env: NodeJS.ProcessEnv): LoadedConfig {
  const { file, first, firstFiles, bytes } = begin;
  const files = new ReferencedFiles(file, begin.files);
  const initial = parseBytes(first, file, env, new ReferencedFiles(file, firstFiles));
  const { config } = reloadableConfig(initial, parseBytes(bytes, file, env, files));
  return { config, source: { bytes, isRegular: false }, files };
}

function send(message: FromWorker): void {
  // Errors are ignored: without a channel there is no receiver.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

function sendAndWait(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}
