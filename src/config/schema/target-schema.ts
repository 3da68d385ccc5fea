// The fields of a target: an upstream, the model there, and what is different at this place alone.
import { bodyRules } from './body-rules.ts';
import { decimal, integer, section, text } from './field-kinds.ts';
import { ownTimeouts } from './upstream-schema.ts';

/** Of a model or a target. */
export const tokenPrice = section({
  input: decimal(0, 1e9).describe('Per million tokens of input.'),
  cached_input: decimal(0, 1e9).exactOptional().describe('Per million tokens of input read from a cache.'),
  output: decimal(0, 1e9).describe('Per million tokens of output.'),
});

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
  price: tokenPrice.exactOptional().describe('Token prices of this target instead of those of the model.'),
});
