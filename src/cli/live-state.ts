// The states of upstreams that running gateways report: all processes of a fleet over Redis, otherwise the gateway at the admin address.
// Late or malformed answers count as no gateway. It sends nothing to upstreams.
import { z } from 'zod';
import { httpUrl } from '../config/schema/addresses.ts';
import type { Config, DynamicConfig, StaticConfig } from '../config/schema/config-schema.ts';
import { formatDuration } from '../config/schema/units.ts';
import type { CommandDesk } from '../console/console-desk.ts';
import { keyOfCacheKey } from '../proxy/request/affinity-key.ts';
import { type Route, targetName } from '../proxy/routes/route-table.ts';
import { type Forecast, forecast, meanForecast } from '../proxy/targets/forecast.ts';
import { parseUntrusted } from '../redis/foreign-text.ts';
import { REPORT_STATES } from '../upstream/state/drains.ts';
import {
  mergeUpstreams,
  type StateName,
  type UpstreamState,
  upstreamState,
} from '../upstream/state/upstream-state.ts';
import { Fleet } from './fleet-action.ts';

/** A process that was killed just now counts as one that does not answer; do not wait for it for long. In milliseconds. */
const FLEET_MS = 2000;

/** What one process reports. */
interface ReplicaState {
  readonly id: string;
  readonly configHash: string | undefined;
  readonly upstreams: readonly UpstreamState[];
}

/** The state that running gateways report. */
export interface LiveState {
  /** URL of the admin listener; null when `admin.port` is 0. */
  readonly url: string | null;
  /** Of the gateway at this URL, or else of one of the fleet. Undefined when none reported it. */
  readonly configHash: string | undefined;
  /** Undefined when no gateway reported its states. */
  readonly replicas: readonly ReplicaState[] | undefined;
  /** Replicas that did not answer, or whose version has no states to report. */
  readonly silent: readonly string[];
}

const HASH = z.string().regex(/^[0-9a-f]{12}$/);
const READINESS = z.object({ config_hash: HASH });
const STATES = z.array(upstreamState);
const REPLY = z.object({ config_hash: HASH, upstreams: STATES });

/**
 * Queries the fleet and the admin listener of the configuration. It does not throw; what is not reported is undefined.
 * @param timeoutMs deadline of the admin listener's answers, in milliseconds
 * @param desk of the gateway itself, which needs no question
 */
export async function fetchLiveState(
  { static: { admin, redis }, dynamic: { admin_certificate } }: Pick<Config, 'static' | 'dynamic'>,
  timeoutMs: number,
  desk?: Pick<CommandDesk, 'config' | 'upstreams'>,
): Promise<LiveState> {
  const url = adminUrl(admin);
  const [readiness, upstreams, fleet] = await Promise.all([
    desk
      ? { config_hash: desk.config().hash }
      : askAdmin({ ...admin, admin_certificate }, '/readyz', READINESS, timeoutMs),
    desk ? desk.upstreams() : askAdmin({ ...admin, admin_certificate }, '/upstreams', STATES, timeoutMs),
    redis === undefined ? undefined : fetchFleet(redis),
  ]);
  const hash = readiness?.config_hash;
  const alone = upstreams && [{ id: url ?? '', configHash: hash, upstreams }];
  const isFleet = fleet !== undefined && fleet.replicas.length > 0;
  const replicas = isFleet ? fleet.replicas : alone;
  return { url, configHash: hash ?? replicas?.[0]?.configHash, replicas, silent: fleet?.silent ?? [] };
}

async function fetchFleet(redis: string): Promise<Pick<LiveState, 'silent'> & { replicas: ReplicaState[] }> {
  await using fleet = await Fleet.open(redis);
  const result = await fleet.send(REPORT_STATES, 'upstreams', FLEET_MS);
  if (result.kind === 'unsent') return { replicas: [], silent: [] };
  const { confirmed, missing, incapable } = result.confirmation;
  const silent = [...missing, ...incapable].map(({ id }) => id);
  const replicas: ReplicaState[] = [];
  for (const { id, reply } of confirmed) {
    const parsed = reply === undefined ? undefined : parseUntrusted(REPLY, reply);
    if (parsed === undefined) silent.push(id);
    else replicas.push({ id, configHash: parsed.config_hash, upstreams: parsed.upstreams });
  }
  return { replicas: replicas.sort((a, b) => (a.id < b.id ? -1 : 1)), silent };
}

/** What a command shows of one target, over all processes. */
export interface TargetLive
  extends Pick<UpstreamState['targets'][number], 'breaker' | 'in_flight' | 'latency_ms' | 'last_failure'>,
    Pick<UpstreamState, 'health' | 'drained'> {
  readonly state: StateName;
  /** Milliseconds until it accepts requests; 0 when it does. */
  readonly until_ms: number;
}

/** The states of all processes as one; undefined when none reported. */
export function mergedStates({ replicas }: LiveState): readonly UpstreamState[] | undefined {
  return replicas && mergeUpstreams(replicas.map(({ upstreams }) => upstreams));
}

/** The mean over all processes, because a balancer spreads requests over them. */
export function forecastOf(
  route: Route,
  { replicas }: LiveState,
  cacheKey: string | undefined,
): Forecast | undefined {
  if (replicas === undefined) return undefined;
  const affinity = cacheKey === undefined ? undefined : { key: keyOfCacheKey(cacheKey), nameOf: targetName };
  return meanForecast(replicas.map(({ upstreams }) => forecast(route, upstreams, affinity)));
}

/** Null when no gateway reported the upstream. */
export function liveOf(
  states: readonly UpstreamState[] | undefined,
  name: string,
  model: string,
): TargetLive | null {
  const upstream = states?.find((each) => each.upstream === name);
  if (upstream === undefined) return null;
  const { health, drained, state } = upstream;
  const target = upstream.targets.find((each) => each.model === model);
  const isOut = state === 'drained' || state === 'disabled';
  return {
    state: target?.state ?? (isOut ? state : health?.ok === false ? 'unhealthy' : 'ok'),
    breaker: target?.breaker ?? 'closed',
    in_flight: target?.in_flight ?? 0,
    until_ms: target?.cool_down?.ms ?? 0,
    latency_ms: target?.latency_ms ?? null,
    health,
    drained,
    last_failure: target?.last_failure ?? null,
  };
}

/** For people: `breaker open, 0 in flight, cooling down for another 9s`. */
export function liveText(live: TargetLive): string {
  const { breaker, in_flight, until_ms, health, drained, last_failure: last } = live;
  return [
    ...(drained === null ? [] : [drainText(drained)]),
    ...(live.state === 'disabled' ? ['disabled'] : []),
    ...(health?.ok === false ? [`unhealthy: ${health.reason ?? 'the health check fails'}`] : []),
    `breaker ${breaker.replace('_', ' ')}`,
    `${in_flight} in flight`,
    ...(until_ms > 0 ? [`cooling down for another ${Math.ceil(until_ms / 1000)}s`] : []),
    ...(last === null ? [] : [`last failure ${last.code} at ${last.at}`]),
  ].join(', ');
}

/** `drained by ann until 2030-01-31T00:00:00.000Z: maintenance` */
export function drainText({ by, until, reason }: NonNullable<UpstreamState['drained']>): string {
  const end = until === null ? 'until it is resumed' : `until ${until}`;
  return `drained by ${by} ${end}${reason === null ? '' : `: ${reason}`}`;
}

/** `12s`, as an age. */
export function ageText(at: string, now = Date.now()): string {
  return formatDuration(Math.max(0, Math.round((now - Date.parse(at)) / 1000)) * 1000);
}

/** The running gateway, for people. @param hash hash of the configuration that the command read */
export function gatewayText({ url, configHash, replicas, silent }: LiveState, hash: string): string {
  if (configHash === undefined && replicas === undefined)
    return url === null
      ? 'no state to show: admin.port is 0, so its port is unknown'
      : `no state to show: no gateway answers at ${url}`;
  const others = new Set(replicas?.map((each) => each.configHash).filter((each) => each !== hash));
  const which =
    configHash === undefined
      ? 'did not report its configuration in time'
      : configHash === hash
        ? others.size === 0
          ? 'runs this configuration'
          : `runs this configuration, others of the fleet do not (${[...others].join(', ')})`
        : `runs another configuration or environment (${configHash}, this is ${hash})`;
  const count =
    replicas === undefined || replicas.length === 1 ? '' : `; states of ${replicas.length} processes`;
  const missing = silent.length === 0 ? '' : `; no answer from ${silent.join(', ')}`;
  const none = replicas === undefined ? ', and reports no upstream states' : '';
  const name = url ?? replicas?.[0]?.id ?? '';
  return `${name === '' ? 'this gateway' : name} ${which}${none}${count}${missing}`;
}

/** In bytes. Far above the largest possible list of states. */
const MAX_RESPONSE = 2 ** 23;

type AdminAddress = StaticConfig['admin'] & {
  readonly admin_certificate?: DynamicConfig['admin_certificate'] | undefined;
};

/** URL of the admin listener; null when `admin.port` is 0. */
export function adminUrl({ host, port, tls }: StaticConfig['admin']): string | null {
  // The unspecified addresses are for listening; connect to loopback instead.
  return port === 0 ? null : httpUrl({ '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host, port, tls);
}

/** @returns the answer; undefined where none of this form comes within `timeoutMs` milliseconds */
export async function askAdmin<T>(
  admin: AdminAddress,
  path: string,
  schema: z.ZodType<T>,
  timeoutMs: number,
): Promise<T | undefined> {
  const url = adminUrl(admin);
  if (url === null) return undefined;
  // Not at the top: a gateway that runs commands for its API never comes here, and would hold the package in memory.
  const { Pool } = await import('undici');
  const pool = new Pool(url, { connections: 1, maxResponseSize: MAX_RESPONSE, connect: trustOf(admin) });
  try {
    const { body } = await pool.request({ method: 'GET', path, signal: AbortSignal.timeout(timeoutMs) });
    return schema.safeParse(await body.json()).data;
  } catch {
    return undefined;
  } finally {
    await pool.destroy();
  }
}

/** Trusts the certificate of the configuration and no other, even if it does not name the address. */
function trustOf({ admin_certificate: own }: AdminAddress) {
  if (own === undefined) return {};
  return { ca: own.cert, allowPartialTrustChain: true, checkServerIdentity: () => undefined };
}
