// `tollgate serve`: starts the gateway, and owns its signals and exit codes.
import { availableParallelism } from 'node:os';
import { type App, type AppOptions, loadFiles, startApp } from './app.ts';
import { CONFIG, command, type Definition, flag } from './cli/program/command.ts';
import type { CommandRunner } from './console/console-desk.ts';
import { fixGlobals } from './http/exchange/node-internals.ts';
import { VERSION } from './package-files.ts';
import { releaseMemoryAtRest, tuneHeap } from './process/heap-tuning.ts';
import type { Primary } from './process/primary.ts';
import { Signals } from './process/signals.ts';
import { WORKER_VARIABLE } from './process/worker-messages.ts';
import { startFault } from './start-fault.ts';
import { openStore } from './store/open.ts';
import { createLogger, type Logger, writeWorkerLines } from './telemetry/log/logger.ts';

/** After the start, when its first requests have been answered. Before the heap is collected at rest. */
const REST_MS = 1000;
const OK = 0;
const FAILED = 1;

/**
 * @param exec the file that a worker runs: the entry point of this program
 * @param commands the command line, for the API of the admin listener
 * @param loadCommands loads all that it can run
 */
export function serveCommand(
  exec: string,
  commands: CommandRunner,
  loadCommands: () => Promise<unknown>,
): Definition {
  return command('serve', 'run the gateway', {
    detail: 'SIGTERM and SIGINT drain it; SIGHUP re-reads the configuration.',
    options: { newStore: flag('create an empty store where the previous one is gone'), config: CONFIG },
    examples: ['serve', 'serve --config /etc/tollgate/config.yaml'],
    // It uses the streams and the environment of the process.
    run: ({ config, newStore }) =>
      serve(config, newStore, { exec, commands, loadCommands }).catch((error: unknown) => {
        process.stderr.write(`${startFault(error)}\n`);
        return FAILED;
      }),
  });
}

interface ServedProgram {
  readonly exec: string;
  readonly commands: CommandRunner;
  readonly loadCommands: () => Promise<unknown>;
}

/** The gateway of this process, or the primary of several workers. */
type Served = Pick<App, 'config' | 'url' | 'adminUrl' | 'inFlight' | 'loadRest' | 'reload' | 'close'> &
  Partial<Pick<Primary, 'workers'>>;

/** Starts the gateway in this process and tunes V8 for it. */
async function startServing(options: AppOptions): Promise<App> {
  const app = await startApp(options);
  fixGlobals();
  tuneHeap();
  releaseMemoryAtRest(() => app.inFlight > 0);
  return app;
}

async function start(
  file: string,
  isNewStore: boolean,
  { exec, commands }: ServedProgram,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Promise<Served> {
  const loaded = loadFiles(file, env);
  const { config } = loaded;
  // Only once, here: a worker that restarts later must not replace a store that has disappeared.
  if (isNewStore) await (await openStore(config.static.store, { createNew: true })).close();
  const { workers } = config.static;
  // `auto` is the number of available CPUs, with the container's limit applied.
  const count = workers === 'auto' ? availableParallelism() : workers;
  if (count === 1) return startServing({ configFile: file, env, logger, loaded, commands });
  const args = ['serve', '--config', file];
  const { startPrimary } = await import('./process/primary.ts');
  const program = { version: VERSION, exec, args, commands };
  return startPrimary({ ...loaded, ...program, count, env, logger, onLines: writeWorkerLines });
}

/** Loads what is left. A process whose files have been replaced before has to be restarted for it. */
function loadLater(loads: readonly (() => Promise<unknown>)[], logger: Logger): void {
  const load = () =>
    Promise.all(loads.map((each) => each())).then(
      () => logger.debug('loaded what the start left'),
      (err) => logger.error({ err }, 'failed to load what the start left; restart the gateway'),
    );
  setTimeout(() => void load(), REST_MS).unref();
}

/** Runs as a worker: the primary controls everything except the log. @returns undefined if this process is not a worker */
async function serveAsWorker(file: string): Promise<number | undefined> {
  const { runWorker, workerNumber } = await import('./process/worker.ts');
  const number = workerNumber(process.env);
  if (number === undefined) return undefined;
  const logger = createLogger().child({ worker: number });
  const { env } = process;
  const code = await runWorker({
    env,
    logger,
    async start(loaded, slot) {
      const app = await startServing({ configFile: file, env, logger, loaded, slot });
      loadLater([app.loadRest], logger);
      return app;
    },
    describe: startFault,
    flush: () => flushLog(logger),
  });
  setTimeout(() => process.exit(), EXIT_MS).unref();
  return code;
}

async function serve(file: string, isNewStore: boolean, program: ServedProgram): Promise<number> {
  const code = WORKER_VARIABLE in process.env ? await serveAsWorker(file) : undefined;
  if (code !== undefined) return code;
  const signals = new Signals();
  // A closed terminal must not end the gateway.
  process.stderr.on('error', () => undefined);
  const logger = createLogger();
  let app: Served;
  try {
    app = await start(file, isNewStore, program, process.env, logger);
  } catch (error) {
    process.stderr.write(`${startFault(error)}\n`);
    return FAILED;
  }
  signals.listen({
    onSecondStop: () => void app.close(),
    onReload: () => void app.reload(),
    onRejection: (err) => logger.error({ err }, 'unhandled promise rejection'),
    onFault: (err) => logger.fatal({ err }, 'uncaught exception'),
  });
  loadLater([app.loadRest, program.loadCommands], logger);
  const isEarly = signals.isStopped;
  // For people, on stderr; the log on stdout is for programs.
  if (!isEarly) process.stderr.write(welcome(app));

  const reason = await signals.stopped;
  if (reason.kind === 'fault') {
    logger.fatal({ err: reason.error }, 'uncaught exception; draining and exiting');
  }
  const { inFlight } = app;
  process.stderr.write(
    `${reason.kind === 'signal' ? reason.name : 'fault'}: draining ${inFlight} ${inFlight === 1 ? 'request' : 'requests'}; send the signal again to stop now\n`,
  );
  const closing = app.close();
  // Stopped during startup: there are no requests to drain.
  if (isEarly) void app.close();
  const isClean = await closing;
  await flushLog(logger);
  // Shutdown is complete. Do not wait for anything that still hangs, such as a stalled disk.
  setTimeout(() => process.exit(), EXIT_MS).unref();
  return isClean && reason.kind === 'signal' ? OK : FAILED;
}

/** How long shutdown waits for a blocked reader of the log. */
const LOG_FLUSH_MS = 1_000;
/** Time from there to the forced exit. */
const EXIT_MS = 1_000;

function flushLog(logger: Logger): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, LOG_FLUSH_MS).unref();
    logger.flush(() => resolve());
  });
}

function welcome({ url, adminUrl, config, workers }: Served): string {
  return `tollgate ${VERSION} listening on ${url}
  metrics and probes   ${adminUrl}/metrics, /livez, /readyz
  configuration        ${config.file} (${config.hash})${workers === undefined ? '' : `\n  workers              ${workers}`}
  a first key          in a browser: ${url}/pricing
                       in a shell:   curl -s ${url}/checkout -H 'content-type: application/json' -d '{"tier":"Free"}'
                       as support:   npx tollgate keys issue --tier Pro
`;
}
