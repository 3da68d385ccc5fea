// The effective deadlines of a target: those of its upstream, overridden by its model and the target itself.
import type { ModelConfig, UpstreamConfig } from '../schema/config-schema.ts';
import { formatDuration } from '../schema/units.ts';

/** In milliseconds. Without `headers` or `first_token`, `total` bounds that wait. */
export type Timeouts = UpstreamConfig['timeouts'];
type OwnTimeouts = NonNullable<ModelConfig['timeouts']>;

/** The most specific value wins: target, then model, then upstream. */
export function timeoutsOf(upstream: Timeouts, model?: OwnTimeouts, target?: OwnTimeouts): Timeouts {
  return model === undefined && target === undefined ? upstream : { ...upstream, ...model, ...target };
}

/** As text, in chronological order: `connect 3s, first token 5s`. */
export function describeTimeouts(timeouts: Partial<Timeouts>): string {
  const { connect, headers, first_token, idle, total } = timeouts;
  return Object.entries({ connect, headers, 'first token': first_token, idle, total })
    .flatMap(([name, ms]) => (ms === undefined ? [] : [`${name} ${formatDuration(ms)}`]))
    .join(', ');
}
