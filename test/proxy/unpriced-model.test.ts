// Requests for models without a price, where a budget counts costs.
import { describe, expect, test } from 'vitest';
import type { Prices } from '../../src/config/prices.ts';
import { GatewayError } from '../../src/errors.ts';
import { refuseUnpriced } from '../../src/proxy/reservation/unpriced-model.ts';
import type { Target } from '../../src/proxy/routes/route-table.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import { load, MINIMAL } from '../config/sample.ts';

const BUDGET = { maxCost: 1_000_000_000 };
const ALWAYS: Prices = [{ from: 0, price: { input: 0, output: 0 } }];
const LATER: Prices = [{ from: Date.parse('9999-01-01T00:00:00Z'), price: { input: 1, output: 1 } }];

const { demo } = load(MINIMAL).dynamic.upstreams;

function target(price?: Prices, weight = 1): Target {
  if (demo === undefined) throw new Error('no upstream');
  const transport = {
    send: () => ({ abort() {}, pause() {}, resume() {} }),
    retire: async () => undefined,
    close: async () => undefined,
  };
  const upstream = new Upstream('demo', demo, '', createMetrics(), transport);
  return { upstream, model: 'm', entry: 'm', weight, priority: 1, ...(price === undefined ? {} : { price }) };
}

function codeOf(run: () => void): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return error instanceof GatewayError ? error.code : String(error);
  }
}

describe('with `unpriced: refuse` and a budget', () => {
  test.each<[string, Target[], string | undefined]>([
    ['a price of 0', [target(ALWAYS)], undefined],
    ['no price', [target()], 'model_unpriced'],
    ['a price of one target only', [target(ALWAYS), target()], 'model_unpriced'],
    ['a price that is not yet in force', [target(LATER)], 'model_unpriced'],
    ['no price at a target that gets no requests', [target(ALWAYS), target(undefined, 0)], undefined],
  ])('a model with %s', (_, targets, expected) => {
    expect(codeOf(() => refuseUnpriced({ unpriced: 'refuse' }, BUDGET, { targets }))).toBe(expected);
  });
});

test('nothing is rejected without a budget, or with `unpriced: allow`', () => {
  const targets = [target()];
  const none = { maxCost: Number.POSITIVE_INFINITY };
  expect(codeOf(() => refuseUnpriced({ unpriced: 'refuse' }, none, { targets }))).toBeUndefined();
  expect(codeOf(() => refuseUnpriced({ unpriced: 'allow' }, BUDGET, { targets }))).toBeUndefined();
});
