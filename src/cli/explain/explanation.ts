// What `tollgate explain` knows of a request for a model: the route, targets and limits of the configuration, with the live state beside them.
import { explainPrices } from '../../config/check/price-summary.ts';
import { describeBody } from '../../config/schema/body-rules.ts';
import type { Config, Tier } from '../../config/schema/config-schema.ts';
import { type EndpointName, offered } from '../../config/schema/endpoint-names.ts';
import type { Endpoint } from '../../proxy/contracts/endpoint.ts';
import { CHAT, JSON_ENDPOINTS } from '../../proxy/endpoints/json-endpoints.ts';
import { keyOfCacheKey } from '../../proxy/request/affinity-key.ts';
import { destinationOf, type ExampleRequest, withoutValues } from '../../proxy/request/example-request.ts';
import { type Route, type Target, targetName } from '../../proxy/routes/route-table.ts';
import type { Forecast } from '../../proxy/targets/forecast.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { rendezvousOrder } from '../../upstream/load-balance.ts';
import type { UpstreamState } from '../../upstream/state/upstream-state.ts';
import { type LiveState, liveOf } from '../live-state.ts';
import { UsageError } from '../program/arguments.ts';
import { tierLimits } from '../terms-fields.ts';
import type { KeyLimits } from './key-limits.ts';

/** What an explanation is made of. */
export interface Question {
  readonly model: string;
  readonly tier: Tier | undefined;
  readonly route: Route;
  readonly live: LiveState;
  /** Of all processes together. */
  readonly states: readonly UpstreamState[] | undefined;
  /** Undefined without live states. */
  readonly next: Forecast | undefined;
  /** Undefined for the first endpoint of the model. */
  readonly called: Endpoint | undefined;
  readonly example: ExampleRequest | undefined;
}

/** @returns what `--json` prints, but for the order and the key */
export function explain(config: Config, question: Question) {
  const { model, tier, route, live } = question;
  const { tiers, retry } = config.dynamic;
  const listed = route.tiers;
  return {
    config: { file: config.file, hash: config.hash },
    /** Of all prices; null without one. */
    currency: config.dynamic.currency ?? null,
    model,
    match: matchOf(model, route.entry),
    /** The tiers that may use the model. */
    tiers: listed,
    tier: tier === undefined ? null : { name: tier, allowed: listed.includes(tier), offered: tier in tiers },
    /** The endpoints of the model, reduced to those of the tier if one was given. */
    endpoints: offered(route.endpoints, tier && tiers[tier]?.endpoints),
    response_model: route.responseModel,
    balance: route.balance,
    /** Null unless `balance` is `affinity`. */
    session_header: route.sessionHeader ?? null,
    fallback_on: route.fallbackOn ?? [],
    /** Null without hedging. */
    hedge: route.hedge ?? null,
    refuse: [...(route.rejected?.values() ?? [])],
    targets: route.targets.map((target) => describeTarget(target, question)),
    /** Of the next hundred requests those that the gateway would reject, by error code. Null without live states. */
    next_rejected: question.next === undefined ? null : Object.fromEntries(question.next.rejected),
    retry,
    /** By tier; null when the tier is not offered. */
    limits: Object.fromEntries(
      (tier === undefined ? listed : [tier]).map((each) => [each, tierLimits(tiers[each])]),
    ),
    server: {
      url: live.url,
      config_hash: live.configHash ?? null,
      same_config: live.configHash === undefined ? null : live.configHash === config.hash,
      upstreams: live.replicas !== undefined,
      replicas: live.replicas?.length ?? 0,
      silent: live.silent,
    },
  };
}

/** What is known of a request for a model; its fields are those of `--json`. */
export type Explanation = ReturnType<typeof explain> & {
  readonly order?: readonly string[];
  readonly key?: KeyLimits;
};

/** The targets of each priority in the order of a `prompt_cache_key`. @throws UsageError where the model has no such order */
export function orderOf(
  { sessionHeader, targets }: Route,
  cacheKey: string | undefined,
): readonly string[] | undefined {
  if (cacheKey === undefined) return undefined;
  if (sessionHeader === undefined)
    throw new UsageError('--cache-key is only for a model with `balance: affinity`');
  const key = keyOfCacheKey(cacheKey);
  return [...Map.groupBy(targets, ({ priority }) => priority).values()].flatMap((group) => {
    const named = group.map((target) => ({ name: targetName(target), weight: target.weight }));
    return rendezvousOrder(named, key).map(
      (index) => `${group[index]?.upstream.name}/${group[index]?.model}`,
    );
  });
}

/** The `models` entry that matches a name, and for a pattern what `*` matched. */
function matchOf(model: string, name: string) {
  const star = name.indexOf('*');
  if (star === -1) return { kind: 'exact' as const, name };
  return {
    kind: 'pattern' as const,
    name,
    taken: model.slice(star, model.length - (name.length - star - 1)),
  };
}

function describeTarget(target: Target, { route, states, next, called, example }: Question) {
  const { targets: all, endpoints } = route;
  const { upstream, model, weight, priority } = target;
  const { timeouts: common, max_concurrency, stream_usage, health, protocol } = upstream.config;
  const group = all.filter((other) => other.priority === priority);
  const sum = group.reduce((total, other) => total + other.weight, 0);
  return {
    upstream: upstream.name,
    model,
    priority,
    weight,
    /** Share of the requests at this priority, from 0 to 1. */
    share: sum === 0 ? 0 : weight / sum,
    ...destinationOf(upstream.config, (called ?? endpointOf(endpoints)).path),
    stream_usage: protocol === 'anthropic' ? 'off' : stream_usage,
    /** Headers of the client, besides those that all upstreams get. */
    forward_headers: (target.forwarded ?? upstream.forwarded).configured,
    body: describeBody(target.edits?.rules),
    /** The whole body, with `--body`. */
    sends: example?.bodyFor(route, target) ?? null,
    ...explainPrices(target.price, Date.now()),
    timeouts: target.timeouts ?? common,
    max_concurrency,
    health: health === undefined ? null : { path: withoutValues(health.path), interval: health.interval },
    enabled: upstream.isEnabled && target.enabled !== false,
    live: liveOf(states, upstream.name, maskKeys(model)),
    /** Of the next hundred requests those that go to this target first. Null without live states. */
    next_hundred: next === undefined ? null : (next.counts.get(target) ?? 0),
  };
}

/** The first of these endpoints; chat for one without a JSON body. */
export function endpointOf([first = 'chat']: readonly EndpointName[]): Endpoint {
  return JSON_ENDPOINTS.find(({ name }) => name === first) ?? CHAT;
}
