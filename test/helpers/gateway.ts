// Starts a whole gateway for a test, in this process or as a process of its own, with a configuration and a store of
// its own in a temporary directory, and stops it again. It collects the log and issues keys; it knows no upstream.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import { type App, startApp } from '../../src/app.ts';
import type { Tier } from '../../src/config/schema/config-schema.ts';
import { main } from '../../src/main.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { writeNewStore } from './new-store.ts';
import { RawClient, type RawResponse } from './raw-client.ts';
import { PATIENCE, type TempDir, tempDir, until, within } from './wait.ts';

const LAUNCHER = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url));

// biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
const OWN_STORE = 'sqlite:${TEST_DIR}/tollgate.db';

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };

export interface GatewayOptions {
  /**
   * Upstream name → API root. Without `models` in `config`, the model `test-model` goes to them in this order of
   * priority, as `upstream-model`. Without any, `test-model` is the built-in echo.
   */
  readonly upstreams?: Readonly<Record<string, string>>;
  /** Laid over the defaults of `baseConfig`, mapping by mapping; `null` removes a key. */
  readonly config?: { readonly [name: string]: Json };
  /**
   * The whole file instead. `listen`, `admin` and `store` are added where it has none; `${TEST_DIR}` in it is the
   * temporary directory.
   */
  readonly yaml?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Of the gateway in this process: its clock for cool-downs, in milliseconds, and its chance. */
  readonly now?: () => number;
  readonly random?: () => number;
  /** Default false: in this process. */
  readonly process?: boolean;
}

export type LogLine = Readonly<Record<string, unknown>>;

export interface ChatOptions {
  /** Default: the key of `key()`. `null` sends none. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

/** What a started gateway is, whichever way it runs. */
interface Running {
  readonly url: string;
  readonly adminUrl: string;
  readonly app: App | undefined;
  readonly child: ChildProcess | undefined;
  issue(tier: Tier, label: string | undefined): Promise<string>;
  stop(): Promise<void>;
}

/**
 * A clock by which every cool-down is over when it is next asked: for tests of single answers, which failures of earlier
 * tests are not to disturb.
 */
export function fleetingClock(): () => number {
  let now = 0;
  return () => {
    now += 3_600_000;
    return now;
  };
}

export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const directory = await tempDir();
  try {
    const isProcess = options.process === true;
    const ports = [0, 0];
    const configFile = directory.file('config.yaml');
    const text = configText(options, ports);
    await writeFile(configFile, text);
    if (text.includes(OWN_STORE)) await writeNewStore(directory.file('tollgate.db'));
    const log = new LogSink();
    const env = { TEST_DIR: directory.path, LOG_LEVEL: 'debug', ...options.env };
    const running = isProcess
      ? await startProcess(configFile, env, log)
      : await startHere(configFile, env, log, options);
    return new Gateway(directory, { file: configFile, ports }, log, running);
  } catch (error) {
    await directory.remove();
    throw error;
  }
}

export class Gateway implements AsyncDisposable {
  readonly url: string;
  readonly adminUrl: string;
  readonly configFile: string;
  /** The temporary directory with the configuration and the store. */
  readonly directory: TempDir;
  readonly #ports: readonly number[];
  readonly #log: LogSink;
  readonly #running: Running;
  #key: Promise<string> | undefined;
  #closed: Promise<void> | undefined;

  constructor(
    directory: TempDir,
    config: { readonly file: string; readonly ports: readonly number[] },
    log: LogSink,
    running: Running,
  ) {
    this.directory = directory;
    this.configFile = config.file;
    this.#ports = config.ports;
    this.#log = log;
    this.#running = running;
    this.url = running.url;
    this.adminUrl = running.adminUrl;
  }

  /** The gateway itself; fails when it is a process of its own. */
  get app(): App {
    if (this.#running.app === undefined) throw new Error('the gateway runs in another process');
    return this.#running.app;
  }

  /** Its process; fails when it is this one. */
  get child(): ChildProcess {
    if (this.#running.child === undefined) throw new Error('the gateway runs in this process');
    return this.#running.child;
  }

  /** Whether its process runs, which may be this one. */
  get isRunning(): boolean {
    const { child } = this.#running;
    return child === undefined || (child.exitCode === null && child.signalCode === null);
  }

  /** Lines of the log so far, parsed. */
  get logs(): readonly LogLine[] {
    return this.#log.lines;
  }

  /** All it wrote so far, as it came: where to look for what must not be there. */
  get output(): string {
    return this.#log.text;
  }

  /** The first line of the log for which `matches` holds, now or when it comes. */
  async logLine(matches: (line: LogLine) => boolean, what = 'the log line', ms = PATIENCE): Promise<LogLine> {
    return await until(() => this.logs.find(matches), what, ms);
  }

  /** The access log line of the request with this `x-request-id`. */
  async accessLine(response: RawResponse): Promise<LogLine> {
    const id = response.header('x-request-id');
    return await this.logLine(
      (line) => line['msg'] === 'request' && line['request_id'] === id,
      'the access log line',
    );
  }

  /** Writes the configuration anew, in place and with the same ports: for a gateway that watches it. */
  async writeConfig(options: GatewayOptions): Promise<void> {
    await writeFile(this.configFile, configText(options, this.#ports));
  }

  /** A new key of a new holder. */
  issueKey(tier: Tier = 'Pro', label?: string): Promise<string> {
    return this.#running.issue(tier, label);
  }

  /** One Pro key for the whole life of the gateway. */
  key(): Promise<string> {
    this.#key ??= this.issueKey();
    return this.#key;
  }

  /** A raw connection to the public listener. */
  connect(): Promise<RawClient> {
    return RawClient.connect(this.url);
  }

  /** The connection of a chat request that was sent; its answer may take as long as it likes. */
  async open(body: object | string | Buffer, options: ChatOptions = {}): Promise<RawClient> {
    const key = options.key === undefined ? await this.key() : options.key;
    const client = await this.connect();
    const headers = { ...(key === null ? {} : { authorization: `Bearer ${key}` }), ...options.headers };
    await client.send({ headers, body });
    return client;
  }

  /** A chat request on a connection of its own, and its answer to the end. */
  async chat(body: object | string | Buffer, options: ChatOptions = {}): Promise<RawResponse> {
    using client = await this.open(body, options);
    return await client.response();
  }

  /** The text of /metrics. */
  async metrics(): Promise<string> {
    const response = await fetch(new URL('/metrics', this.adminUrl));
    return await response.text();
  }

  /** One value of /metrics: of the sample that is written exactly like this, labels included; 0 where there is none. */
  async metric(sample: string): Promise<number> {
    const line = (await this.metrics()).split('\n').find((each) => each.startsWith(`${sample} `));
    return line === undefined ? 0 : Number(line.slice(sample.length + 1));
  }

  /** Ends it at once, running answers included, and removes its directory. For a drain see `app.close()` or `child.kill()`. */
  close(): Promise<void> {
    this.#closed ??= this.#running.stop().finally(() => this.directory.remove());
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

async function startHere(
  configFile: string,
  env: Record<string, string>,
  log: LogSink,
  { now, random }: GatewayOptions,
): Promise<Running> {
  const app = await startApp({
    configFile,
    env,
    commands: main,
    logger: createLogger(log, env['LOG_LEVEL']),
    ...(now === undefined ? {} : { now }),
    ...(random === undefined ? {} : { random }),
  });
  return {
    url: app.url,
    adminUrl: app.adminUrl,
    app,
    child: undefined,
    issue: async (tier, label) => {
      const issued = await app.issuer.issue(label === undefined ? { tier } : { tier, name: label });
      return issued.key.reveal();
    },
    stop: async () => {
      const closed = app.close();
      // The second call ends what is still running.
      await Promise.all([closed, app.close()]);
    },
  };
}

/** Of a process on a busy machine: it loads a few hundred files first. */
const START_MS = 120_000;

async function startProcess(configFile: string, env: Record<string, string>, log: LogSink): Promise<Running> {
  const cleanEnv = { PATH: process.env['PATH'] ?? '', ...env };
  const child = spawn(process.execPath, [LAUNCHER, 'serve', '--config', configFile], {
    env: cleanEnv,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stdout.on('data', (bytes: Buffer) => log.write(bytes));
  child.stderr.on('data', (bytes: Buffer) => log.write(bytes));
  const ended = (): boolean => child.exitCode !== null || child.signalCode !== null;
  const printed = (pattern: RegExp) => pattern.exec(log.text)?.[1] ?? '';
  const listens = () => ended() || log.text.includes('a first key');
  await until(listens, 'the gateway to listen', START_MS).catch((error) => {
    child.kill('SIGKILL');
    throw new Error(`the gateway did not start: ${log.text}`, { cause: error });
  });
  if (ended()) throw new Error(`the gateway ended (${child.exitCode ?? child.signalCode}): ${log.text}`);
  return {
    url: printed(/listening on (https?:\S+)/),
    adminUrl: printed(/metrics and probes +(http:\/\/[^/]+)/),
    app: undefined,
    child,
    issue: async (tier, label) => {
      const words = ['keys', 'issue', '--tier', tier, '--config', configFile];
      const { stdout } = await runCommand(
        label === undefined ? words : [...words, '--holder', label],
        cleanEnv,
      );
      return stdout.trim();
    },
    stop: () => stopProcess(child, ended),
  };
}

async function stopProcess(child: ChildProcess, ended: () => boolean): Promise<void> {
  if (ended()) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await within(exit, 'the end of the gateway', 500).catch(() => child.kill('SIGTERM'));
  await within(exit, 'the end of the gateway after a second SIGTERM', 10_000).catch((error) => {
    child.kill('SIGKILL');
    throw error;
  });
}

export interface CommandResult {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `tollgate …` to its end: in this process, because a process costs half a second; but `serve` in its own. */
export async function runCommand(
  words: readonly string[],
  env: Record<string, string> = {},
): Promise<CommandResult> {
  if (words[0] === 'serve') return await runProgram(words, env);
  const [stdout, stderr] = [new LogSink(), new LogSink()];
  const io = { stdout, stderr, env: { PATH: process.env['PATH'] ?? '', ...env } };
  const code = await within(main([...words], io), words.join(' '));
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** The same in a process of its own, as its users run it. */
export function runProgram(
  words: readonly string[],
  env: Record<string, string> = {},
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const options = { env: { PATH: process.env['PATH'] ?? '', ...env }, timeout: PATIENCE };
    execFile(process.execPath, [LAUNCHER, ...words], options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : (error.code ?? error.signal ?? 'unknown'), stdout, stderr });
    });
  });
}

/** The file for these options, as YAML. */
export function configText(
  options: GatewayOptions,
  [port = 0, adminPort = 0]: readonly number[] = [],
): string {
  const own = {
    listen: { host: '127.0.0.1', port },
    admin: { host: '127.0.0.1', port: adminPort },
    store: OWN_STORE,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
    usage: { spool: '${TEST_DIR}/usage' },
    // The tests share its event loop and the machine: how late it is says nothing about the gateway.
    overload: { event_loop_delay: 'off', heap: 'off' },
  };
  if (options.yaml === undefined)
    return stringify(merge(merge(own, baseConfig(options)), options.config ?? {}));
  const { yaml } = options;
  const missing = Object.entries(own).filter(([name]) => !new RegExp(`^${name}:`, 'm').test(yaml));
  return `${yaml.trimEnd()}\n${missing.length === 0 ? '' : stringify(Object.fromEntries(missing))}`;
}

function baseConfig(options: GatewayOptions): { [name: string]: Json } {
  const urls = Object.entries(options.upstreams ?? {});
  const upstreams: [string, Json][] =
    urls.length === 0
      ? [['echo', { builtin: 'echo' }]]
      : urls.map(([name, base_url]) => [name, { base_url, api_key: `credential-of-${name}` }]);
  const targets = upstreams.map(([name], index) => ({
    upstream: name,
    model: 'upstream-model',
    priority: index + 1,
  }));
  // Lists of targets are not merged: a test that names its models names all of them.
  const models = options.config?.['models'] === undefined ? { 'test-model': { targets } } : {};
  return { upstreams: Object.fromEntries(upstreams), models };
}

function merge(
  below: { readonly [name: string]: Json },
  above: { readonly [name: string]: Json },
): { [name: string]: Json } {
  const result: { [name: string]: Json } = { ...below };
  for (const [name, value] of Object.entries(above)) {
    const old = result[name];
    if (value === null) delete result[name];
    else result[name] = isMapping(old) && isMapping(value) ? merge(old, value) : value;
  }
  return result;
}

function isMapping(value: Json | undefined): value is { readonly [name: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Takes what a logger or a command writes: the text, and each whole line that is JSON as an object. */
class LogSink extends Writable {
  readonly lines: LogLine[] = [];
  #parts: string[] = [];
  #rest = '';

  get text(): string {
    const text = this.#parts.join('');
    this.#parts = [text];
    return text;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const text = chunk.toString('utf8');
    this.#parts.push(text);
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) if (line.startsWith('{')) this.#parse(line);
    done();
  }

  #parse(line: string): void {
    try {
      this.lines.push(JSON.parse(line));
    } catch {
      // Text of a crash that begins with a brace; it is in `text`.
    }
  }
}
