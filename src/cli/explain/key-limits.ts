// The limits of a key or a holder with what is used of them, and why a request would be rejected. What is used is from Redis where
// replicas share the limits, otherwise from the gateway at the admin address, and without one from the store, which knows days and months only.
import { z } from 'zod';
import { LIMITS } from '../../config/limit-table.ts';
import type { Config, Tier } from '../../config/schema/config-schema.ts';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import { formatDuration } from '../../config/schema/units.ts';
import { InitialTotals } from '../../limits/initial-totals.ts';
import { MemoryLimiter } from '../../limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../../limits/redis-limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import type { ExampleRequest } from '../../proxy/request/example-request.ts';
import {
  type FoundOwner,
  findLimitedOwner,
  type LimitLine,
  reportLimits,
} from '../../proxy/reservation/limit-report.ts';
import { ScopeResolver } from '../../proxy/reservation/scopes-of.ts';
import { allowedEndpoints, allowsModel } from '../../proxy/routes/access.ts';
import type { Route, RouteTable } from '../../proxy/routes/route-table.ts';
import { RedisClient } from '../../redis/redis-client.ts';
import type { Store } from '../../store/store.ts';
import { createLogger } from '../../telemetry/log/logger.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import { askAdmin } from '../live-state.ts';
import type { CommandIo } from '../program/terminal.ts';
import { openStoreOf } from '../support-command.ts';
import {
  type KeyRejection,
  keyNotes,
  keyRejection,
  rejectionBeforeBody,
  rejectionText,
} from './key-rejection.ts';

export interface KeyLimits {
  readonly tier: Tier;
  /** `store`: minutes and running requests are unknown, and count as unused. */
  readonly source: 'redis' | 'gateway' | 'store';
  readonly lines: readonly LimitLine[];
  /** What the key or the holder may use: the model, and endpoints of those that it has. */
  readonly allowed: boolean;
  readonly endpoints: readonly EndpointName[];
  /** The error that a request would get; null where none. Without the example of a body it is about the smallest request. */
  readonly rejected: KeyRejection | null;
  /** What is to be known of the key besides: its expiry, its successor. */
  readonly notes: readonly string[];
}

/** What is asked. */
interface LimitsQuestion {
  /** The prefix of a key, or the id of a holder. */
  readonly whose: string;
  /** The model that is requested, by its own name. */
  readonly model: string;
  readonly route: Route;
  readonly routes: RouteTable;
  /** Undefined for any that the key may use. */
  readonly endpoint: EndpointName | undefined;
  readonly example: ExampleRequest | undefined;
}

const NAMES = LIMITS.map(({ name }) => name);
const LINES = z.array(
  z.object({
    scope: z.enum(['key', 'team', 'model']).exactOptional(),
    model: z.string().exactOptional(),
    limit: z.enum(NAMES),
    max: z.number(),
    used: z.number(),
    remaining: z.number(),
    resets_in_s: z.number(),
  }),
);

/**
 * @param timeoutMs deadline of the gateway's answer
 * @throws Error where there is no such key or holder, StoreOpenError
 */
export async function keyLimits(
  config: Config,
  io: CommandIo,
  question: LimitsQuestion,
  timeoutMs: number,
): Promise<KeyLimits> {
  const { whose, model, route, endpoint } = question;
  return withOwner(config, io, whose, async (owner, store) => {
    const { tier, teamId, key, holderId } = owner;
    const endpoints = allowedEndpoints(route.endpoints, owner, config.dynamic.tiers);
    const team = teamId === null ? undefined : await store.organisation.findTeam({ id: teamId });
    const scopes = await new ScopeResolver({ find: () => team }).of(owner, config.dynamic, route.entry);
    const used = await usedOf(config, store, scopes, question, timeoutMs);
    const called = endpoint ?? endpoints[0] ?? route.endpoints[0] ?? 'chat';
    const request = { ...question, config: config.dynamic, owner, team, scopes, ...used, endpoint: called };
    const keyFilter = { holderId, state: 'active', limit: 1 } as const;
    const hasKey = key !== undefined || (await store.listKeys(keyFilter)).items.length > 0;
    return {
      tier,
      ...used,
      allowed: allowsModel(model, owner),
      endpoints,
      rejected: keyRejection(request) ?? null,
      notes: hasKey ? keyNotes(key) : ['the holder has no active key'],
    };
  });
}

/** The error that a request gets before its body is read. @throws as `keyLimits` */
export function keyRejectedBeforeBody(
  config: Config,
  io: CommandIo,
  { whose, routes, endpoint }: Pick<LimitsQuestion, 'whose' | 'routes' | 'endpoint'>,
): Promise<KeyRejection | undefined> {
  return withOwner(config, io, whose, async (owner) =>
    rejectionBeforeBody({ owner, config: config.dynamic, routes }, endpoint),
  );
}

async function withOwner<Result>(
  config: Config,
  io: CommandIo,
  whose: string,
  work: (owner: FoundOwner, store: Store) => Promise<Result>,
): Promise<Result> {
  const store = io.desk?.store ?? (await openStoreOf(config.static, io, 'must exist'));
  try {
    const owner = await findLimitedOwner(store, whose);
    if (owner === undefined) throw new Error('no key with this prefix, and no holder with this id');
    return await work(owner, store);
  } finally {
    if (io.desk === undefined) await store.close();
  }
}

async function usedOf(
  { static: fixed, dynamic }: Config,
  store: Store,
  scopes: Scopes,
  { whose, route }: LimitsQuestion,
  timeoutMs: number,
): Promise<Pick<KeyLimits, 'source' | 'lines'>> {
  const { redis, admin } = fixed;
  if (redis !== undefined) return { source: 'redis', lines: await sharedLines(store, scopes, redis) };
  const path = `/limits?${new URLSearchParams({ of: whose, model: route.entry })}`;
  const lines = await askAdmin({ ...admin, ...dynamic }, path, LINES, timeoutMs);
  return lines === undefined
    ? { source: 'store', lines: await linesOf(store, scopes) }
    : { source: 'gateway', lines };
}

function totalsIn(store: Store): InitialTotals {
  const day = new Date().toISOString().slice(0, 10);
  // A command may wait longer than a request.
  const options = { metrics: createMetrics(), deadlineMs: 5000 };
  return new InitialTotals({ read: ({ owner }) => store.usage.usageOf(owner, day), ...options });
}

async function linesOf(store: Store, scopes: Scopes): Promise<readonly LimitLine[]> {
  const limiter = new MemoryLimiter({ initialTotals: totalsIn(store), metrics: createMetrics() });
  return reportLimits(scopes, await limiter.peek(scopes));
}

async function sharedLines(store: Store, scopes: Scopes, url: string): Promise<readonly LimitLine[]> {
  const redis = new RedisClient({ url, logger: createLogger(undefined, 'silent') });
  const limiter = new RedisLimiter({ redis, initialTotals: totalsIn(store), metrics: createMetrics() });
  try {
    await redis.start();
    return reportLimits(scopes, await limiter.peek(scopes));
  } finally {
    await limiter.close();
    await redis.close();
  }
}

/** In the largest unit of which there are two, rounded up. */
function resetText(ms: number): string {
  const unit = [86_400_000, 3_600_000, 60_000, 1000].find((each) => ms >= 2 * each) ?? 1000;
  return formatDuration(Math.ceil(ms / unit) * unit);
}

/** Names and texts for people: `team: budget per month 500, used 401.25, left 98.75, resets in 10d`. */
export function keyLimitLines(
  limited: Pick<KeyLimits, 'source' | 'lines' | 'rejected' | 'notes'> | undefined,
): readonly (readonly [string, string])[] {
  if (limited === undefined) return [];
  const { rejected, notes, source, lines } = limited;
  const texts = lines.map(({ scope, limit, max, used, remaining, resets_in_s }) => {
    const name = limit.replace('cost', 'budget').replaceAll('_', ' ');
    const resets = resets_in_s === 0 ? '' : `, resets in ${resetText(resets_in_s * 1000)}`;
    return `${scope ?? 'holder'}: ${name} ${max}, used ${used}, left ${remaining}${resets}`;
  });
  const unknown = 'no gateway answers, so what is used in a minute and at once is unknown';
  const limits = texts.length === 0 ? ['has no limits'] : source === 'store' ? [...texts, unknown] : texts;
  const all = [...notes, ...limits].map((text, index) => [index === 0 ? 'key' : '', text] as const);
  return rejected === null ? all : [['rejected', rejectionText(rejected)], ...all];
}
