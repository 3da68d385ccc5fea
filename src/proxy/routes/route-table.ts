// Model name → route: exact names first, then the longest pattern. Built once per configuration, without the state of
// upstreams.
import { type Timeouts, timeoutsOf } from '../../config/check/timeouts.ts';
import { NameTable } from '../../config/name-table.ts';
import { PriceBook, type Prices } from '../../config/prices.ts';
import { type BodyRule, foldPath, mergeRules } from '../../config/schema/body-rules.ts';
import type { DynamicConfig, ModelConfig, Tier } from '../../config/schema/config-schema.ts';
import { ENDPOINTS, type EndpointName } from '../../config/schema/endpoint-names.ts';
import { weightInUse } from '../../config/schema/model-schema.ts';
import { GatewayError } from '../../errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { ForwardedHeaders } from '../../upstream/http/forwarded-headers.ts';
import { forwardedTo, type Upstream } from '../../upstream/upstream.ts';
import { type Access, allowedEndpoints, allowsModel, isRestricted } from './access.ts';
import { TargetEdits } from './target-edits.ts';
import { KEY_NAMES, PROMPT_NAMES, WatchedMembers } from './watched-members.ts';

/** A destination of requests: an upstream, and the model's name there. */
export interface Target {
  readonly upstream: Upstream;
  readonly model: string;
  /** The model as configured: the name, or the pattern before substitution. */
  readonly entry: string;
  /** Undefined for true. */
  readonly enabled?: boolean;
  /** 0 with `enabled: false`. */
  readonly weight: number;
  readonly priority: number;
  /** Set where the model or the target overrides the upstream's. */
  readonly timeouts?: Timeouts;
  /** Client headers that are forwarded, where the target has more than its upstream. */
  readonly forwarded?: ForwardedHeaders;
  /** Absent where target, model and lists have none. */
  readonly price?: Prices;
  /** Changes of request bodies. Default: none. */
  readonly edits?: TargetEdits;
}

interface NamedTarget {
  readonly upstream: { readonly name: string };
  readonly model: string;
}

/** The name of a target, the same on all replicas and after a restart. */
export function targetName({ upstream, model }: NamedTarget): string {
  return `${upstream.name}\0${model}`;
}

/** Of a request, at the upstream. */
export interface History {
  /** Its tokens, as far as this process has seen them. */
  readonly tokens: number;
  /** Ids of conversations, which grow with the request. */
  readonly conversations: readonly string[];
}

/** A resolved model name. */
export interface Route {
  /** The requested name, which the client reads back. */
  readonly model: string;
  /** The matching entry of the table: the name itself, or a pattern. */
  readonly entry: string;
  readonly tiers: readonly Tier[];
  /** Endpoints of the model, before the tier's restrictions. */
  readonly endpoints: readonly EndpointName[];
  readonly responseModel: ModelConfig['response_model'];
  readonly balance: ModelConfig['balance'];
  /** Of `balance: affinity`: the header that names a session. */
  readonly sessionHeader?: string;
  /** The name of the target that made the response which the request continues. */
  readonly maker?: string;
  /** What the upstream adds to the prompt of the request: an earlier response, or a conversation. */
  readonly history?: History;
  /** Reasons, besides failures, for which a rejected request goes to another target. Default: none. */
  readonly fallbackOn?: ModelConfig['fallback_on'];
  /** When a silent target is hedged with a second one; undefined for never. */
  readonly hedge: ModelConfig['hedge'] | undefined;
  /** Request members that one of its targets rejects: folded path → configured path. Default: none. */
  readonly rejected?: ReadonlyMap<string, string>;
  /** Request members that rules of its targets name; undefined for none. */
  readonly watched?: WatchedMembers | undefined;
  /** Ascending priority, and in configured order within one. Never empty. */
  readonly targets: readonly Target[];
}

/** Default of `affinity.header`. */
const SESSION_HEADER = 'x-session-id';

export class RouteTable {
  readonly #routes: NameTable<Route>;
  /** Request members that some rule names, of any route; undefined for none. */
  readonly watched: WatchedMembers | undefined;
  /** Client headers that are forwarded to some upstream. */
  readonly forwarded: ForwardedHeaders;
  readonly #tiers: DynamicConfig['tiers'];
  readonly #upstreams: ReadonlyMap<string, Upstream>;
  readonly #book: PriceBook;

  /**
   * @param upstreams by name; the configuration is validated to name no others
   * @param tiers only `endpoints` is used
   * @param listed prices for targets without one
   */
  constructor(
    models: DynamicConfig['models'],
    upstreams: ReadonlyMap<string, Upstream>,
    tiers: DynamicConfig['tiers'] = {},
    listed?: DynamicConfig['prices'],
  ) {
    this.#book = new PriceBook(listed);
    this.#tiers = tiers;
    this.#upstreams = upstreams;
    const allRules: BodyRule[] = [];
    const targets = Object.values(models).flatMap((model) => model.targets);
    const configs = [...Array.from(upstreams.values(), ({ config }) => config), ...targets];
    this.forwarded = new ForwardedHeaders(
      configs.flatMap((each) => ('forward_headers' in each ? (each.forward_headers ?? []) : [])),
    );
    const routes = Object.entries(models).map(([name, model]): readonly [string, Route] => {
      const rules = model.targets.map((target) =>
        mergeRules(upstreams.get(target.upstream)?.config.body, model.body, target.body),
      );
      allRules.push(...rules.flat());
      const route: Route = {
        model: name,
        entry: name,
        tiers: model.tiers,
        endpoints: model.endpoints,
        responseModel: model.response_model,
        balance: model.balance,
        hedge: model.hedge,
        ...(model.balance === 'affinity' ? { sessionHeader: model.affinity?.header ?? SESSION_HEADER } : {}),
        ...(model.fallback_on.length === 0 ? {} : { fallbackOn: model.fallback_on }),
        ...rejectedBy(rules.flat()),
        watched: WatchedMembers.of(rules.flat(), keyMembers(model)),
        targets: model.targets
          .map(({ upstream: key, timeouts: own, body: _, price: ownPrice, ...given }, index) => {
            const { forward_headers: more, ...target } = given;
            const ofModel = ownPrice ?? model.price;
            // A name with `*` is looked up when it is known.
            const isNamed = !target.model.includes('*');
            const price = ofModel ?? (isNamed ? this.#book.find(key, target.model) : undefined);
            const upstream = upstreams.get(key);
            if (upstream === undefined)
              throw new GatewayError('internal_error', `no upstream is named ${key}`);
            const { timeouts: common } = upstream.config;
            const timeouts = timeoutsOf(common, model.timeouts, own);
            const edits = TargetEdits.of(rules[index] ?? []);
            return {
              ...target,
              weight: weightInUse(target),
              entry: target.model,
              upstream,
              ...(timeouts === common ? {} : { timeouts }),
              ...(price === undefined ? {} : { price }),
              ...(more === undefined ? {} : { forwarded: forwardedTo(upstream.config, more) }),
              ...(edits === undefined ? {} : { edits }),
            };
          })
          .sort((a, b) => a.priority - b.priority),
      };
      return [name, route];
    });
    this.#routes = new NameTable(routes);
    this.watched = WatchedMembers.of(allRules, Object.values(models).flatMap(keyMembers));
  }

  /**
   * @param name from the request; compared as a whole, case-sensitive, no character has a special meaning
   * @param endpoint the requested endpoint, which passed `checkEndpoint`; default: any
   * @returns the route that this key may use
   * @throws GatewayError model_not_found, also for a model that the key may not use, to hide its existence;
   *   endpoint_not_offered for a model that this key may use for other endpoints
   */
  resolve(name: string, scope: Access, endpoint?: EndpointName): Route {
    const route = this.find(name);
    if (route === undefined || !this.#mayUse(route, scope)) {
      throw new GatewayError(
        'model_not_found',
        `The model ${quote(name)} does not exist or this key has no access to it.`,
      );
    }
    if (endpoint !== undefined && !route.endpoints.includes(endpoint)) {
      const others = this.endpointsOf(route, scope).join(', ');
      throw new GatewayError(
        'endpoint_not_offered',
        `The model ${quote(name)} is not offered for ${endpoint}. This key may use it for: ${others}.`,
      );
    }
    return route;
  }

  /**
   * Checks a model that a request names beside its own. A name without a route is the upstream's to know, for keys that may use all models.
   * @throws GatewayError model_not_found
   */
  checkOther(name: string, scope: Access): void {
    if (this.find(name) !== undefined || isRestricted(scope)) this.resolve(name, scope);
  }

  /** @throws GatewayError endpoint_not_offered where the key has this endpoint for no model */
  checkEndpoint(scope: Access, endpoint: EndpointName): void {
    const allowed = allowedEndpoints(ENDPOINTS, scope, this.#tiers);
    if (allowed.includes(endpoint)) return;
    const whose =
      this.#tiers[scope.tier]?.endpoints?.includes(endpoint) === false ? 'The tier of this key' : 'This key';
    throw new GatewayError(
      'endpoint_not_offered',
      `${whose} has no ${endpoint}. It has: ${allowed.join(', ')}.`,
    );
  }

  /** The endpoints for which a key may use a model. */
  endpointsOf({ endpoints }: Pick<Route, 'endpoints'>, scope: Access): readonly EndpointName[] {
    return allowedEndpoints(endpoints, scope, this.#tiers);
  }

  /** The upstream of this name, for calls that only it can answer. */
  upstream(name: string): Upstream | undefined {
    return this.#upstreams.get(name);
  }

  /** The route of a name, regardless of tier. */
  find(name: string): Route | undefined {
    const { value: route, taken } = this.#routes.find(name) ?? {};
    if (route === undefined || taken === undefined) return route;
    const targets = route.targets.map((target) => {
      const star = target.model.indexOf('*');
      // No `replace`: it would interpret `$&` in a name.
      if (star === -1) return target;
      const model = target.model.slice(0, star) + taken + target.model.slice(star + 1);
      const price = target.price ?? this.#book.find(target.upstream.name, model);
      return { ...target, model, ...(price === undefined ? {} : { price }) };
    });
    return { ...route, model: name, targets };
  }

  /** The exact names that a key may use, in configured order; no patterns. @param endpoint for which; default: any */
  names(scope: Access, endpoint?: EndpointName): string[] {
    return [...this.#routes.exact.values()]
      .filter((route) => this.#mayUse(route, scope))
      .filter((route) => endpoint === undefined || this.endpointsOf(route, scope).includes(endpoint))
      .map((route) => route.model);
  }

  /** The patterns that a key may use, most specific first. */
  patterns(scope: Access): string[] {
    return this.#routes.patterns.filter(({ value }) => this.#mayUse(value, scope)).map(({ name }) => name);
  }

  #mayUse(route: Route, scope: Access): boolean {
    if (!route.tiers.includes(scope.tier) || !allowsModel(route.model, scope)) return false;
    return this.endpointsOf(route, scope).length > 0;
  }
}

/** Empty without such rules, so that requests skip the lookup. */
function rejectedBy(rules: readonly BodyRule[]): Pick<Route, 'rejected'> {
  const paths = rules.flatMap(({ kind, path }) => (kind === 'refuse' ? [path] : []));
  return paths.length === 0 ? {} : { rejected: new Map(paths.map((path) => [foldPath(path), path])) };
}

/** The client's name for an error message: masked, shortened, without control characters. */
function quote(name: string): string {
  const masked = maskKeys(name);
  return JSON.stringify(masked.length > 100 ? `${masked.slice(0, 100)}…` : masked);
}

/** What `balance: affinity` reads of a request. */
function keyMembers({ balance }: ModelConfig): readonly string[] {
  return balance === 'affinity' ? [...KEY_NAMES, ...PROMPT_NAMES] : [];
}
