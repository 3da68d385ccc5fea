// `tollgate explain`: the targets and limits of a request for a model, from the configuration, and the live state of the targets
// from a running gateway. It sends nothing to upstreams and prints no credentials and no header or query values.
import { describePrices, explainPrices } from '../config/check/price-summary.ts';
import { hedgeText } from '../config/check/summary.ts';
import { describeTimeouts } from '../config/check/timeouts.ts';
import { loadConfig } from '../config/load-config.ts';
import type { Prices } from '../config/prices.ts';
import { describeBody } from '../config/schema/body-rules.ts';
import { type Config, TIERS, type Tier } from '../config/schema/config-schema.ts';
import { ENDPOINTS, type EndpointName, offered } from '../config/schema/endpoint-names.ts';
import { formatDuration } from '../config/schema/units.ts';
import { nearestOf } from '../config/source/nearest.ts';
import type { GatewayError } from '../errors.ts';
import type { Forecast } from '../proxy/attempts/forecast.ts';
import type { Endpoint } from '../proxy/contracts/endpoint.ts';
import { CHAT, JSON_ENDPOINTS } from '../proxy/endpoints/json-endpoints.ts';
import { keyOfCacheKey } from '../proxy/request/affinity-key.ts';
import {
  destinationOf,
  type ExampleRequest,
  requestOf,
  routeOf,
  shownBody,
  withoutValues,
} from '../proxy/request/example-request.ts';
import { type Route, type Target, targetName } from '../proxy/routes/route-table.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import { rendezvousOrder } from '../upstream/load-balance.ts';
import type { UpstreamState } from '../upstream/state/upstream-state.ts';
import { type KeyLimits, keyLimitLines, keyLimits } from './key-limits.ts';
import {
  fetchLiveState,
  forecastOf,
  gatewayText,
  type LiveState,
  liveOf,
  liveText,
  mergedStates,
} from './live-state.ts';
import { UsageError } from './program/arguments.ts';
import { CONFIG, choice, command, JSON_OUTPUT, text } from './program/command.ts';
import { type CommandIo, write } from './program/terminal.ts';
import { readInput } from './support-command.ts';
import { tierLimits, tierLimitText } from './terms-fields.ts';

/** Timeout of the request to a running gateway. */
const TIMEOUT_MS = 500;
const MAX_NEAREST = 3;
/** Below the first line of a body. */
const BODY_INDENT = ' '.repeat(16);

/** Exits with 1 when a request would be rejected (no such model, or not for this tier). */
export const EXPLAIN = command('explain', 'show where a request for a model would go', {
  detail:
    'Shows the targets of a request for MODEL, in order, and its limits. When a gateway answers at the admin address of the configuration, it also shows the live state of the targets.',
  operand: { name: 'MODEL', about: 'the model that is asked for, as --model', isOptional: true },
  options: {
    model: text('MODEL', 'the model that is asked for; with --body, the one of the body'),
    tier: choice(TIERS, 'TIER', 'the tier of the holder', ['key']),
    key: text('WHOSE', 'a key by its prefix or a holder by its id: all its limits, and what is used of them'),
    endpoint: choice(
      ENDPOINTS,
      'ENDPOINT',
      'the endpoint that is called; the default is the first of the model',
    ),
    body: text(
      'FILE',
      'the JSON body of a request, - for the standard input: show what each target would be sent',
    ),
    cacheKey: text('KEY', 'the order of the targets for this prompt_cache_key, with balance: affinity'),
    json: JSON_OUTPUT,
    config: CONFIG,
  },
  examples: [
    'explain gpt-4o --tier Pro',
    'explain gpt-4o --key 0123abcd',
    'explain --body request.json --json',
  ],
  run: async (given, io, operand) => {
    const { body: file, endpoint: name, tier: named, key: whose, cacheKey: key, json: asJson } = given;
    if (operand !== '' && given.model !== undefined) throw new UsageError('give either MODEL or --model');
    const wanted = operand === '' ? given.model : operand;
    if (file === undefined && wanted === undefined) throw new UsageError('--model is missing');
    const called = name === undefined ? undefined : endpointOf([name]);
    const timeoutMs = io.gatewayTimeoutMs ?? TIMEOUT_MS;
    const config = io.desk?.config() ?? loadConfig(given.config, io.env);
    const body = file === undefined ? undefined : await readInput(file, io, config.dynamic.max_body);
    const { model = wanted ?? '', rejected } = requestOf(body, called ?? CHAT);
    if (rejected !== undefined) return reject(io, asJson, rejected);
    if ((wanted ?? model) !== model) throw new UsageError('the body names another model than --model');
    const found = routeOf(config.dynamic, model);
    if (found === undefined) {
      const near = nearestOf(model, Object.keys(config.dynamic.models), MAX_NEAREST);
      if (asJson) await write(io.stdout, json({ model, match: null, nearest: near }));
      io.stderr.write(`tollgate explain: ${unknownModel(config, model, near)}\n`);
      return 1;
    }
    const limited =
      whose === undefined ? undefined : await keyLimits(config, io, whose, found.entry, timeoutMs);
    const tier = named ?? limited?.tier;
    const live = await fetchLiveState(config, timeoutMs, io.desk);
    const request = requestOf(body, called ?? endpointOf(found.endpoints), found);
    if (request.rejected !== undefined) return reject(io, asJson, request.rejected);
    const { example } = request;
    const order = orderOf(found, key);
    const next = forecastOf(found, live, key);
    const question = { model, tier, route: found, live, states: mergedStates(live), next, called, example };
    const explanation = {
      ...explain(config, question),
      ...(order && { order }),
      ...(limited && { key: limited }),
    };
    await write(io.stdout, asJson ? json(explanation) : textOf(explanation, live, found));
    const isUsable = explanation.tier?.allowed === true && explanation.endpoints.length > 0;
    return tier !== undefined && !isUsable ? 1 : 0;
  },
});

async function reject(
  io: CommandIo,
  asJson: boolean,
  { status, code, message, param }: GatewayError,
): Promise<number> {
  if (asJson) await write(io.stdout, json({ rejected: { status, code, message, param } }));
  io.stderr.write(`tollgate explain: the request gets a ${status} ${code}: ${message}\n`);
  return 1;
}

// --- from the configuration --------------------------------------------------------------------------------------------

interface Question {
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

function explain(config: Config, question: Question) {
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

type Explanation = ReturnType<typeof explain> & {
  readonly order?: readonly string[];
  readonly key?: KeyLimits;
};

/** The targets of each priority in the order of a `prompt_cache_key`. @throws UsageError where the model has no such order */
function orderOf(
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
function endpointOf([first = 'chat']: readonly EndpointName[]): Endpoint {
  return JSON_ENDPOINTS.find(({ name }) => name === first) ?? CHAT;
}

// --- as text ---------------------------------------------------------------------------------------------------------

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** Quotes a name and escapes control characters, which could steer a terminal. */
function quote(name: string): string {
  const short = name.length > 256 ? `${name.slice(0, 256)}…` : name;
  return JSON.stringify(short).replaceAll(
    /\p{C}/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

function unknownModel({ file }: Config, model: string, near: readonly string[]): string {
  const hint =
    near.length === 0 ? '`tollgate check` lists its models' : `did you mean ${near.map(quote).join(' or ')}?`;
  return `no model of ${file} matches ${quote(model)}: requests get a 404 model_not_found; ${hint}`;
}

type Line = readonly [name: string, text: string];

/** The line, where there is a text. */
const lineOf = (name: string, text: string | false | null): readonly Line[] => (text ? [[name, text]] : []);

function rows(lines: readonly Line[], indent: string): string {
  return lines.map(([name, text]) => `${indent}${name.padEnd(10)}  ${text}\n`).join('');
}

function textOf(explanation: Explanation, live: LiveState, route: Route): string {
  const { config, model, match, tiers, tier, endpoints, response_model, targets, retry, limits } =
    explanation;
  const matched =
    match.kind === 'exact'
      ? 'the model of this name'
      : `the pattern ${quote(match.name)}; * matches ${quote(match.taken)}`;
  const may =
    tier === null
      ? `${tiers.join(', ')} may use it`
      : tier.allowed && endpoints.length > 0
        ? `${tier.name} may use it`
        : `${tier.name} may not use it: requests get a 404 model_not_found (${tiers.join(', ')} may)`;
  const answer = response_model === 'alias' ? quote(model) : 'that the upstream sends';
  const after = retry.after_send ? 'one more' : 'none';
  const { fallback_on, hedge, refuse } = explanation;
  const rejections = Object.entries(explanation.next_rejected ?? {});
  const head: readonly Line[] = [
    ['matches', matched],
    ['tiers', may],
    ['for', endpoints.length === 0 ? 'nothing that this tier has' : endpoints.join(', ')],
    ...Object.entries(limits).map(([name, each]): Line => ['limits', `${name}: ${tierLimitText(each)}`]),
    ...keyLimitLines(explanation.key),
    ['response', `the client reads the model name ${answer}`],
    [
      'attempts',
      `at most ${retry.attempts} for one request within ${formatDuration(retry.deadline)} (once an upstream may have begun: ${after}); over all, ${percent(retry.budget)} beyond first ones, but three a second always`,
    ],
    ['balance', balanceText(explanation)],
    ...lineOf('order', explanation.order?.join(', then ') ?? null),
    ...lineOf('fallback', fallback_on.length > 0 && `besides failures also on ${fallback_on.join(', ')}`),
    ...lineOf('hedge', hedge && `a second target after ${hedgeText(hedge)} without output`),
    ...lineOf('body', refuse.length > 0 && `refuses ${refuse.join(', ')}`),
    ['gateway', gatewayText(live, config.hash)],
    ...rejections.map(([code, count]): Line => ['next', `${nextText(count, explanation)} get ${code}`]),
  ];
  const blocks = targets.map((target, index) => {
    const isFirst = target.priority !== targets[index - 1]?.priority;
    return `${isFirst ? `priority ${target.priority}\n` : ''}${targetText(target, explanation, route.targets[index]?.price)}`;
  });
  return `${quote(model)} by ${config.file} (${config.hash})\n${rows(head, '  ')}${blocks.join('')}`;
}

function targetText(
  target: Explanation['targets'][number],
  explanation: Explanation,
  prices: Prices | undefined,
): string {
  const {
    upstream,
    builtin,
    scheme,
    host,
    path,
    headers,
    timeouts,
    health,
    live,
    next_hundred: next,
  } = target;
  const { forward_headers: forwarded, sends } = target;
  const share = !target.enabled
    ? 'disabled: no requests'
    : target.weight === 0
      ? 'weight 0: no requests'
      : `weight ${target.weight}: ${percent(target.share)}`;
  const lines: readonly Line[] = [
    ['to', builtin === null ? `${scheme}://${host}${path}` : `built in (${builtin})`],
    ['as model', quote(target.model)],
    ...lineOf('headers', headers.length > 0 && `${headers.join(', ')} (values hidden)`),
    ...lineOf('forwards', forwarded.length > 0 && `${forwarded.join(', ')} of the client`),
    [
      'usage',
      target.stream_usage === 'inject' ? 'requested in streams whose client did not' : 'not requested',
    ],
    ...target.body.map((text) => ['body', text] as const),
    ...lineOf('sends', sends !== null && shownBody(sends, BODY_INDENT)),
    ...lineOf('price', prices !== undefined && describePrices(prices, Date.now(), explanation.currency)),
    ['timeouts', describeTimeouts(timeouts)],
    ['at once', `at most ${target.max_concurrency} requests, over all models of this upstream`],
    ...lineOf('health', health && `${health.path} checked every ${formatDuration(health.interval)}`),
    ...lineOf('now', live && liveText(live)),
    ...lineOf('next', next !== null && `gets ${nextText(next, explanation)} first`),
  ];
  return `  ${upstream}  (${share})\n${rows(lines, '    ')}`;
}

function balanceText({ balance, session_header }: Explanation): string {
  switch (balance) {
    case 'weighted':
      return 'within a priority by weight';
    case 'least_requests':
      return 'within a priority, of two drawn by weight the one with fewer requests in flight';
    case 'latency':
      return 'within a priority, of two drawn by weight the faster one';
    case 'affinity':
      return `within a priority, the target of the request's key (prompt_cache_key, ${session_header}, ids, or the beginning of the prompt) that has not more than its share of the load`;
  }
}

/** Each process decides by its own breakers and averages. */
const nextText = (count: number, { server: { replicas } }: Explanation): string =>
  `${Number(count.toFixed(1))} of the next 100 requests${replicas > 1 ? ` (mean of ${replicas} processes)` : ''}`;
const percent = (share: number): string => `${Number((100 * share).toFixed(1))}%`;
