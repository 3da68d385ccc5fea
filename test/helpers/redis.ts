// Real Redis servers for tests: alone, with Sentinels, as a Cluster. A machine without one gets Debian's where packages may
// be installed; otherwise the tests fail and say what to install. No test is skipped. Each server dies with its test.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { closedPort } from './closed-port.ts';
import { INSTALL_MS, installCommand, installPackage, onPath } from './debian-packages.ts';
import { type TempDir, tempDir, until, within } from './wait.ts';

/** For `beforeAll` and for tests of a file that starts a server, in milliseconds: more than an installation takes. */
export const REDIS_TIMEOUT = INSTALL_MS + 120_000;

/**
 * Starts the server in the background, says its process id, and kills it when stdin ends: also when the test process was
 * killed, and when the server is stopped.
 */
const WATCH = 'redis-server "$@" < /dev/null & echo $!; cat > /dev/null; kill -9 $! 2> /dev/null; wait';

export interface RedisServerOptions {
  /** Arguments of `redis-server`, a configuration file first, besides those for port, directory and persistence: `--requirepass`, `x`. */
  readonly args?: readonly string[];
  /** It writes an append-only file, synced every second, and starts with it again. Default false: it starts empty. */
  readonly isDurable?: boolean;
  /** For `command` and `url`, where `args` set one. */
  readonly password?: string;
}

export interface RedisServer extends AsyncDisposable {
  readonly port: number;
  /** `redis://[:PASSWORD@]127.0.0.1:PORT` */
  readonly url: string;
  /** Stops the process as `kill -STOP` does: the kernel accepts connections and bytes, and nobody reads them. */
  pause(): void;
  resume(): void;
  /** Kills the process at once. */
  kill(): Promise<void>;
  /** Starts it again on the same port, empty or with its file. */
  start(): Promise<void>;
  /** FLUSHALL and SCRIPT FLUSH. */
  flush(): Promise<void>;
  /** Makes it a replica, which refuses writes with READONLY: of `other`, or of a server that is not there. */
  replicaOf(other?: RedisServer): Promise<void>;
  /** Makes it a master again. */
  promote(): Promise<void>;
  config(name: string, value: string | number): Promise<void>;
  /** For assertions, on a connection of the test's own. Rejects with what Redis says. */
  command(...args: readonly [string, ...(string | number | Buffer)[]]): Promise<unknown>;
  /** How often a command arrived, whatever became of it, since the start or the last `CONFIG RESETSTAT`. */
  calls(command: string): Promise<number>;
  stop(): Promise<void>;
}

/** A server on a free port of 127.0.0.1, with nothing in it. */
export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  await needRedis();
  return await Server.start(options);
}

class Server implements RedisServer {
  readonly port: number;
  readonly #options: RedisServerOptions;
  readonly #directory: TempDir;
  #watch: ChildProcess | undefined;
  #pid: number | undefined;
  #connection: Redis | undefined;

  static async start(options: RedisServerOptions): Promise<Server> {
    const directory = await tempDir();
    // Between finding a port and taking it somebody else may take it.
    for (let tries = 1; ; tries += 1) {
      const server = new Server(await closedPort(), options, directory);
      try {
        await server.start();
        return server;
      } catch (error) {
        await server.kill();
        if (tries === 5) {
          await directory.remove();
          throw error;
        }
      }
    }
  }

  private constructor(port: number, options: RedisServerOptions, directory: TempDir) {
    this.port = port;
    this.#options = options;
    this.#directory = directory;
  }

  get url(): string {
    const { password } = this.#options;
    return `redis://${password === undefined ? '' : `:${encodeURIComponent(password)}@`}127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const own = ['--port', `${this.port}`, '--bind', '127.0.0.1', '--dir', this.#directory.path];
    const appendonly = this.#options.isDurable === true ? 'yes' : 'no';
    const quiet = ['--save', '', '--appendonly', appendonly, '--loglevel', 'warning'];
    const watch = spawn('sh', ['-c', WATCH, 'sh', ...(this.#options.args ?? []), ...own, ...quiet], {
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    this.#watch = watch;
    let output = '';
    watch.stdout.on('data', (bytes: Buffer) => {
      output = (output + bytes.toString()).slice(0, 4096);
    });
    watch.stdin.on('error', () => {});
    this.#pid = Number(await until(() => /^\d+\n/.exec(output)?.[0], 'the process id of redis-server'));
    const pid = this.#pid;
    await until(async () => {
      if (!isAlive(pid)) return true;
      return (await this.command('PING').catch(String)) === 'PONG';
    }, 'an answer of redis-server');
    // Another server may have had the port; then this one has ended by itself.
    const info = await this.command('INFO', 'server').catch(String);
    if (!String(info).includes(`process_id:${pid}\r`)) {
      throw new Error(`redis-server did not start on port ${this.port}: ${output.slice(-400)}`);
    }
  }

  pause(): void {
    this.#signal('SIGSTOP');
  }

  resume(): void {
    this.#signal('SIGCONT');
  }

  async kill(): Promise<void> {
    this.#connection?.disconnect();
    this.#connection = undefined;
    const watch = this.#watch;
    this.#watch = undefined;
    this.#pid = undefined;
    if (watch === undefined || watch.exitCode !== null) return;
    const exit = once(watch, 'exit');
    watch.stdin?.end();
    await within(exit, 'the end of redis-server');
  }

  async flush(): Promise<void> {
    await this.command('FLUSHALL');
    await this.command('SCRIPT', 'FLUSH');
  }

  async replicaOf(other?: RedisServer): Promise<void> {
    await this.command('REPLICAOF', '127.0.0.1', other === undefined ? await closedPort() : other.port);
  }

  async promote(): Promise<void> {
    await this.command('REPLICAOF', 'NO', 'ONE');
  }

  async config(name: string, value: string | number): Promise<void> {
    await this.command('CONFIG', 'SET', name, value);
  }

  async command(...[name, ...args]: readonly [string, ...(string | number | Buffer)[]]): Promise<unknown> {
    return await within(this.#connected().call(name, ...args), name);
  }

  async calls(command: string): Promise<number> {
    const stats = String(await this.command('INFO', 'commandstats'));
    const line = new RegExp(`^cmdstat_${command}:(.*)`, 'm').exec(stats)?.[1] ?? '';
    const count = (name: string) => Number(new RegExp(`\\b${name}=(\\d+)`).exec(line)?.[1] ?? 0);
    return count('calls') + count('rejected_calls');
  }

  async stop(): Promise<void> {
    await this.kill();
    await this.#directory.remove();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #connected(): Redis {
    if (this.#connection !== undefined) return this.#connection;
    const { password } = this.#options;
    const redis = new Redis({
      host: '127.0.0.1',
      port: this.port,
      ...(password === undefined ? {} : { password }),
      connectionName: 'test',
      protocol: 2,
      disableClientInfo: true,
      // Replicas, and servers that are busy, are to answer as well.
      enableReadyCheck: false,
      retryStrategy: null,
      disconnectTimeout: 1,
    });
    redis.on('error', () => {});
    redis.once('end', () => {
      if (this.#connection === redis) this.#connection = undefined;
    });
    this.#connection = redis;
    return redis;
  }

  #signal(signal: NodeJS.Signals): void {
    if (this.#pid === undefined) throw new Error('this redis-server does not run');
    process.kill(this.#pid, signal);
  }
}

export interface RedisSentinels extends AsyncDisposable {
  /** As they were at the start. */
  readonly master: RedisServer;
  readonly replica: RedisServer;
  readonly sentinels: readonly RedisServer[];
  /** `redis-sentinel://…/mymaster` */
  readonly url: string;
  /** Which port the Sentinels call the master now. */
  masterPort(): Promise<number>;
  /** Asks for a failover and waits until the Sentinels name the other server. */
  failover(): Promise<void>;
}

export interface RedisSentinelsOptions {
  /** Of master and replica. */
  readonly password?: string;
  readonly sentinelPassword?: string;
  /** Further arguments of the Sentinels. */
  readonly sentinelArgs?: readonly string[];
}

/** A master, a replica that is in step with it, and `count` Sentinels that know both. */
export async function startSentinels(
  count: 1 | 2 | 3 = 1,
  { password, sentinelPassword, sentinelArgs = [] }: RedisSentinelsOptions = {},
): Promise<RedisSentinels> {
  await needRedis();
  await using started = new AsyncDisposableStack();
  const own =
    password === undefined ? {} : { args: ['--requirepass', password, '--masterauth', password], password };
  const master = started.use(await Server.start(own));
  const replica = started.use(await Server.start(own));
  await replica.replicaOf(master);
  await until(
    async () => String(await replica.command('INFO', 'replication')).includes('master_link_status:up'),
    'replication',
  );
  const directory = started.use(await tempDir());
  const sentinels: Server[] = [];
  for (let number = 0; number < count; number += 1) {
    const file = directory.file(`sentinel-${number}.conf`);
    const lines = [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} ${Math.floor(count / 2) + 1}`,
      'sentinel down-after-milliseconds mymaster 1000',
      'sentinel failover-timeout mymaster 5000',
      ...(password === undefined ? [] : [`sentinel auth-pass mymaster ${password}`]),
      ...(sentinelPassword === undefined
        ? []
        : [`requirepass ${sentinelPassword}`, `sentinel sentinel-pass ${sentinelPassword}`]),
    ];
    await writeFile(file, `${lines.join('\n')}\n`);
    const options = sentinelPassword === undefined ? {} : { password: sentinelPassword };
    sentinels.push(
      started.use(await Server.start({ ...options, args: [file, '--sentinel', ...sentinelArgs] })),
    );
  }
  const [first] = sentinels;
  if (first === undefined) throw new Error('there is at least one Sentinel');
  for (const sentinel of sentinels) {
    await until(async () => {
      const replicas = await sentinel.command('SENTINEL', 'REPLICAS', 'mymaster');
      const others = await sentinel.command('SENTINEL', 'SENTINELS', 'mymaster');
      return (
        Array.isArray(replicas) &&
        replicas.length === 1 &&
        Array.isArray(others) &&
        others.length === count - 1
      );
    }, 'the Sentinels to know each other and the replica');
  }
  const masterPort = async (): Promise<number> => {
    const address = await first.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'mymaster');
    return Array.isArray(address) ? Number(address[1]) : 0;
  };
  const all = started.move();
  return {
    master,
    replica,
    sentinels,
    url: `redis-sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/mymaster`,
    masterPort,
    async failover() {
      const before = await masterPort();
      // Sentinel refuses while it does not know yet that the replica is good.
      await until(
        async () => (await first.command('SENTINEL', 'FAILOVER', 'mymaster')) === 'OK',
        'a failover',
      );
      await until(async () => (await masterPort()) !== before, 'another master');
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

export interface RedisCluster extends AsyncDisposable {
  readonly nodes: readonly RedisServer[];
  /** `redis-cluster://…` with all nodes. */
  readonly url: string;
}

/** Three masters with a third of the slots each, no replicas. */
export async function startCluster(shards = 3): Promise<RedisCluster> {
  await needRedis();
  await using started = new AsyncDisposableStack();
  const nodes: Server[] = [];
  for (let number = 0; number < shards; number += 1) {
    const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'];
    // Nodes share a directory with nobody. The port of the bus is by default the other one plus 10000, which may not exist.
    args.push('--cluster-port', `${await closedPort()}`);
    nodes.push(started.use(await Server.start({ args })));
  }
  const firstSlot = (index: number) => Math.ceil((index * 16_384) / shards);
  const [first] = nodes;
  for (const [index, node] of nodes.entries()) {
    await node.command('CLUSTER', 'ADDSLOTSRANGE', firstSlot(index), firstSlot(index + 1) - 1);
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
    if (first === undefined || node === first) continue;
    const bus = await first.command('CONFIG', 'GET', 'cluster-port');
    await node.command('CLUSTER', 'MEET', '127.0.0.1', first.port, Array.isArray(bus) ? String(bus[1]) : '');
  }
  for (const node of nodes) {
    await until(async () => {
      const info = String(await node.command('CLUSTER', 'INFO'));
      return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${shards}\r`);
    }, 'a working Cluster');
  }
  const all = started.move();
  return {
    nodes,
    url: `redis-cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

let needed: Promise<void> | undefined;

/** Installs Redis where it is missing and that is possible. */
function needRedis(): Promise<void> {
  needed ??= install();
  return needed;
}

async function install(): Promise<void> {
  if (await onPath('redis-server')) return;
  const missing = 'these tests need redis-server in PATH (Debian: apt-get install redis-server)';
  if (process.getuid?.() !== 0 || !(await onPath('apt-get'))) throw new Error(missing);
  process.stderr.write(`no redis-server on this machine; running: ${installCommand('redis-server')}\n`);
  await installPackage('redis-server', 'command -v redis-server').catch((cause: unknown) => {
    throw new Error(`${missing}; installing it has failed`, { cause });
  });
  if (!(await onPath('redis-server'))) throw new Error(`${missing}; the package did not bring it`);
}
