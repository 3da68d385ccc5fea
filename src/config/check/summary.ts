// The summary that `tollgate check` prints. It contains no credentials, no queries of upstreams, and of their paths only well-known words.
import { availableParallelism } from 'node:os';
import { formatFault } from '../config-fault.ts';
import { limitTexts } from '../limit-table.ts';
import type { ListedPrices } from '../prices.ts';
import { STORE_NAMES } from '../schema/addresses.ts';
import { describeBody } from '../schema/body-rules.ts';
import {
  type BillingConfig,
  type Config,
  type ModelConfig,
  type StaticConfig,
  TIERS,
  type TierConfig,
  type UpstreamConfig,
} from '../schema/config-schema.ts';
import { ENDPOINTS_OF } from '../schema/endpoint-names.ts';
import type { ServerCertificate } from '../schema/listener-schema.ts';
import { weightInUse } from '../schema/model-schema.ts';
import { certificatesIn } from '../schema/pem.ts';
import { hostPort, readRedisAddress, redisHosts } from '../schema/redis-address.ts';
import { formatDuration, formatSize } from '../schema/units.ts';
import { proxyFor } from '../source/outbound-rules.ts';
import { type BudgetedLimits, budgetTexts } from '../terms.ts';
import { describePrices, unpricedTargets } from './price-summary.ts';
import { describeTimeouts } from './timeouts.ts';

/** A table of two columns: name and text. */
function table(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(0, ...rows.map(([name]) => name.length));
  return rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`.trimEnd());
}

function hostOf(address: string): string {
  const { protocol, host } = new URL(address);
  return `${protocol}//${host}`;
}

/** Parts of vendors' base URLs; any other part may be a credential. */
const KNOWN_PART =
  /^(v\d+(alpha|beta)?\d*|api|beta|openai|openapi|deployments|endpoints|projects|locations|inference)$/;

function pathOf(address: string): string {
  const parts = new URL(address).pathname.split('/').filter((part) => part !== '');
  return parts.map((part) => `/${KNOWN_PART.test(part) ? part : '****'}`).join('');
}

/** The names of the certificate and its end. */
function describeCertificate({ cert }: ServerCertificate): string {
  const [leaf] = certificatesIn(cert);
  const names = leaf?.subjectAltName?.replace(/\b(?:DNS|IP Address):/g, '') ?? leaf?.subject ?? '';
  return ` with TLS for ${names} until ${leaf?.validToDate.toISOString().slice(0, 10)}`;
}

function describeRedis(url: string): string {
  const address = readRedisAddress(url);
  return address.ok ? `${address.value.kind}, ${redisHosts(address.value)}` : 'unusable';
}

function describeUpstream(upstream: UpstreamConfig): string {
  const where =
    upstream.kind === 'builtin'
      ? [`built in (${upstream.builtin})`]
      : [
          hostOf(upstream.base_url) + pathOf(upstream.base_url),
          ...(upstream.protocol === 'anthropic' ? ['protocol anthropic'] : []),
          upstream.auth !== undefined
            ? `tokens of ${upstream.auth.kind}`
            : upstream.api_key === undefined
              ? 'no api_key'
              : 'api_key set',
          ...(Object.keys(upstream.headers).length === 0
            ? []
            : [`headers ${Object.keys(upstream.headers).join(', ')}`]),
          ...describeEgress(upstream),
        ];
  // The path is not shown: its query may hold a credential.
  const health =
    upstream.health === undefined ? [] : [`health check every ${formatDuration(upstream.health.interval)}`];
  return [
    ...(upstream.enabled === false ? ['disabled'] : []),
    ...where,
    `at most ${upstream.max_concurrency} at once`,
    describeTimeouts(upstream.timeouts),
    ...health,
    ...describeBody(upstream.body),
    ...describeForwarded(upstream.kind === 'http' ? upstream.forward_headers : undefined),
  ].join('; ');
}

/** The proxy without its credentials, and the TLS settings; empty for what Node.js does by itself. */
function describeEgress({ base_url, outbound, tls }: Extract<UpstreamConfig, { kind: 'http' }>): string[] {
  const proxy = proxyFor(outbound, new URL(base_url));
  const end = certificatesIn(tls?.cert ?? '')[0]
    ?.validToDate.toISOString()
    .slice(0, 10);
  return [
    ...(proxy === undefined ? [] : [`through the proxy ${proxy.protocol}//${proxy.host}`]),
    ...(tls?.ca === undefined ? [] : ['authorities of its own']),
    ...(end === undefined ? [] : [`client certificate until ${end}`]),
    ...(tls?.server_name === undefined ? [] : [`as ${tls.server_name}`]),
  ];
}

function describeForwarded(headers: readonly string[] = []): string[] {
  return headers.length === 0 ? [] : [`forwards ${headers.join(', ')}`];
}

/** Targets in the order in which they are tried: `openai/gpt-4o (75%), azure/gpt-4o (25%); then vllm/llama`. */
function describeTargets({ targets }: ModelConfig, at: number): string {
  const priorities = [...new Set(targets.map(({ priority }) => priority))].sort((a, b) => a - b);
  return priorities
    .map((priority) => {
      const group = targets.filter((target) => target.priority === priority);
      const sum = group.reduce((total, target) => total + weightInUse(target), 0);
      return group
        .map(({ upstream, model, timeouts, body, forward_headers: forwarded, price, ...target }) => {
          const share = (100 * weightInUse(target)) / (sum || 1);
          const notes = [
            ...(target.enabled === false ? ['disabled'] : share === 0 ? ['no requests'] : []),
            ...(group.length === 1 || share === 0 ? [] : [`${Number(share.toFixed(1))}%`]),
            ...(timeouts === undefined ? [] : [describeTimeouts(timeouts)]),
            ...describeBody(body),
            ...describeForwarded(forwarded),
            ...(price === undefined ? [] : [`price ${describePrices(price, at)}`]),
          ];
          return `${upstream}: ${model}${notes.length === 0 ? '' : ` (${notes.join('; ')})`}`;
        })
        .join(', ');
    })
    .join('; then ');
}

function describeModel(model: ModelConfig, at: number): string {
  const only = isEverywhere(model.endpoints) ? [] : [`for ${model.endpoints.join(', ')}`];
  const tiers = model.tiers.length === TIERS.length ? '' : ` [${model.tiers.join(', ')} only]`;
  const notes = [
    ...only,
    ...(hasChoice(model) ? [`balance ${model.balance}`] : []),
    ...(model.fallback_on.length === 0 ? [] : [`fallback on ${model.fallback_on.join(', ')}`]),
    ...(model.hedge === undefined ? [] : [`hedge after ${hedgeText(model.hedge)}`]),
    ...(model.timeouts === undefined ? [] : [describeTimeouts(model.timeouts)]),
    ...describeBody(model.body),
    ...(model.price === undefined ? [] : [`price ${describePrices(model.price, at)}`]),
    ...Object.entries(model.limits ?? {}).map(
      ([tier, limits]) => `${tier} has at most ${describeLimits(limits).join(', ')}`,
    ),
    ...(model.response_model === 'upstream' ? ['responses keep the model name of the upstream'] : []),
  ];
  return `-> ${describeTargets(model, at)}${tiers}${notes.length === 0 ? '' : ` (${notes.join('; ')})`}`;
}

function isEverywhere(endpoints: readonly string[]): boolean {
  return endpoints.length === ENDPOINTS_OF.openai.length;
}

/** Whether two targets share a priority, so that `balance` matters. */
function hasChoice({ targets }: ModelConfig): boolean {
  const active = targets.filter((target) => weightInUse(target) > 0);
  return new Set(active.map(({ priority }) => priority)).size < active.length;
}

/** `500ms`, or `p95`: the 95th percentile. */
export function hedgeText({ after }: NonNullable<ModelConfig['hedge']>): string {
  return typeof after === 'number' ? formatDuration(after) : after;
}

function describeLimits(limits: BudgetedLimits): readonly string[] {
  return [...limitTexts(limits).map(({ max, text }) => `${max} ${text}`), ...budgetTexts(limits)];
}

function describeTier(tier: TierConfig): string {
  const limits = describeLimits(tier);
  const { price } = tier;
  const { endpoints } = tier;
  const texts = limits.length === 0 ? ['no limits'] : [...limits];
  if (endpoints !== undefined) texts.push(`only ${endpoints.join(' and ')}`);
  if (price !== undefined) {
    const { amount, currency, interval } = price;
    texts.push(`price ${moneyText(amount, currency)} ${interval === 'once' ? 'once' : `a ${interval}`}`);
  }
  return texts.join(', ');
}

/** @param amount in the smallest unit of the currency */
function moneyText(amount: number, currency: string): string {
  const format = new Intl.NumberFormat('en', { style: 'currency', currency });
  const { maximumFractionDigits: digits = 2 } = format.resolvedOptions();
  return `${(amount / 10 ** digits).toFixed(digits)} ${currency.toUpperCase()}`;
}

/** The provider, its mode, and what happens when a payment lapses. */
function describeBilling({ provider, secret_key = '', on_lapse, grace }: BillingConfig): string {
  const stripeMode = /^(sk|rk)_test_/.test(secret_key) ? 'test key' : 'live key';
  const mode = { test: 'no money moves', invoice: 'support marks orders as paid', stripe: stripeMode };
  return `${provider} (${mode[provider]}), ${on_lapse} after ${formatDuration(grace)} without payment`;
}

function describeLists(listed: ListedPrices): string {
  const models = Object.values(listed).reduce((sum, each) => sum + Object.keys(each).length, 0);
  return `${models} models of ${Object.keys(listed).join(', ')} in price lists`;
}

function describeWorkers(workers: StaticConfig['workers']): string {
  if (workers === 'auto') return `auto: one per CPU (${availableParallelism()} here)`;
  return workers === 1 ? '1: a single process' : `${workers} processes`;
}

/**
 * @param at the time whose prices are shown, in milliseconds since 1970
 * @returns lines without a newline at the end: listeners, store, upstreams, models with their targets in order, models and targets
 *   without a price, tiers with their limits, and the warnings
 */
export function describeConfig(config: Config, at = Date.now()): string {
  const { listen, admin, store, redis, secret, workers } = config.static;
  const { upstreams, models, tiers, certificate, admin_certificate, ...dynamic } = config.dynamic;
  const address = ({ host, port }: { host: string; port: number }): string =>
    hostPort(host, port === 0 ? '(any free port)' : port);
  const proxies = listen.trusted_proxies.length === 0 ? '' : ` behind ${listen.trusted_proxies.join(', ')}`;
  const general: [string, string][] = [
    ['listen', address(listen) + (certificate ? describeCertificate(certificate) : '') + proxies],
    ['admin', address(admin) + (admin_certificate ? describeCertificate(admin_certificate) : '')],
    ['public_url', dynamic.public_url.replace(/:0$/, ':(any free port)')],
    ['store', `${STORE_NAMES[store.kind]}, ${'path' in store ? store.path : hostOf(store.url)}`],
    ['workers', describeWorkers(workers)],
    ['redis', redis === undefined ? 'none: a single process' : describeRedis(redis)],
    ['secret', secret === undefined ? 'generated next to the store' : 'set'],
    ['max_body', formatSize(dynamic.max_body)],
    [
      'retry',
      `at most ${dynamic.retry.attempts} upstream requests for one request, within ${formatDuration(dynamic.retry.deadline)}`,
    ],
    ['drain', `after ${formatDuration(dynamic.drain.delay)}, for ${formatDuration(dynamic.drain.timeout)}`],
  ];
  const { currency, prices, billing } = dynamic;
  if (currency !== undefined) general.push(['currency', currency]);
  if (prices !== undefined) general.push(['prices', describeLists(prices)]);
  if (billing !== undefined) general.push(['billing', describeBilling(billing)]);
  const unpriced = Array.from(unpricedTargets(config.dynamic, at), ([name, targets]) => {
    const isWhole = targets.length === models[name]?.targets.length;
    return [name, `${isWhole ? '' : 'at '}${targets.join(', ')}`] as const;
  });
  const offered = TIERS.flatMap((tier) => {
    const limits = tiers[tier];
    return limits === undefined ? [] : [[tier, describeTier(limits)] as const];
  });
  return [
    `${config.file} is valid (${config.hash})`,
    ...table(general),
    'upstreams',
    ...table(Object.entries(upstreams).map(([name, upstream]) => [name, describeUpstream(upstream)])),
    'models',
    ...table(Object.entries(models).map(([name, model]) => [name, describeModel(model, at)])),
    ...(unpriced.length === 0 ? [] : ['models without a price', ...table(unpriced)]),
    'tiers',
    ...table(offered),
    ...(config.warnings.length === 0 ? [] : ['warnings', ...config.warnings.map(formatFault)]),
  ].join('\n');
}
