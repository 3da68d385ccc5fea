// Budgets of tiers, limits and budgets of models, and the webhook: what they become, and what is wrong with them.
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { load, placesOf } from './sample.ts';

/** With a price, unless `model` says otherwise. */
function yaml(
  tier: string,
  { top = 'currency: EUR', model = 'price: { input: 1, output: 2 }' } = {},
): string {
  return `${top}
upstreams: { demo: { builtin: echo } }
models:
  m:
    targets: [{ upstream: demo, model: echo }]
    ${model}
tiers:
  Lite: ${tier}
`;
}

describe('a budget', () => {
  test('becomes exact limits of cost with its shares in order', () => {
    const { tiers } = load(
      yaml('{ budget: { per_month: 500.000001, per_day: "20", soft: [0.8, 0.5, 0.8, 0.5000001] } }'),
    ).dynamic;
    expect(tiers.Lite).toEqual({
      cost_per_day: 20_000_000_000,
      cost_per_month: 500_000_001_000,
      soft: [0.5, 0.8],
    });
    expect(load(yaml('{ budget: { per_day: 9000000, soft: 0.999999 } }')).dynamic.tiers.Lite).toEqual({
      cost_per_day: 9_000_000_000_000_000,
      soft: [0.999999],
    });
  });

  test.each(['5 EUR', 'EUR 5', '5eur', 'eur5', '"5 EUR"', '5'])('may name the currency: %s', (amount) => {
    expect(load(yaml(`{ budget: { per_day: ${amount} } }`)).dynamic.tiers.Lite).toEqual({
      cost_per_day: 5_000_000_000,
    });
  });

  test('names a currency that the configuration does not have, also of a model', () => {
    const model = 'price: { input: 1, output: 2 }\n    limits: { Lite: { budget: { per_day: USD 5 } } }';
    expect(placesOf(yaml('{}', { model })).join()).toContain(
      'models.m.limits.Lite.budget.per_day: is USD, but the `currency` of the configuration is EUR',
    );
    expect(placesOf(yaml('{ budget: { per_day: 5 EUR } }', { top: '' })).join()).toContain(
      'is EUR, but the configuration has no `currency`: add `currency: EUR` at its top',
    );
  });

  test('of a model is by tier, beside its limits', () => {
    const limits =
      'limits: { Lite: { tokens_per_day: 5, budget: { per_day: 1.5 } }, Pro: { concurrency: 2 } }';
    const { models } = load(yaml('{}', { model: `price: { input: 1, output: 2 }\n    ${limits}` })).dynamic;
    expect(models['m']?.limits).toEqual({
      Lite: { tokens_per_day: 5, cost_per_day: 1_500_000_000 },
      Pro: { concurrency: 2 },
    });
  });

  test('is shown by check, with its warnings', () => {
    const limits = 'limits: { Lite: { budget: { per_day: 1.5 } } }';
    const shown = describeConfig(
      load(
        yaml('{ budget: { per_month: 500, soft: 0.8 } }', {
          model: `price: { input: 1, output: 2 }\n    ${limits}`,
        }),
      ),
    );
    expect(shown).toContain('budget 500 a month, warnings from 80%');
    expect(shown).toContain('Lite has at most budget 1.5 a day');
  });

  test.each([
    ['{ budget: {} }', 'tiers.Lite.budget: needs `per_day` or `per_month`'],
    ['{ budget: { soft: 0.8 } }', 'needs `per_day` or `per_month`'],
    ['{ budget: { per_month: 0 } }', 'per_month: must be more than 0'],
    ['{ budget: { per_month: -5 } }', 'per_month: must be'],
    ['{ budget: { per_month: 1e3 } }', 'per_month: must be an amount in decimal digits'],
    ['{ budget: { per_month: 0.0000001 } }', 'per_month: has more than six decimals'],
    ['{ budget: { per_month: 9000001 } }', 'per_month: must be at most 9000000'],
    [
      '{ budget: { per_month: 5 euros } }',
      'per_month: must be an amount in digits, with nothing beside it but',
    ],
    ['{ budget: { per_month: 5k } }', 'per_month: must be an amount in digits, with nothing beside it but'],
    ['{ budget: { per_month: 5 abc } }', 'beside it but a currency of ISO 4217, such as EUR'],
    ['{ budget: { per_month: EUR 5 EUR } }', 'per_month: names a currency twice'],
    ['{ budget: { per_day: 5 usd } }', 'per_day: is USD, but the `currency` of the configuration is EUR'],
    ['{ budget: { per_week: 5 } }', 'unknown key `per_week`'],
    ['{ budget: 500 }', 'tiers.Lite.budget'],
    ['{ budget: { per_day: 5, soft: 0 } }', 'soft'],
    ['{ budget: { per_day: 5, soft: 1 } }', 'soft'],
    ['{ budget: { per_day: 5, soft: 80% } }', 'soft'],
    ['{ budget: { per_day: 5, soft: [] } }', 'soft'],
    ['{ budget: { per_day: 5, soft: [0.5, 2] } }', 'soft'],
    ['{ budget: { per_day: 5, soft: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6] } }', 'soft: has more than 5 shares'],
    ['{ budget: { per_day: 5, currency: USD } }', 'is USD, but the `currency` of the configuration is EUR'],
    ['{ cost_per_day: 5 }', 'unknown key `cost_per_day`'],
    ['{ soft: 0.8 }', 'unknown key `soft`'],
  ])('%s is a fault that says where and what', (tier, message) => {
    expect(placesOf(yaml(tier)).join('\n')).toContain(message);
  });

  test('needs prices, of some model, target or list', () => {
    const tier = '{ budget: { per_day: 5 } }';
    const bare = { model: 'tiers: [Lite]' };
    expect(placesOf(yaml(tier, bare))).toEqual([
      '8:11 tiers.Lite.budget: needs prices: without a `price` of some model or target nothing counts towards it',
    ]);
    const target = yaml(tier, bare).replace('model: echo }', 'model: echo, price: { input: 1, output: 1 } }');
    expect(load(target).dynamic.tiers.Lite).toEqual({ cost_per_day: 5_000_000_000 });
    const ofModel = { model: 'limits: { Pro: { budget: { per_day: 5 } } }' };
    expect(placesOf(yaml('{}', ofModel)).join()).toContain('models.m.limits.Pro.budget: needs prices');
  });
});

test('limits of a model for a tier that has no access are warned about', () => {
  const model = 'price: { input: 1, output: 2 }\n    tiers: [Lite]\n    limits: { Pro: { concurrency: 1 } }';
  const { warnings } = load(yaml('{}', { model }));
  expect(warnings.map(({ message }) => message)).toContain(
    'models.m.limits.Pro: has no effect: this model is not offered to the tier',
  );
});

describe('the webhook', () => {
  const withHook = (hook: string) => yaml('{}', { top: `currency: EUR\nbudgets: { webhook: ${hook} }` });

  test('has an address and a secret, which no message shows', () => {
    const config = load(withHook('{ url: "https://a.example/x?y=1", secret: abc }'));
    expect(config.dynamic.budgets.webhook).toEqual({ url: 'https://a.example/x?y=1', secret: 'abc' });
    expect(config.warnings).toEqual([]);
    const plain = load(withHook('{ url: "http://a.example/", secret: abc }')).warnings;
    expect(plain.map(({ message }) => message)).toEqual([
      'budgets.webhook.url: sends notices over plain http to another machine',
    ]);
    expect(JSON.stringify(plain)).not.toContain('abc');
  });

  test.each([
    ['{ url: "https://a.example/" }', 'budgets.webhook.secret: is missing'],
    ['{ secret: abc }', 'budgets.webhook.url: is missing'],
    ['{ url: a.example, secret: abc }', 'url: must be a URL that begins with http:// or https://'],
    ['{ url: "ftp://a.example/", secret: abc }', 'url: must be a URL'],
    ['{ url: "https://u:p@a.example/", secret: abc }', 'url: must not hold a user or password'],
    ['{ url: "https://a.example/#x", secret: abc }', 'url: must not have a fragment'],
    ['{ url: "https://a.example/", secret: "" }', 'secret'],
  ])('%s is a fault', (hook, message) => {
    expect(placesOf(withHook(hook)).join('\n')).toContain(message);
  });
});
