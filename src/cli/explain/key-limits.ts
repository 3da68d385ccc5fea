// The limits of a key or a holder with what is used of them: from Redis where replicas share them, otherwise from the gateway at the
// admin address, and without one from the store, which knows days and months only.
import { z } from 'zod';
import { LIMITS } from '../../config/limit-table.ts';
import type { Config, Tier } from '../../config/schema/config-schema.ts';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import { formatDuration } from '../../config/schema/units.ts';
import { InitialTotals } from '../../limits/initial-totals.ts';
import { MemoryLimiter } from '../../limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../../limits/redis-limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import { findLimitedOwner, type LimitLine, reportLimits } from '../../proxy/reservation/limit-report.ts';
import { ScopeResolver } from '../../proxy/reservation/scopes-of.ts';
import { allowedEndpoints, allowsModel } from '../../proxy/routes/access.ts';
import type { Route } from '../../proxy/routes/route-table.ts';
import { RedisClient } from '../../redis/redis-client.ts';
import type { Store } from '../../store/store.ts';
import { createLogger } from '../../telemetry/log/logger.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import { askAdmin } from '../live-state.ts';
import type { CommandIo } from '../program/terminal.ts';
import { openStoreOf } from '../support-command.ts';

export interface KeyLimits {
  readonly tier: Tier;
  /** `store`: minutes and running requests are unknown, and count as unused. */
  readonly source: 'redis' | 'gateway' | 'store';
  readonly lines: readonly LimitLine[];
  /** What the key or the holder may use: the model, and endpoints of those that it has. */
  readonly allowed: boolean;
  readonly endpoints: readonly EndpointName[];
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
 * @param whose the prefix of a key, or the id of a holder
 * @param model the model that is requested, by its own name
 * @param timeoutMs deadline of the gateway's answer
 * @throws Error where there is no such key or holder, StoreOpenError
 */
export async function keyLimits(
  config: Config,
  io: CommandIo,
  whose: string,
  model: string,
  { entry, endpoints: ofModel }: Pick<Route, 'entry' | 'endpoints'>,
  timeoutMs: number,
): Promise<KeyLimits> {
  const store = io.desk?.store ?? (await openStoreOf(config.static, io, 'must exist'));
  try {
    const owner = await findLimitedOwner(store, whose);
    if (owner === undefined) throw new Error('no key with this prefix, and no holder with this id');
    const { tier, teamId } = owner;
    const endpoints = allowedEndpoints(ofModel, owner, config.dynamic.tiers);
    const facts = { tier, allowed: allowsModel(model, owner), endpoints };
    const { redis } = config.static;
    const path = `/limits?${new URLSearchParams({ of: whose, model: entry })}`;
    const own =
      redis === undefined
        ? await askAdmin({ ...config.static.admin, ...config.dynamic }, path, LINES, timeoutMs)
        : undefined;
    if (own !== undefined) return { ...facts, source: 'gateway', lines: own };
    const team = teamId === null ? undefined : await store.organisation.findTeam({ id: teamId });
    const scopes = await new ScopeResolver({ find: () => team }).of(owner, config.dynamic, entry);
    return redis === undefined
      ? { ...facts, source: 'store', lines: await linesOf(store, scopes) }
      : { ...facts, source: 'redis', lines: await sharedLines(store, scopes, redis) };
  } finally {
    if (io.desk === undefined) await store.close();
  }
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

/** Names and texts for people: `team: budget per month 500, used 401.25, left 98.75, resets in 10d`. */
export function keyLimitLines(
  limited: Pick<KeyLimits, 'source' | 'lines'> | undefined,
): readonly (readonly [string, string])[] {
  if (limited === undefined) return [];
  const texts = limited.lines.map(({ scope, limit, max, used, remaining, resets_in_s }) => {
    const name = limit.replace('cost', 'budget').replaceAll('_', ' ');
    const resets = resets_in_s === 0 ? '' : `, resets in ${formatDuration(resets_in_s * 1000)}`;
    return `${scope ?? 'holder'}: ${name} ${max}, used ${used}, left ${remaining}${resets}`;
  });
  if (texts.length === 0) return [['key', 'has no limits']];
  const note = 'no gateway answers, so what is used in a minute and at once is unknown';
  const all = limited.source === 'store' ? [...texts, note] : texts;
  return all.map((text, index) => [index === 0 ? 'key' : '', text]);
}
