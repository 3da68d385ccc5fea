// The targets of a model: an upstream, the model there, and what is different at this place alone; and which of them a request uses.
import { z } from 'zod';
import { bodyRules } from './body-rules.ts';
import { decimal, durationOr, flag, integer, MAX_DURATION, section, text } from './field-kinds.ts';
import { prices } from './price-schema.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';
import { forwardHeaders, ownTimeouts } from './upstream-schema.ts';

export const target = section({
  upstream: text().describe('Name of an upstream.'),
  model: text().describe(
    'Model name at the upstream. For a pattern, `*` stands for what the pattern matched.',
  ),
  weight: decimal(0, 1_000_000)
    .prefault('1')
    .describe(
      'Relative share of the requests among targets of the same priority. A target with 0 gets none.',
    ),
  enabled: flag()
    .exactOptional()
    .describe('Default `true`. `false` takes the target out of service, as a weight of 0 does.'),
  priority: integer(1, 1000)
    .prefault('1')
    .describe(
      'Targets with priority 1 are tried first; the next priority when all of them have failed or are unavailable.',
    ),
  timeouts: ownTimeouts
    .exactOptional()
    .describe('Deadlines of requests to this target; they override those of the model and the upstream.'),
  body: bodyRules
    .exactOptional()
    .describe(
      'Changes of request bodies for this target; they override those of the model and the upstream.',
    ),
  forward_headers: forwardHeaders
    .exactOptional()
    .describe('Headers of clients that are forwarded to this target, in addition to those of its upstream.'),
  price: prices
    .exactOptional()
    .describe(
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
export const routingFields = {
  balance: z
    .enum(['weighted', 'least_requests', 'latency', 'affinity'])
    .prefault('weighted')
    .describe(
      'Load balancing within a priority: `weighted` by weight only; `least_requests` and `latency` draw two targets by weight and take the one with fewer requests in flight, or the faster one; `affinity` sends requests whose prompts begin alike to one target, which has them cached, unless it has more than its share of the load.',
    ),
  affinity: section({
    header: text(readHeaderName)
      .prefault('x-session-id')
      .describe(
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
