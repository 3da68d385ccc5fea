// What a gateway says of a target, as text for people.
import { expect, test } from 'vitest';
import { liveText, type TargetLive } from '../../src/cli/live-state.ts';

const LIVE: TargetLive = {
  state: 'ok',
  breaker: 'closed',
  in_flight: 2,
  until_ms: 0,
  latency_ms: null,
  health: null,
  drained: null,
  last_failure: null,
};
const failed = { code: 'upstream_error', at: '2030-01-31T00:00:00.000Z' };

test.each<[Partial<TargetLive>, string]>([
  [{}, 'breaker closed, 2 in flight'],
  [{ breaker: 'half_open' }, 'breaker half open, 2 in flight'],
  [{ until_ms: 8001 }, 'breaker closed, 2 in flight, cooling down for another 9s'],
  [{ state: 'disabled' }, 'disabled, breaker closed, 2 in flight'],
  [{ last_failure: failed }, `breaker closed, 2 in flight, last failure upstream_error at ${failed.at}`],
])('%j is said as: %s', (change, text) => {
  expect(liveText({ ...LIVE, ...change })).toBe(text);
});
