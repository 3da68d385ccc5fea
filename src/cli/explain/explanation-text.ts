// An explanation as text for people.
import { describePrices } from '../../config/check/price-summary.ts';
import { hedgeText } from '../../config/check/summary.ts';
import { describeTimeouts } from '../../config/check/timeouts.ts';
import { withoutInvisible } from '../../config/invisible-characters.ts';
import type { Prices } from '../../config/prices.ts';
import type { Config } from '../../config/schema/config-schema.ts';
import { formatDuration } from '../../config/schema/units.ts';
import { shownBody } from '../../proxy/request/example-request.ts';
import type { Route } from '../../proxy/routes/route-table.ts';
import { gatewayText, type LiveState, liveText } from '../live-state.ts';
import { tierLimitText } from '../terms-fields.ts';
import type { Explanation } from './explanation.ts';
import { keyLimitLines } from './key-limits.ts';

/** Quotes a name and escapes control characters, which could steer a terminal. */
function quote(name: string): string {
  const short = name.length > 256 ? `${name.slice(0, 256)}…` : name;
  return withoutInvisible(JSON.stringify(short));
}

/** The line for a name that no entry matches. @param near the nearest names */
export function unknownModel({ file }: Config, model: string, near: readonly string[]): string {
  const hint =
    near.length === 0 ? '`tollgate check` lists its models' : `did you mean ${near.map(quote).join(' or ')}?`;
  return `no model of ${file} matches ${quote(model)}: requests get a 404 model_not_found; ${hint}`;
}

/** Below the first line of a body. */
const BODY_INDENT = ' '.repeat(16);

type Line = readonly [name: string, text: string];

const lineOf = (name: string, text: string | false | null): readonly Line[] => (text ? [[name, text]] : []);

function rows(lines: readonly Line[], indent: string): string {
  return lines.map(([name, text]) => `${indent}${name.padEnd(10)}  ${text}\n`).join('');
}

/** The endpoints that the tier, or the key, may use. */
function allowedText({ endpoints, key }: Explanation): string {
  if (key?.allowed === false)
    return 'nothing: the key or its holder is restricted to other models, and requests get a 404 model_not_found';
  const list = key?.endpoints ?? endpoints;
  return list.length === 0 ? `nothing that this ${key ? 'key' : 'tier'} has` : list.join(', ');
}

/** The explanation as lines for people. */
export function explanationText(explanation: Explanation, live: LiveState, route: Route): string {
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
    ['for', allowedText(explanation)],
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
  const { headers, health, live, next_hundred: next, forward_headers: forwarded, sends } = target;
  const share = !target.enabled
    ? 'disabled: no requests'
    : target.weight === 0
      ? 'weight 0: no requests'
      : `weight ${target.weight}: ${percent(target.share)}`;
  const lines: readonly Line[] = [
    ['to', target.builtin === null ? addressOf(target) : `built in (${target.builtin})`],
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
    ['timeouts', describeTimeouts(target.timeouts)],
    ['at once', `at most ${target.max_concurrency} requests, over all models of this upstream`],
    ...lineOf('health', health && `${health.path} checked every ${formatDuration(health.interval)}`),
    ...lineOf('now', live && liveText(live)),
    ...lineOf('next', next !== null && `gets ${nextText(next, explanation)} first`),
  ];
  return `  ${target.upstream}  (${share})\n${rows(lines, '    ')}`;
}

function addressOf({ scheme, host, path }: Explanation['targets'][number]): string {
  return `${scheme}://${host}${path}`;
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
