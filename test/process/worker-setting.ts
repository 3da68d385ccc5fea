// A gateway with several workers: which worker has a connection, which ones run, and their merged reports.
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import { chatRequest } from '../helpers/hostile-upstream.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import type { RedisServer } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';

/** A worker as its log line says it. */
export interface LoggedWorker {
  readonly worker: number;
  readonly pid: number;
}

export interface Held {
  readonly client: RawClient;
  /** The number of the worker that has the connection. */
  readonly worker: number;
}

export async function startWorkers(
  redis: RedisServer,
  { config = {}, ...options }: GatewayOptions = {},
): Promise<Gateway> {
  const gateway = await startGateway({
    ...options,
    process: true,
    config: { redis: redis.url, workers: 2, ...config },
  });
  await until(() => workersOf(gateway).length === 2, 'both workers');
  await until(async () => (await readiness(gateway)).checks['workers'] === 'ok', 'the primary to know it');
  return gateway;
}

/** All that ever served, in the order in which they began to. */
export function workersOf(gateway: Gateway): LoggedWorker[] {
  return gateway.logs.flatMap(({ msg, worker, pid }) =>
    msg === 'worker ready' ? [{ worker: Number(worker), pid: Number(pid) }] : [],
  );
}

/** The one that has this number now. */
export function pidOf(gateway: Gateway, worker: number): number {
  const pid = workersOf(gateway).findLast((each) => each.worker === worker)?.pid;
  if (pid === undefined) throw new Error(`there is no worker ${worker}`);
  return pid;
}

export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

interface Readiness {
  readonly uptime_s: number;
  readonly status: string;
  readonly config_hash: string;
  readonly checks: Readonly<Record<string, string>>;
}

export async function readiness(gateway: Gateway): Promise<Readiness> {
  const response = await fetch(`${gateway.adminUrl}/readyz`);
  const report: Readiness = JSON.parse(await response.text());
  return report;
}

let probes = 0;

interface Probed extends Held {
  readonly health: Readiness;
}

/** @returns undefined where the connection ends, to make shares even */
async function probed(gateway: Gateway, client: RawClient): Promise<Probed | undefined> {
  probes += 1;
  const id = `probe-${probes}`;
  const response = await client.ask({ method: 'GET', target: '/health', headers: { 'x-request-id': id } });
  if (response.header('connection') === 'close') {
    client.destroy();
    return undefined;
  }
  const line = await gateway.logLine((each) => each['request_id'] === id, `the log line of ${id}`);
  return { client, worker: Number(line['worker']), health: JSON.parse(response.text()) };
}

/** A connection, and the worker that has it: the log line of a request on it says so. */
export async function connectTo(gateway: Gateway): Promise<Probed> {
  return (await probed(gateway, await gateway.connect())) ?? (await connectTo(gateway));
}

/** Connections until each of the workers has `each` of them, and as many. */
export async function connectToBoth(gateway: Gateway, each = 1): Promise<Probed[]> {
  let held: Probed[] = [];
  const have = (worker: number) => held.filter((one) => one.worker === worker).length;
  const isEnough = () => have(1) === each && have(2) === each;
  await until(async () => {
    // Side by side, because the log takes its time.
    for (const one of await Promise.all(Array.from({ length: 2 * each + 2 }, () => connectTo(gateway)))) {
      if (have(one.worker) < each) held.push(one);
      else one.client.destroy();
    }
    // While there were others, a worker may have had too many.
    if (isEnough()) {
      const kept = await Promise.all(held.map(({ client }) => probed(gateway, client)));
      held = kept.filter((one) => one !== undefined);
    }
    return isEnough();
  }, 'connections to both workers');
  return held.sort((a, b) => a.worker - b.worker);
}

/** A stream that has begun on each of these connections. */
export async function openStreams(gateway: Gateway, held: readonly Held[], wanted: string): Promise<void> {
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  await Promise.all(
    held.map(async ({ client }) => {
      await client.send({ headers, body: chatRequest({ stream: true }), target: '/v1/chat/completions' });
      await client.readUntil(wanted);
    }),
  );
}
