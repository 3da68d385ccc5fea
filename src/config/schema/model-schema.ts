// The fields of models, of their targets, and of the tiers that may use them: what is offered, where it goes, and its limits.
import { z } from 'zod';
import { eachPlainLimit } from '../limit-table.ts';
import { budget, budgetLimits } from './billing-schema.ts';
import { bodyRules, memberRules, oneBody } from './body-rules.ts';
import { ENDPOINTS } from './endpoint-names.ts';
import {
  decimal,
  durationOr,
  flag,
  integer,
  MAX_DURATION,
  optional,
  section,
  text,
  withDefault,
} from './field-kinds.ts';
import { prices } from './price-schema.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';
import { forwardHeaders, ownTimeouts } from './upstream-schema.ts';

export const TIERS = ['Free', 'Lite', 'Pro'] as const;
export type Tier = (typeof TIERS)[number];

const COUNT = Number.MAX_SAFE_INTEGER;

const target = section({
  upstream: text().describe('Name of an upstream.'),
  model: text().describe(
    'Model name at the upstream. For a pattern, `*` stands for what the pattern matched.',
  ),
  weight: withDefault(decimal(0, 1_000_000), '1').describe(
    'Relative share of the requests among targets of the same priority. A target with 0 gets none.',
  ),
  enabled: optional(flag()).describe(
    'Default `true`. `false` takes the target out of service, as a weight of 0 does.',
  ),
  priority: withDefault(integer(1, 1000), '1').describe(
    'Targets with priority 1 are tried first; the next priority when all of them have failed or are unavailable.',
  ),
  timeouts: optional(ownTimeouts).describe(
    'Deadlines of requests to this target; they override those of the model and the upstream.',
  ),
  body: optional(bodyRules).describe(
    'Changes of request bodies for this target; they override those of the model and the upstream.',
  ),
  forward_headers: optional(forwardHeaders).describe(
    'Headers of clients that are forwarded to this target, in addition to those of its upstream.',
  ),
  price: optional(prices).describe(
    'Price of this target, or a list of prices from different times, instead of that of the model.',
  ),
});

/** The weight of a target in the choice of one: 0 with `enabled: false`. */
export function weightInUse({
  enabled = true,
  weight,
}: Pick<z.output<typeof target>, 'enabled' | 'weight'>): number {
  return enabled ? weight : 0;
}

/** Reasons of upstream errors that are the same with every vendor. `upstream/error-class.ts` recognizes them. */
export const FALLBACK_REASONS = [
  'context_length_exceeded',
  'content_filter',
  'rate_limited',
  'insufficient_quota',
] as const;
export type FallbackReason = (typeof FALLBACK_REASONS)[number];

/** Names of headers are compared in lower case. */
function readHeaderName(value: string): ScalarResult<string> {
  return /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$/.test(value)
    ? accepted(value.toLowerCase())
    : rejected('must be the name of a header');
}

/** Fields of a model: how its requests find a target. */
const routingFields = {
  balance: withDefault(z.enum(['weighted', 'least_requests', 'latency', 'affinity']), 'weighted').describe(
    'Load balancing within a priority: `weighted` by weight only; `least_requests` and `latency` draw two targets by weight and take the one with fewer requests in flight, or the faster one; `affinity` sends requests whose prompts begin alike to one target, which has them cached, unless it has more than its share of the load.',
  ),
  affinity: section({
    header: withDefault(text(readHeaderName), 'x-session-id').describe(
      'Request header that names a session, for requests without `prompt_cache_key`. It is forwarded only where `forward_headers` lists it.',
    ),
  })
    .exactOptional()
    .describe('How `balance: affinity` tells which requests belong together.'),
  fallback_on: z
    .array(z.enum(FALLBACK_REASONS))
    .prefault([])
    .transform((listed) => FALLBACK_REASONS.filter((each) => listed.includes(each)))
    .describe(
      'Reasons for which a rejected request also goes to another target, besides failures: the prompt is too long for this one, its content filter rejects the content, a rate limit or a quota is used up. A 429 and an error about the account always do.',
    ),
  hedge: section({
    after: durationOr('p95', '10ms', MAX_DURATION).describe(
      'Time without stream output after which a second request goes to another target. `p95`: the 95th percentile of recent times of the first target.',
    ),
  })
    .exactOptional()
    .describe(
      'Hedging: sends a second request to another target when a stream is slow to start; the first output wins. Both may be billed.',
    ),
};

const limitFields = {
  ...eachPlainLimit(({ about }) => integer(1, COUNT).exactOptional().describe(about)),
  budget: optional(budget).describe('What requests may cost, in `currency`. Needs prices.'),
};

/** The budget becomes limits of cost. */
function withBudget<Fields extends { readonly budget?: z.output<typeof budget> }>({
  budget: own,
  ...rest
}: Fields) {
  return { ...rest, ...(own && budgetLimits(own)) };
}

/** The same fields for each tier. */
export const eachTier = <Field>(field: Field) => ({ Free: field, Lite: field, Pro: field });

const modelLimits = section(limitFields)
  .transform(withBudget)
  .exactOptional()
  .describe('Limits of each holder of this tier with this model.');

const endpoints = z
  .array(z.enum(ENDPOINTS))
  .min(1)
  .transform((listed) => ENDPOINTS.filter((each) => listed.includes(each)));

export const model = section({
  targets: z.array(target).min(1).describe('Upstream models that requests for this model may go to.'),
  tiers: z
    .array(z.enum(TIERS))
    .prefault([...TIERS])
    .transform((listed) => TIERS.filter((tier) => listed.includes(tier)))
    .describe('Tiers whose keys may use this model.'),
  endpoints: withDefault(endpoints, [...ENDPOINTS]).describe(
    'Endpoints that offer this model; others answer 404. Default: all, so that the upstream rejects what it does not support.',
  ),
  ...routingFields,
  timeouts: optional(ownTimeouts).describe(
    'Deadlines of requests for this model; they override those of its upstreams.',
  ),
  response_model: withDefault(z.enum(['alias', 'upstream']), 'alias').describe(
    'Model name in responses: `alias` is the requested name, `upstream` the one that the upstream sends.',
  ),
  body: optional(bodyRules).describe(
    'Changes of request bodies for this model; they override those of its upstreams.',
  ),
  members: optional(memberRules).describe('Deprecated: use `body`.'),
  limits: optional(section(eachTier(modelLimits))).describe(
    'Limits of a holder with this model, by tier, in addition to those of its tier.',
  ),
  price: optional(prices).describe(
    'Price of this model, or a list of prices from different times, at targets without a `price`.',
  ),
}).transform(({ members, body, ...rest }) => ({ ...rest, ...oneBody(members, body) }));

export const tier = section({
  ...limitFields,
  endpoints: optional(endpoints).describe(
    'Endpoints that keys of this tier may call. Default: all that each model offers.',
  ),
  price: section({
    amount: integer(0, COUNT).describe('In the smallest unit of the currency: 900 is 9.00.'),
    currency: text((value) =>
      /^[a-z]{3}$/.test(value)
        ? accepted(value)
        : rejected('must be a currency code in lower case, such as usd'),
    ).describe('ISO 4217 code in lower case.'),
    interval: z.enum(['month', 'year', 'once']).describe('Billing interval.'),
  })
    .exactOptional()
    .describe(
      'Price of the tier, as the pricing page shows it. Its currency is that of the checkout, not the `currency` of usage.',
    ),
  stripe_price: optional(text()).describe(
    'Price in Stripe that a checkout of this tier uses. Needs `billing`.',
  ),
})
  .transform(withBudget)
  .exactOptional()
  .describe('Limits and price of this tier. A limit that is left out is no limit.');
