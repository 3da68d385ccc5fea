// The command line: selects the command, and owns signals and exit codes. The commands are in cli/.
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type App, type AppOptions, startApp, VERSION } from './app.ts';
import { didYouMean, readArguments } from './cli/arguments.ts';
import { runCheck } from './cli/check-command.ts';
import { runExplain } from './cli/explain-command.ts';
import { runInit } from './cli/init-command.ts';
import { runOrders } from './cli/orders-commands.ts';
import { runHolders } from './cli/owners/holder-commands.ts';
import { runKeys } from './cli/owners/keys-commands.ts';
import { runTeams } from './cli/owners/team-commands.ts';
import { type CommandIo, type CommandText, runCommand } from './cli/support-command.ts';
import { runUpstreams } from './cli/upstreams/upstreams-command.ts';
import { runUsage } from './cli/usage/usage-command.ts';
import { ConfigError, faultReport } from './config/config-fault.ts';
import { parseBytes } from './config/load-config.ts';
import { readConfigFile } from './config/source/config-file.ts';
import { ReferencedFiles } from './config/source/referenced-files.ts';
import { tuneHeap } from './process/heap-tuning.ts';
import { type Primary, startPrimary, workerCount } from './process/primary.ts';
import { Signals } from './process/signals.ts';
import { runWorker, workerNumber } from './process/worker.ts';
import { openStore } from './store/open.ts';
import { maskKeys } from './telemetry/log/key-mask.ts';
import { createLogger, type Logger, writeWorkerLine } from './telemetry/log/logger.ts';

const USAGE = `tollgate ${VERSION}, an OpenAI-compatible gateway

  tollgate init        write a first config.yaml
  tollgate serve       run the gateway
  tollgate check       validate a configuration and summarize it
  tollgate explain     show where a request for a model would go
  tollgate keys        issue and change keys: issue, list, show, events, set, revoke, tier, suspend, resume
  tollgate holders     find and change holders of keys: list, show, set, tier, suspend, resume
  tollgate teams       groups of holders: add, list, show, set, remove
  tollgate orders      orders and their payments: list, show, check, cancel, refund, portal-link, paid, trust, lapse
  tollgate upstreams   states of upstreams, and taking one out of service: list, show, events, drain, resume
  tollgate usage       report usage; close months: months, close, export

tollgate COMMAND --help describes a command. All take --config FILE (default ./config.yaml). --version prints the version.
`;

const SERVE: CommandText = {
  name: 'serve',
  usage: `Usage: tollgate serve [--new-store] [--config FILE]

Runs the gateway with the configuration FILE (default ./config.yaml). SIGTERM and SIGINT drain it; SIGHUP re-reads the file.
--new-store creates an empty store where the previous one is gone.
`,
};

const COMMANDS: Readonly<Record<string, (argv: readonly string[], io: CommandIo) => Promise<number>>> = {
  init: runInit,
  serve: runServe,
  check: runCheck,
  explain: runExplain,
  keys: runKeys,
  holders: runHolders,
  teams: runTeams,
  orders: runOrders,
  upstreams: runUpstreams,
  usage: runUsage,
};

const OK = 0;
const FAILED = 1;
const WRONG_USAGE = 2;

/**
 * Runs one command.
 * @param argv arguments without the interpreter and the script
 * @param io streams and environment for all commands except `serve`, which uses those of the process
 * @returns the exit code; `serve` returns after shutdown
 */
export async function main(argv: string[], io: CommandIo = process): Promise<number> {
  const [command, ...rest] = argv;
  switch (command) {
    case '--version':
    case '-v':
      io.stdout.write(`${VERSION}\n`);
      return OK;
    case 'help':
    case '--help':
    case '-h':
      io.stdout.write(USAGE);
      return OK;
    case undefined:
      io.stderr.write(USAGE);
      return WRONG_USAGE;
  }
  const run = Object.entries(COMMANDS).find(([name]) => name === command)?.[1];
  if (run !== undefined) return run(rest, io);
  const near = didYouMean(command, Object.keys(COMMANDS));
  io.stderr.write(`tollgate: unknown command ${maskKeys(command)}${near}; see tollgate --help\n`);
  return WRONG_USAGE;
}

/** A fault of the gateway keeps its stack: only the arguments are read as those of other commands. */
async function runServe(argv: readonly string[], io: CommandIo): Promise<number> {
  let start: (() => Promise<number>) | undefined;
  const code = await runCommand(SERVE, argv, io, async () => {
    const given = readArguments(argv, { config: 'text', 'new-store': 'flag' });
    start = () => serve(given.text('config') ?? './config.yaml', given.flag('new-store'));
    return OK;
  });
  return start === undefined ? code : start();
}

/** The gateway of this process, or the primary of several workers. */
type Served = Pick<App, 'config' | 'url' | 'adminUrl' | 'inFlight' | 'reload' | 'close'> &
  Partial<Pick<Primary, 'workers'>>;

/** Starts the gateway in this process and tunes V8 for it. */
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
  const files = new ReferencedFiles(file);
  const config = parseBytes(source.bytes, file, env, files);
  // Only once, here: a worker that restarts later must not replace a store that has disappeared.
  if (isNewStore) await (await openStore(config.static.store, { createNew: true })).close();
  if (workerCount(config.static.workers) === 1) {
    return startServing({ configFile: file, env, logger, loaded: { config, source, files } });
  }
  const exec = fileURLToPath(import.meta.url);
  const args = ['serve', '--config', file];
  return startPrimary({
    config,
    source,
    files,
    env,
    logger,
    version: VERSION,
    exec,
    args,
    onLine: writeWorkerLine,
  });
}

/** Runs as a worker: the primary controls everything except the log. */
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
  // A closed terminal must not end the gateway.
  process.stderr.on('error', () => undefined);
  const logger = createLogger();
  let app: Served;
  try {
    app = await start(file, isNewStore, process.env, logger);
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

/** The operator's message for a failed start; it has a stack only for unexpected errors. */
function startFault(error: unknown): string {
  if (error instanceof ConfigError) return faultReport(error);
  if (!(error instanceof Error)) return `tollgate: ${String(error)}`;
  const code: unknown = Reflect.get(error, 'code');
  const address = `${String(Reflect.get(error, 'address'))}:${String(Reflect.get(error, 'port'))}`;
  if (code === 'EADDRINUSE') {
    return `tollgate: ${address} is in use. Set listen.port (or the variable PORT) or admin.port to another port, 0 for a free one.`;
  }
  if (code === 'EADDRNOTAVAIL')
    return `tollgate: ${address} is not an address of this machine. Set listen.host or admin.host.`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `tollgate: the host name ${String(Reflect.get(error, 'hostname'))} cannot be resolved. Set listen.host or admin.host.`;
  }
  if (code === 'EACCES' && Reflect.get(error, 'syscall') === 'listen') {
    return `tollgate: no permission to listen on ${address}. Set listen.port or admin.port to a port above 1023.`;
  }
  if (error.name === 'WorkersStartError') return error.message;
  if (error.name === 'StoreOpenError' || error.name === 'SecretError') return `tollgate: ${error.message}`;
  return `tollgate: ${error.stack ?? error.message}`;
}

/** Whether Node runs this file, directly or through a symlink. */
function isEntryPoint(): boolean {
  const script = process.argv[1];
  return script !== undefined && realpathSync(script) === fileURLToPath(import.meta.url);
}

if (isEntryPoint()) process.exitCode = await main(process.argv.slice(2));
