// A real PostgreSQL server for tests: its own data in a temporary directory, its own port of 127.0.0.1, and gone with the
// test, however that ends. Linux alone: what is paused is found in /proc.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client, type QueryResultRow } from 'pg';
import { INSTALL_MS, type PostgresPrograms, postgresPrograms, serverUser } from './postgres-programs.ts';
import { until, within } from './wait.ts';

export interface PostgresServer extends AsyncDisposable {
  readonly port: number;
  readonly password: string;
  /** The address of a database for its owner, who is a superuser. Default: the database `postgres`. */
  url(database?: string): string;
  /** A new empty database. @returns its address */
  createDatabase(): Promise<string>;
  /** Stops all processes of the server (SIGSTOP): connections stay, and the system still accepts new ones. */
  pause(): void;
  resume(): void;
  /** Ends the server at once, as a crash would: what is not in its log is lost. */
  stop(): Promise<void>;
  /** Starts it again, on the same data and the same port. */
  start(): Promise<void>;
}

/** For `beforeAll` of a file that starts a server, in milliseconds. */
export const POSTGRES_TIMEOUT = INSTALL_MS + 180_000;

const USER = 'tollgate';
const START_MS = 120_000;

const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  shared_buffers: '16MB',
  max_connections: '120',
  autovacuum: 'off',
  // Tests kill processes, not machines: what was written to a file is there. It is slow, and they are many.
  fsync: 'off',
  full_page_writes: 'off',
  log_min_messages: 'warning',
};

/**
 * Ends the server and removes its data when the standard input closes, which it does when the test's process ends in any
 * way. A stopped process does not heed a signal other than SIGKILL until it continues.
 */
const WATCH = `cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)
if [ -n "$pid" ] && [ "$(cat /proc/$pid/comm 2> /dev/null)" = postgres ]; then
  all="$pid $(grep -l "^PPid:.$pid\\$" /proc/[0-9]*/status 2> /dev/null | cut -d / -f 3 | tr '\\n' ' ')"
  kill -KILL $all 2> /dev/null
fi
rm -rf "$1"`;

/** Resolves when it accepts connections. May take as long as `POSTGRES_TIMEOUT`. */
export function startPostgres(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
  return start(settings, randomBytes(12).toString('hex'), (server) => server.initialise());
}

/** A copy of a running server that follows it, by streaming, and cannot be written until `select pg_promote()`. */
export function startStandby(
  primary: PostgresServer,
  settings: Readonly<Record<string, string>> = {},
): Promise<PostgresServer> {
  return start(settings, primary.password, (server) => server.copy(primary));
}

async function start(
  settings: Readonly<Record<string, string>>,
  password: string,
  makeData: (server: Server) => Promise<void>,
): Promise<PostgresServer> {
  const programs = await postgresPrograms();
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-postgres-'));
  const watch = spawn('sh', ['-c', WATCH, 'sh', folder], { stdio: ['pipe', 'ignore', 'ignore'] });
  // Neither the child nor its pipe keeps the test's process alive.
  watch.unref();
  const server = new Server({ programs, folder, watch, password, settings: { ...SETTINGS, ...settings } });
  try {
    await makeData(server);
    await server.start();
    return server;
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
}

/** Runs one statement over a connection of its own. */
export async function query<R extends QueryResultRow>(
  url: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<R[]> {
  return await onConnection(url, async (client) => (await client.query<R>(text, [...values])).rows);
}

/** Runs statements one after the other, on one connection. */
export async function runStatements(url: string, statements: readonly string[]): Promise<void> {
  await onConnection(url, async (client) => {
    for (const statement of statements) await client.query(statement);
  });
}

async function onConnection<T>(url: string, run: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  // The query fails by itself when the connection breaks; the event alone would end the process.
  client.on('error', () => {});
  await client.connect();
  try {
    return await run(client);
  } finally {
    await client.end();
  }
}

interface ServerParts {
  readonly programs: PostgresPrograms;
  readonly folder: string;
  readonly watch: ChildProcess;
  readonly password: string;
  readonly settings: Readonly<Record<string, string>>;
}

class Server implements PostgresServer {
  readonly password: string;
  readonly #programs: PostgresPrograms;
  readonly #folder: string;
  readonly #watch: ChildProcess;
  readonly #settings: Readonly<Record<string, string>>;
  readonly #user = serverUser();
  #port = 0;
  #process: ChildProcess | undefined;
  #log = '';
  #databases = 0;

  constructor({ programs, folder, watch, password, settings }: ServerParts) {
    this.#programs = programs;
    this.#folder = folder;
    this.#watch = watch;
    this.password = password;
    this.#settings = settings;
  }

  get port(): number {
    return this.#port;
  }

  get #data(): string {
    return join(this.#folder, 'data');
  }

  async initialise(): Promise<void> {
    const passwordFile = join(this.#folder, 'password');
    await writeFile(passwordFile, this.password);
    if (this.#user !== undefined) {
      for (const path of [this.#folder, passwordFile]) await chown(path, this.#user.uid, this.#user.gid);
    }
    const access = ['--username', USER, '--auth', 'scram-sha-256', '--pwfile', passwordFile];
    const rest = ['--no-sync', '--no-locale', '--encoding', 'UTF8', '--pgdata', this.#data];
    await promisify(execFile)(this.#programs.initdb, [...access, ...rest], {
      ...this.#user,
      cwd: this.#folder,
    });
    this.#port = await quietPort();
  }

  async copy(primary: PostgresServer): Promise<void> {
    if (this.#user !== undefined) await chown(this.#folder, this.#user.uid, this.#user.gid);
    const from = ['--dbname', primary.url(), '--checkpoint=fast', '--wal-method=stream', '--no-sync'];
    await promisify(execFile)(
      this.#programs.pgBasebackup,
      [...from, '--write-recovery-conf', '--pgdata', this.#data],
      { ...this.#user, cwd: this.#folder },
    );
    this.#port = await quietPort();
  }

  url(database = 'postgres'): string {
    return `postgres://${USER}:${this.password}@127.0.0.1:${this.#port}/${database}`;
  }

  async createDatabase(): Promise<string> {
    this.#databases += 1;
    const name = `test_${this.#databases}`;
    await query(this.url(), `create database ${name}`);
    return this.url(name);
  }

  async start(): Promise<void> {
    const settings = Object.entries(this.#settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const started = spawn(
      this.#programs.postgres,
      ['-D', this.#data, '-p', String(this.#port), ...settings],
      { ...this.#user, cwd: this.#folder, stdio: ['ignore', 'ignore', 'pipe'] },
    );
    this.#process = started;
    started.stderr.on('data', (chunk: Buffer) => {
      this.#log = `${this.#log}${chunk.toString()}`.slice(-4000);
    });
    const ready = until(
      async () => {
        if (started.exitCode !== null) return true;
        await query(this.url(), 'select 1');
        return true;
      },
      'an answer of PostgreSQL',
      START_MS,
    );
    await within(ready, 'PostgreSQL', START_MS, () => this.#log);
    if (started.exitCode !== null) throw new Error(`PostgreSQL did not start: ${this.#log}`);
  }

  pause(): void {
    // The first process before the others, so that it makes no new ones.
    const first = this.#pid();
    process.kill(first, 'SIGSTOP');
    for (const pid of childrenOf(first)) signal(pid, 'SIGSTOP');
  }

  resume(): void {
    const first = this.#pid();
    for (const pid of childrenOf(first)) signal(pid, 'SIGCONT');
    process.kill(first, 'SIGCONT');
  }

  async stop(): Promise<void> {
    const ending = this.#process;
    if (ending === undefined) return;
    this.#process = undefined;
    if (ending.exitCode !== null || ending.signalCode !== null || ending.pid === undefined) return;
    const ended = once(ending, 'close');
    // Immediate shutdown; who is paused has to continue to hear of it.
    ending.kill('SIGQUIT');
    for (const pid of [...childrenOf(ending.pid), ending.pid]) signal(pid, 'SIGCONT');
    await within(ended, 'the end of PostgreSQL', START_MS, () => this.#log);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 3 });
    this.#watch.stdin?.end();
  }

  #pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error('the server does not run');
    return pid;
  }
}

/**
 * A port of 127.0.0.1 where nothing listens, below those that the system gives to outgoing connections: a server that was
 * stopped finds it free again.
 */
async function quietPort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 32_000);
    const probe = createServer().listen(port, '127.0.0.1');
    const isFree = await once(probe, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    probe.close();
    await once(probe, 'close');
    return port;
  }
}

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return new RegExp(`^PPid:\\s*${parent}$`, 'm').test(readFileSync(`/proc/${name}/status`, 'utf8'));
      } catch {
        // It ended since the directory was read.
        return false;
      }
    })
    .map(Number);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended by itself.
  }
}
