// The command line: which command, its arguments, signals and exit codes. What a command does is elsewhere.
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type App, type AppOptions, startApp, VERSION } from './app.ts';
import { faultReport, runCheck } from './cli/check-command.ts';
import { runExplain } from './cli/explain-command.ts';
import { runInit } from './cli/init-command.ts';
import { runKeys } from './cli/keys-commands.ts';
import { runOrders } from './cli/orders-commands.ts';
import type { CommandIo } from './cli/support-command.ts';
import { runUsage } from './cli/usage-command.ts';
import { parseBytes } from './config/load-config.ts';
import { ConfigError } from './config/schema/config-fault.ts';
import { readConfigFile } from './config/source/config-file.ts';
import { tuneHeap } from './process/heap-tuning.ts';
import { type Primary, startPrimary, workerCount } from './process/primary.ts';
import { Signals } from './process/signals.ts';
import { runWorker, workerNumber } from './process/worker.ts';
import { openStore } from './store/open.ts';
import { maskKeys } from './telemetry/log/key-mask.ts';
import { createLogger, type Logger, writeWorkerLine } from './telemetry/log/logger.ts';

const USAGE = `tollgate ${VERSION}, an OpenAI-compatible gateway

  tollgate init              write a config.yaml to begin with
  tollgate serve             run the gateway; with --new-store also where the former store is gone, without its keys
  tollgate check             check a configuration and say what it means
  tollgate explain           where a request would go: --model M [--tier T] [--json]
  tollgate keys issue        make a key: --tier Free|Lite|Pro [--label TEXT]
  tollgate keys list         all keys, without their secrets
  tollgate keys show         one key and what happened to it: PREFIX
  tollgate keys revoke       end a key for ever: PREFIX [--reason TEXT]
  tollgate orders            who ordered what, and whether it is paid: list, show, check, trust, lapse
  tollgate usage             what was used: [--key PREFIX] [--tier T] [--since 7d] [--by model|day|upstream] [--json|--csv]

All of them take --config FILE (default ./config.yaml). --version and --help say what they say.
`;

const OK = 0;
const FAILED = 1;
const WRONG_USAGE = 2;

/**
 * Runs one command.
 * @param argv arguments without the interpreter and the script
 * @param io of all commands but `serve`, which is the whole process
 * @returns the exit code; `serve` returns when it has been told to stop and everything is closed
 */
export async function main(argv: string[], io: CommandIo = process): Promise<number> {
  const [command, ...rest] = argv;
  switch (command) {
    case 'serve':
    case 'check': {
      const isNewStore = command === 'serve' && rest.includes('--new-store');
      const file = configFile(isNewStore ? rest.filter((word) => word !== '--new-store') : rest, io);
      if (file === undefined) return WRONG_USAGE;
      return command === 'serve' ? serve(file, isNewStore) : runCheck(file, io.env, io);
    }
    case 'init':
      return runInit(rest, io);
    case 'keys':
      return runKeys(rest, io);
    case 'orders':
      return runOrders(rest, io);
    case 'usage':
      return runUsage(rest, io);
    case 'explain':
      return runExplain(rest, io);
    case '--version':
    case '-v':
      io.stdout.write(`${VERSION}\n`);
      return OK;
    case '--help':
    case '-h':
      io.stdout.write(USAGE);
      return OK;
    default:
      io.stderr.write(
        command === undefined ? USAGE : `tollgate: there is no command ${maskKeys(command)}\n\n${USAGE}`,
      );
      return WRONG_USAGE;
  }
}

/** The value of `--config`; undefined, after saying why, when the arguments are wrong. */
function configFile(argv: string[], { stderr }: CommandIo): string | undefined {
  try {
    const { values } = parseArgs({
      args: argv,
      options: { config: { type: 'string', default: './config.yaml' } },
    });
    return values.config;
  } catch (error) {
    stderr.write(`tollgate: ${maskKeys(error instanceof Error ? error.message : String(error))}\n\n${USAGE}`);
    return undefined;
  }
}

/** One process that serves, or the one above several. */
type Served = Pick<App, 'config' | 'url' | 'adminUrl' | 'inFlight' | 'reload' | 'close'> &
  Partial<Pick<Primary, 'workers'>>;

/** The gateway of this process, and V8 set for it. */
async function startServing(options: AppOptions): Promise<App> {
  const app = await startApp(options);
  tuneHeap();
  return app;
}

async function start(
  file: string,
  isNewStore: boolean,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Promise<Served> {
  const source = readConfigFile(file);
  const config = parseBytes(source.bytes, file, env);
  // Once, here: a worker that starts later must not replace a store that vanished meanwhile.
  if (isNewStore) await (await openStore(config.static.store, { createNew: true })).close();
  if (workerCount(config.static.workers) === 1) {
    return startServing({ configFile: file, env, logger, loaded: { config, source } });
  }
  const exec = fileURLToPath(import.meta.url);
  const args = ['serve', '--config', file];
  return startPrimary({ config, source, env, logger, version: VERSION, exec, args, onLine: writeWorkerLine });
}

/** As one of several: everything but the log goes through the primary. */
async function serveAsWorker(file: string, number: number): Promise<number> {
  const logger = createLogger().child({ worker: number });
  const { env } = process;
  const code = await runWorker({
    env,
    logger,
    start: (loaded, slot) => startServing({ configFile: file, env, logger, loaded, slot }),
    describe: startFault,
    flush: () => flushLog(logger),
  });
  setTimeout(() => process.exit(), EXIT_MS).unref();
  return code;
}

async function serve(file: string, isNewStore: boolean): Promise<number> {
  const number = workerNumber(process.env);
  if (number !== undefined) return serveAsWorker(file, number);
  const signals = new Signals();
  // A reader that has gone (a closed terminal, say) ends no gateway.
  process.stderr.on('error', () => undefined);
  const logger = createLogger();
  let app: Served;
  try {
    app = await start(file, isNewStore, process.env, logger);
  } catch (error) {
    process.stderr.write(`${startFault(error)}\n`);
    return FAILED;
  }
  signals.attend({
    onHurry: () => void app.close(),
    onReload: () => void app.reload(),
    onRejection: (err) => logger.error({ err }, 'a promise failed that nobody waited for'),
    onFault: (err) => logger.fatal({ err }, 'an exception that nothing caught'),
  });
  const isEarly = signals.isStopped;
  // For people, and apart from the log on stdout, which is for programs.
  if (!isEarly) process.stderr.write(welcome(app));

  const reason = await signals.stopped;
  if (reason.kind === 'fault') {
    logger.fatal({ err: reason.error }, 'an exception that nothing caught: the process drains, and ends');
  }
  process.stderr.write(
    `${reason.kind === 'signal' ? reason.name : 'fault'}: ${app.inFlight} running requests may end; a second signal ends them at once\n`,
  );
  const closing = app.close();
  // Told to stop while it started: it has promised nothing to anybody.
  if (isEarly) void app.close();
  const isClean = await closing;
  await flushLog(logger);
  // Nothing is left to do; what still hangs (a disk that does not answer, say) is left behind.
  setTimeout(() => process.exit(), EXIT_MS).unref();
  return isClean && reason.kind === 'signal' ? OK : FAILED;
}

/** How long the end waits for a reader of the log that does not read. */
const LOG_FLUSH_MS = 1_000;
/** From there to an exit that waits for nothing. */
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

/** Why it did not start, in words for whoever has to change something; a stack only for what nobody foresaw. */
function startFault(error: unknown): string {
  if (error instanceof ConfigError) return faultReport(error);
  if (!(error instanceof Error)) return `tollgate: ${String(error)}`;
  const code: unknown = Reflect.get(error, 'code');
  const address = `${String(Reflect.get(error, 'address'))}:${String(Reflect.get(error, 'port'))}`;
  if (code === 'EADDRINUSE') {
    return `tollgate: ${address} is in use. Set listen.port (or the variable PORT) or admin.port to another port, 0 for a free one.`;
  }
  if (code === 'EADDRNOTAVAIL')
    return `tollgate: ${address} is no address of this machine. Set listen.host or admin.host.`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `tollgate: the host name ${String(Reflect.get(error, 'hostname'))} cannot be resolved. Set listen.host or admin.host.`;
  }
  if (code === 'EACCES' && Reflect.get(error, 'syscall') === 'listen') {
    return `tollgate: this process may not listen on ${address}.`;
  }
  if (error.name === 'WorkersStartError') return error.message;
  if (error.name === 'StoreOpenError' || error.name === 'SecretError') return `tollgate: ${error.message}`;
  return `tollgate: ${error.stack ?? error.message}`;
}

/** Whether this file is what Node was asked to run, also by way of a link. */
function isEntryPoint(): boolean {
  const script = process.argv[1];
  return script !== undefined && realpathSync(script) === fileURLToPath(import.meta.url);
}

if (isEntryPoint()) process.exitCode = await main(process.argv.slice(2));
