// Several gateways, by default processes, on one Redis and one PostgreSQL, each with its own way to Redis that a test can cut.
import { writeFile } from 'node:fs/promises';
import { type Cable, startCable } from './cable.ts';
import {
  type CommandResult,
  configText,
  type Gateway,
  type GatewayOptions,
  runCommand,
  startGateway,
} from './gateway.ts';
import { POSTGRES_TIMEOUT, type PostgresServer, startPostgres } from './postgres.ts';
import { REDIS_TIMEOUT, type RedisServer, type RedisServerOptions, startRedis } from './redis.ts';
import { sharedPostgres } from './shared-servers.ts';
import { tempDir } from './wait.ts';

/** For `beforeAll` of a file that starts a fleet, in milliseconds. */
export const FLEET_TIMEOUT = POSTGRES_TIMEOUT + REDIS_TIMEOUT;

export interface Replica {
  readonly gateway: Gateway;
  /** Between this replica and Redis. */
  readonly cable: Cable;
}

export interface Fleet extends AsyncDisposable {
  readonly redis: RedisServer;
  /** Its own server; fails when it has none. */
  readonly postgres: PostgresServer;
  /** The database of this fleet. */
  readonly database: string;
  /** Of commands, which have a straight way to both. */
  readonly configFile: string;
  /** `secret` of its configuration. */
  readonly secret: string;
  readonly replicas: readonly Replica[];
  /** One more replica. @param config laid over that of the others @param process of its own, for one that is killed or gets signals; default: as the others */
  join(config?: GatewayOptions['config'], process?: boolean): Promise<Replica>;
  /** `tollgate keys …` with a way of its own to both. */
  keys(...words: string[]): Promise<CommandResult>;
  /** The sum of a metric over all replicas that run. */
  metric(sample: string): Promise<number>;
}

export interface FleetOptions {
  readonly replicas?: number;
  /** Default: of its own. The shared one for tests that do not stop it. */
  readonly postgres?: 'own' | 'shared';
  readonly redis?: RedisServerOptions;
  readonly gateway?: GatewayOptions;
}

const SECRET = 'a secret of the test';

export async function startFleet({
  replicas: count = 3,
  gateway = {},
  postgres: kind = 'own',
  redis: ofRedis = {},
}: FleetOptions = {}): Promise<Fleet> {
  await using stack = new AsyncDisposableStack();
  const redis = stack.use(await startRedis(ofRedis));
  const own = kind === 'own' ? stack.use(await startPostgres()) : undefined;
  const database =
    own === undefined ? await stack.use(await sharedPostgres()).createStore() : await own.createDatabase();
  const replicas: Replica[] = [];
  // Of its own, because replicas join later, too.
  const joined = stack.use(new AsyncDisposableStack());
  const join = async (
    config: GatewayOptions['config'] = {},
    isProcess = gateway.process ?? true,
  ): Promise<Replica> => {
    const cable = joined.use(await startCable(redis.port));
    const started = await startGateway({
      ...gateway,
      process: isProcess,
      config: {
        store: database,
        redis: `redis://127.0.0.1:${cable.port}`,
        secret: SECRET,
        ...gateway.config,
        ...config,
      },
    });
    joined.use(started);
    const replica = { gateway: started, cable };
    replicas.push(replica);
    return replica;
  };
  for (let index = 0; index < count; index += 1) await join();
  // The commands are run beside no gateway: theirs is the straight way.
  const folder = stack.use(await tempDir());
  const configFile = folder.file('config.yaml');
  const spool = folder.file('usage');
  const config = { store: database, redis: redis.url, secret: SECRET, usage: { spool } };
  await writeFile(configFile, configText({ config }));
  const all = stack.move();
  return {
    redis,
    get postgres() {
      if (own === undefined) throw new Error('this fleet has no PostgreSQL of its own');
      return own;
    },
    database,
    configFile,
    secret: SECRET,
    replicas,
    join,
    keys: (...words) => runCommand(['keys', ...words, '--config', configFile]),
    async metric(sample) {
      const running = replicas.filter(({ gateway }) => gateway.isRunning);
      const values = await Promise.all(running.map(({ gateway }) => gateway.metric(sample)));
      return values.reduce((sum, value) => sum + value, 0);
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
