// Which route a model name takes: exact names first, then the longest pattern. Built once from the configuration; it
// knows names and targets, not the state of upstreams.

import type { DynamicConfig, ModelConfig, Tier } from '../../config/schema/config-schema.ts';
import { type EndpointName, offered } from '../../config/schema/endpoint-names.ts';
import { type Timeouts, timeoutsOf } from '../../config/schema/timeouts.ts';
import { GatewayError } from '../../errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { foldPath, WatchedMembers } from './watched-members.ts';

/** Where a request may go: an upstream, and the name that the model has there. */
export interface Target {
  readonly upstream: Upstream;
  readonly model: string;
  /** As it is configured: the name, or the pattern that the client's own words went into. */
  readonly entry: string;
  readonly weight: number;
  readonly priority: number;
  /** Where its model or the target itself sets some. Default: those of the upstream. */
  readonly timeouts?: Timeouts;
  /** Members of requests that it does not get, as they are configured, by their folded paths. Default: none. */
  readonly removed?: ReadonlyMap<string, string>;
}

/** A model name resolved: what a request with this name may do. */
export interface Route {
  /** The name that was asked for, which the client reads back. */
  readonly model: string;
  /** The entry of the table that it took: the name itself, or a pattern. */
  readonly entry: string;
  readonly price: ModelConfig['price'] | undefined;
  readonly tiers: readonly Tier[];
  /** Where it is offered, to tiers that take nothing away. */
  readonly endpoints: readonly EndpointName[];
  readonly responseModel: ModelConfig['response_model'];
  readonly balance: ModelConfig['balance'];
  /** When a second target is asked beside a silent one; undefined for never. */
  readonly hedge: ModelConfig['hedge'] | undefined;
  /** Members of requests that one of its targets refuses, as they are configured, by their folded paths. Default: none. */
  readonly refused?: ReadonlyMap<string, string>;
  /** Ascending priority, in the configuration's order within one. Never empty. */
  readonly targets: readonly Target[];
}

interface Pattern {
  readonly name: string;
  readonly prefix: string;
  readonly suffix: string;
  readonly route: Route;
}

export class RouteTable {
  readonly #exact = new Map<string, Route>();
  readonly #patterns: Pattern[] = [];
  /** Members of requests that some rule of the configuration is about; undefined for none. */
  readonly watched: WatchedMembers | undefined;
  readonly #tiers: DynamicConfig['tiers'];
  readonly #upstreams: ReadonlyMap<string, Upstream>;

  /**
   * @param upstreams by name; the configuration was checked to name no other
   * @param tiers of which only `endpoints` matters here
   */
  constructor(
    models: DynamicConfig['models'],
    upstreams: ReadonlyMap<string, Upstream>,
    tiers: DynamicConfig['tiers'] = {},
  ) {
    this.#tiers = tiers;
    this.#upstreams = upstreams;
    this.watched = WatchedMembers.of([
      ...Object.values(models).map(({ members }) => members),
      ...Array.from(upstreams.values(), ({ config }) => config.members),
    ]);
    for (const [name, model] of Object.entries(models)) {
      const rules = [
        model.members,
        ...model.targets.map((target) => upstreams.get(target.upstream)?.config.members),
      ];
      const route: Route = {
        model: name,
        entry: name,
        price: model.price,
        tiers: model.tiers,
        endpoints: model.endpoints,
        responseModel: model.response_model,
        balance: model.balance,
        hedge: model.hedge,
        ...withMembers(
          'refused',
          rules.map((each) => each?.refuse),
        ),
        targets: model.targets
          .map(({ upstream: key, timeouts: own, ...target }) => {
            const upstream = upstreams.get(key);
            if (upstream === undefined)
              throw new GatewayError('internal_error', `no upstream is named ${key}`);
            const removed = [model.members?.remove, upstream.config.members?.remove];
            const { timeouts: common } = upstream.config;
            const timeouts = timeoutsOf(common, model.timeouts, own);
            return {
              ...target,
              entry: target.model,
              upstream,
              ...(timeouts === common ? {} : { timeouts }),
              ...withMembers('removed', removed),
            };
          })
          .sort((a, b) => a.priority - b.priority),
      };
      const star = name.indexOf('*');
      if (star === -1) this.#exact.set(name, route);
      else this.#patterns.push({ name, prefix: name.slice(0, star), suffix: name.slice(star + 1), route });
    }
    // The most specific pattern decides; of two equally long ones the order of their names, so that it is the same everywhere.
    this.#patterns.sort((a, b) => b.name.length - a.name.length || (a.name < b.name ? -1 : 1));
  }

  /**
   * @param name as in the request: compared as a whole, case counts, no character has a special meaning
   * @param endpoint what it is asked for, which `checkTier` found that the tier has; default: anything
   * @returns the route that this tier may use
   * @throws GatewayError model_not_found, also for a model of another tier: its existence is not given away;
   *   endpoint_not_offered for one that this tier may use elsewhere
   */
  resolve(name: string, tier: Tier, endpoint?: EndpointName): Route {
    const route = this.find(name);
    if (route === undefined || !this.#mayUse(route, tier)) {
      throw new GatewayError(
        'model_not_found',
        `The model ${quote(name)} does not exist or this key has no access to it.`,
      );
    }
    if (endpoint !== undefined && !route.endpoints.includes(endpoint)) {
      const others = this.endpointsOf(route, tier).join(', ');
      throw new GatewayError(
        'endpoint_not_offered',
        `The model ${quote(name)} is not offered for ${endpoint}. This key may use it for: ${others}.`,
      );
    }
    return route;
  }

  /** @throws GatewayError endpoint_not_offered where the tier has it with no model */
  checkTier(tier: Tier, endpoint: EndpointName): void {
    const { endpoints } = this.#tiers[tier] ?? {};
    if (endpoints?.includes(endpoint) !== false) return;
    throw new GatewayError(
      'endpoint_not_offered',
      `The tier of this key has no ${endpoint}. It has: ${endpoints.join(', ')}.`,
    );
  }

  /** For what a tier may use a model that it may use. */
  endpointsOf({ endpoints }: Route, tier: Tier): readonly EndpointName[] {
    return offered(endpoints, this.#tiers[tier]?.endpoints);
  }

  /** The upstream of this name, for what it alone can answer. */
  upstream(name: string): Upstream | undefined {
    return this.#upstreams.get(name);
  }

  /** The route of a name, whoever may use it. */
  find(name: string): Route | undefined {
    return this.#exact.get(name) ?? this.#match(name);
  }

  /** The exact names that a tier may use, in the configuration's order. Patterns are no names and are not among them. */
  names(tier: Tier): string[] {
    return [...this.#exact.values()].filter((route) => this.#mayUse(route, tier)).map((route) => route.model);
  }

  /** The patterns that a tier may use, from the most specific one: each stands for every name that matches it. */
  patterns(tier: Tier): string[] {
    return this.#patterns.filter(({ route }) => this.#mayUse(route, tier)).map(({ name }) => name);
  }

  #mayUse(route: Route, tier: Tier): boolean {
    if (!route.tiers.includes(tier)) return false;
    return this.#tiers[tier]?.endpoints === undefined || this.endpointsOf(route, tier).length > 0;
  }

  #match(name: string): Route | undefined {
    for (const { prefix, suffix, route } of this.#patterns) {
      if (name.length < prefix.length + suffix.length || !name.startsWith(prefix) || !name.endsWith(suffix))
        continue;
      const matched = name.slice(prefix.length, name.length - suffix.length);
      if (matched === '') continue;
      const targets = route.targets.map((target) => {
        const star = target.model.indexOf('*');
        // Put together by hand: `replace` would read `$&` in a name as a command.
        return star === -1
          ? target
          : { ...target, model: target.model.slice(0, star) + matched + target.model.slice(star + 1) };
      });
      return { ...route, model: name, targets };
    }
    return undefined;
  }
}

/** Nothing where no member is meant, so that nothing is looked up. */
function withMembers<K extends string>(
  key: K,
  lists: readonly (readonly string[] | undefined)[],
): Partial<Record<K, ReadonlyMap<string, string>>> {
  const paths = lists.flatMap((each) => each ?? []);
  if (paths.length === 0) return {};
  const byPath: ReadonlyMap<string, string> = new Map(paths.map((path) => [foldPath(path), path]));
  const result: Partial<Record<K, ReadonlyMap<string, string>>> = {};
  result[key] = byPath;
  return result;
}

/** A name as the client sent it, short enough and without control characters for an error message. */
function quote(name: string): string {
  const masked = maskKeys(name);
  return JSON.stringify(masked.length > 100 ? `${masked.slice(0, 100)}…` : masked);
}
