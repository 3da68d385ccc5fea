// Prices of the configuration: of models and targets, from different times, and in lists. What is wrong is told with file, line and
// the right name.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { unpricedTargets } from '../../src/config/check/price-summary.ts';
import { describeConfig } from '../../src/config/check/summary.ts';
import { ConfigError, loadConfig, parseConfig } from '../../src/config/load-config.ts';
import { PriceBook, type Prices } from '../../src/config/prices.ts';
import type { Config } from '../../src/config/schema/config-schema.ts';
import { ReferencedFiles } from '../../src/config/source/referenced-files.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { load, placesOf } from './sample.ts';

const UPSTREAMS = 'upstreams: { one: { builtin: echo }, two: { builtin: echo } }\n';
const withPrice = (price: string, lines = ''): string =>
  `${UPSTREAMS}${lines}models: { m: { targets: [{ upstream: one, model: x }], price: ${price} } }`;

describe('a price', () => {
  test('is read exactly, as millionths', () => {
    const { price } = load(withPrice('{ input: 0.1, output: "999999999.000001", cached_input: 0 }')).dynamic
      .models['m'] ?? { price: undefined };
    expect(price).toEqual([
      { from: 0, price: { input: 100_000, output: 999_999_999_000_001, cached_input: 0 } },
    ]);
  });

  test.each([
    ['{ input: 1 }', 'price.output: is missing'],
    ['{ output: 1, image: 1 }', 'price.input: is missing'],
    ['{}', 'price.input: is missing'],
    ['{ input: 1, output: 0.0000001 }', 'price.output: has more than six decimals'],
    ['{ input: 1, output: 1.0000000 }', 'price.output: has more than six decimals'],
    ['{ input: -1, output: 1 }', 'price.input: must be at least 0'],
    ['{ input: 1e3, output: 1 }', 'price.input: must be an amount in decimal digits, such as 2.5'],
    ['{ input: "2,5", output: 1 }', 'price.input: must be an amount in decimal digits, such as 2.5'],
    ['{ input: .5, output: 1 }', 'price.input: must be an amount in decimal digits, such as 2.5'],
    ['{ input: 1000000000.000001, output: 1 }', 'price.input: must be at most 1000000000'],
    ['{ input: 99999999999999999999999, output: 1 }', 'price.input: must be at most 1000000000'],
    ['{ input: [1], output: 1 }', 'price.input: must be a single value'],
    ['{ input: 1, outptu: 1 }', 'price: unknown key `outptu`; did you mean `output`?'],
    ['2.5', 'price: must be a mapping of fields'],
    ['[]', 'price: must not be empty'],
    ['[2]', 'price[0]: must be a mapping of fields'],
    ['[{ input: 1, output: x }]', 'price[0].output: must be an amount in decimal digits, such as 2.5'],
    [
      '{ input: 1, output: 1, from: 2026-02-30 }',
      'price.from: must be a day such as 2026-10-01 (UTC), or a time such as 2026-10-01T12:00:00Z',
    ],
    [
      '{ input: 1, output: 1, from: 2026-10-01T12:00:00 }',
      'price.from: must be a day such as 2026-10-01 (UTC), or a time such as 2026-10-01T12:00:00Z',
    ],
    [
      '{ input: 1, output: 1, from: tomorrow }',
      'price.from: must be a day such as 2026-10-01 (UTC), or a time such as 2026-10-01T12:00:00Z',
    ],
  ])('%s is wrong', (price, expected) => {
    expect(placesOf(withPrice(price)).map((place) => place.replace(/^\d+:\d+ models\.m\./, ''))).toContain(
      expected,
    );
  });

  test.each(['{ image: 0.04 }', '{ minute: 0.006, request: 0 }', '{ input: 1, output: 0, image: 0.04 }'])(
    '%s is right',
    (price) => {
      expect(() => load(withPrice(price))).not.toThrow();
    },
  );
});

describe('prices from different times', () => {
  test('are in force from a day in UTC or a time, whatever their order', () => {
    const list =
      '[{ input: 2, output: 2, from: 2026-10-01 }, { input: 1, output: 1 }, { input: 3, output: 3, from: "2026-11-01T00:00:00+01:00" }]';
    const { price } = load(withPrice(list)).dynamic.models['m'] ?? { price: undefined };
    expect(price?.map(({ from }) => from)).toEqual([
      Date.parse('2026-10-31T23:00:00Z'),
      Date.parse('2026-10-01T00:00:00Z'),
      0,
    ]);
  });

  test.each([
    [
      '[{ input: 1, output: 1, from: 2026-10-01 }, { input: 2, output: 2, from: 2026-10-01T00:00:00Z }]',
      'price[1].from: is the time of the price [0] too',
    ],
    [
      '[{ input: 1, output: 1 }, { input: 2, output: 2 }]',
      'price[1]: needs `from`: only one price of a list can be without it',
    ],
  ])('%s is wrong', (list, expected) => {
    expect(placesOf(withPrice(list)).map((place) => place.replace(/^\d+:\d+ models\.m\./, ''))).toEqual([
      expected,
    ]);
  });
});

describe('the currency', () => {
  const price = '{ input: 1, output: 1, currency: usd }';

  test('is one for all prices', () => {
    expect(load(withPrice(price, 'currency: USD\n')).dynamic.currency).toBe('USD');
    expect(placesOf(withPrice(price, 'currency: eur\n'))).toEqual([
      '3:96 models.m.price.currency: is USD, but the `currency` of the configuration is EUR; all prices and budgets are in one',
    ]);
    expect(placesOf(withPrice(`[${price}]`, 'currency: eur\n'))).toEqual([
      '3:97 models.m.price[0].currency: is USD, but the `currency` of the configuration is EUR; all prices and budgets are in one',
    ]);
    expect(placesOf(withPrice(price))).toEqual([
      '2:96 models.m.price.currency: is USD, but the configuration has no `currency`: add `currency: USD` at its top',
    ]);
  });

  test('is a code of ISO 4217', () => {
    for (const code of ['euro', 'XYQ', '€', 'EU'])
      expect(placesOf(withPrice('{ input: 1, output: 1 }', `currency: ${code}\n`))).toEqual([
        '2:11 currency: must be a currency code of ISO 4217, such as EUR',
      ]);
  });

  test('of a tier is its own', () => {
    const tiers =
      'tiers: { Lite: { price: { amount: 900, currency: usd, interval: month } } }\ncurrency: EUR\n';
    expect(() => load(withPrice('{ input: 1, output: 1 }', tiers))).not.toThrow();
  });
});

// --- lists -------------------------------------------------------------------------------------------------------------

const MODELS =
  'models: { m: { targets: [{ upstream: one, model: alpha-1 }, { upstream: two, model: beta }] }, "p/*": { targets: [{ upstream: one, model: "*" }] } }';

let directory: TempDir;
let count = 0;
beforeAll(async () => {
  directory = await tempDir();
});
afterAll(() => directory.remove());

/** A configuration with these price lists beside it. */
function withLists(
  lists: Record<string, string>,
  head = `prices: [${Object.keys(lists).join(', ')}]`,
): Config {
  count += 1;
  const folder = directory.file(String(count));
  mkdirSync(folder);
  for (const [name, text] of Object.entries(lists)) writeFileSync(join(folder, name), text);
  return parseConfig(`${UPSTREAMS}${head}\n${MODELS}`, join(folder, 'config.yaml'), {});
}

function faultsOf(run: () => unknown): string[] {
  try {
    run();
  } catch (error) {
    if (error instanceof ConfigError)
      return error.faults.map(
        ({ file, line, column, message }) => `${file.split('/').at(-1)}:${line}:${column} ${message}`,
      );
    throw error;
  }
  return [];
}

test('a listed price is that of the name, else of the longest pattern that matches', () => {
  const of = (input: number): Prices => [{ from: 0, price: { input } }];
  const book = new PriceBook({
    one: { gpt: of(1), '*': of(2), 'gpt-*': of(3), '*-mini': of(4), 'gpt-*-mini': of(5) },
    two: { '*': of(6) },
  });
  const priceOf = (upstream: string, model: string) => book.find(upstream, model)?.[0].price.input;
  expect(priceOf('one', 'gpt')).toBe(1);
  expect(priceOf('one', 'o3')).toBe(2);
  expect(priceOf('one', 'gpt-5')).toBe(3);
  expect(priceOf('one', 'o3-mini')).toBe(4);
  expect(priceOf('one', 'gpt-5-mini')).toBe(5);
  // The star stands for one character or more.
  expect(priceOf('one', 'gpt-')).toBe(2);
  expect(priceOf('one', 'gpt--mini')).toBe(4);
  expect(priceOf('two', 'gpt')).toBe(6);
  expect(priceOf('three', 'gpt')).toBeUndefined();
});

describe('a price list', () => {
  test('has prices by upstream and model there, and belongs to the files that are watched', () => {
    const config = withLists(
      {
        'a.yaml':
          'currency: EUR\nupstreams: { one: { alpha-1: { input: 1, output: 2 }, "al*": { input: 3, output: 4 } } }',
        'b.yaml': 'upstreams:\n  two:\n    beta: [{ input: 5, output: 6, from: 2026-10-01 }]\n',
      },
      'currency: EUR\nprices: [a.yaml, b.yaml]',
    );
    expect(config.dynamic.prices).toEqual({
      one: {
        'alpha-1': [{ from: 0, price: { input: 1e6, output: 2e6 } }],
        'al*': [{ from: 0, price: { input: 3e6, output: 4e6 } }],
      },
      two: { beta: [{ from: Date.parse('2026-10-01T00:00:00Z'), price: { input: 5e6, output: 6e6 } }] },
    });
    expect(config.files).toEqual(['a.yaml', 'b.yaml']);
  });

  test('is read by a worker from the content that its primary sends', () => {
    const list = '\n\nupstreams: { one: { alpha-1: { input: 1, output: 2 } } }\n';
    const read = (text: string) =>
      parseConfig(
        `${UPSTREAMS}prices: a.yaml\n${MODELS}`,
        '/nowhere/config.yaml',
        {},
        new ReferencedFiles('/nowhere/config.yaml', { 'a.yaml': text }),
      );
    expect(Object.keys(read(list).dynamic.prices?.['one'] ?? {})).toEqual(['alpha-1']);
    expect(faultsOf(() => read(list.replace('1,', '-1,')))).toEqual([
      'a.yaml:3:39 upstreams.one.alpha-1.input: must be at least 0',
    ]);
  });

  test('changes the hash of the configuration with each price', () => {
    const of = (price: number) =>
      withLists({ 'a.yaml': `upstreams: { one: { alpha-1: { input: ${price}, output: 2 } } }` }).hash;
    expect(of(1)).toBe(of(1));
    expect(of(2)).not.toBe(of(1));
  });

  test.each<[string, string, string[]]>([
    [
      'an unknown upstream',
      'upstreams:\n  ome: { x: { input: 1, output: 1 } }',
      ['a.yaml:2:3 upstreams.ome: the configuration has no such upstream; did you mean `one`?'],
    ],
    [
      'no YAML',
      'upstreams: { one: [',
      [
        'a.yaml:1:20 not valid YAML: a [ is not closed; a `#` after a space begins a comment, and a value with one has to be in quotes',
        'a.yaml:1:20 not valid YAML: a { is not closed; a `#` after a space begins a comment, and a value with one has to be in quotes',
      ],
    ],
    [
      'an unknown field',
      'upstreams: {}\nprice: 1',
      ['a.yaml:2:1 unknown key `price`; known here: `currency`, `upstreams`'],
    ],
    [
      'no upstreams',
      'currency: EUR',
      [
        'a.yaml:1:1 upstreams: is missing',
        'a.yaml:1:11 currency: is EUR, but the configuration has no `currency`: add `currency: EUR` at its top',
      ],
    ],
    [
      'a bad price',
      '\n\nupstreams:\n  one:\n    x: { input: 1, output: 1.1234567 }',
      ['a.yaml:5:28 upstreams.one.x.output: has more than six decimals'],
    ],
    [
      'a model twice',
      'upstreams:\n  one:\n    x: { input: 1, output: 1 }\n    x: { input: 1, output: 1 }',
      ['a.yaml:4:5 upstreams.one.x: is given twice'],
    ],
    [
      'a pattern with two stars',
      'upstreams: { one: { "*x*": { input: 1, output: 1 } } }',
      ['a.yaml:1:21 upstreams.one["*x*"]: has more than one `*`'],
    ],
    [
      'another currency',
      'currency: usd\nupstreams: {}',
      [
        'a.yaml:1:11 currency: is USD, but the configuration has no `currency`: add `currency: USD` at its top',
      ],
    ],
    [
      'another currency of a price',
      'upstreams: { one: { x: { input: 1, output: 1, currency: USD } } }',
      [
        'a.yaml:1:57 upstreams.one.x.currency: is USD, but the configuration has no `currency`: add `currency: USD` at its top',
      ],
    ],
  ])('with %s is wrong', (_, text, expected) => {
    expect(faultsOf(() => withLists({ 'a.yaml': text }))).toEqual(expected);
  });

  test('that does not exist, is empty or is listed twice is wrong', () => {
    expect(faultsOf(() => withLists({}, 'prices: none.yaml'))).toEqual([
      'config.yaml:2:9 prices: names the file none.yaml, which does not exist',
    ]);
    expect(faultsOf(() => withLists({ 'a.yaml': ' \n' }))).toEqual([
      'config.yaml:2:10 prices[0]: names the file a.yaml, which is empty',
    ]);
    const text = 'upstreams: { one: { x: { input: 1, output: 1 } } }';
    expect(faultsOf(() => withLists({ 'a.yaml': text }, 'prices: [a.yaml, a.yaml]'))).toEqual([
      'config.yaml:2:18 prices[1]: is listed twice',
    ]);
    expect(faultsOf(() => withLists({ 'a.yaml': text, 'b.yaml': text }))).toEqual([
      'b.yaml:1:21 upstreams.one.x: has a price in a.yaml, too',
    ]);
  });

  test('that is another file shows nothing of it', () => {
    const secret = 'sk-live-0123456789abcdef';
    for (const text of [
      secret,
      `${secret}: ${secret}`,
      `-----BEGIN PRIVATE KEY-----\n${secret}\n-----END PRIVATE KEY-----`,
      `upstreams: { one: { x: { input: ${secret}, output: 1 } } }`,
      `upstreams: { one: { x: { ${secret} } } }`,
      `currency: ${secret}\nupstreams: {}`,
      `{"upstreams": [${secret}`,
    ]) {
      let told = '';
      try {
        withLists({ 'a.yaml': text });
      } catch (error) {
        told = String(error);
      }
      expect(told).toContain('a.yaml:');
      expect(told).not.toContain('0123456789');
    }
  });

  test('whose name is from the environment is not named', () => {
    const run = () =>
      parseConfig(`${UPSTREAMS}prices: "\${LIST}"\n${MODELS}`, 'config.yaml', {
        LIST: 'sk-live-0123456789abcdef',
      });
    expect(faultsOf(run)).toEqual([
      'config.yaml:2:9 prices: names a file which does not exist (from the environment: LIST)',
    ]);
  });

  test('reports its faults with those of the configuration', () => {
    const faults = faultsOf(() =>
      withLists({ 'a.yaml': 'upstreams: { one: { x: 1 } }' }, 'max_body: 1\nprices: a.yaml'),
    );
    expect(faults.map((fault) => fault.split(' ')[0])).toEqual(['config.yaml:2:11', 'a.yaml:1:24']);
  });

  test('may have models that no target uses; one that is nearly the name of an unpriced target is warned of', () => {
    const { warnings } = withLists({
      'a.yaml':
        'upstreams:\n  one:\n    gamma-9: { input: 1, output: 1 }\n    alhpa-1: { input: 1, output: 1 }',
    });
    expect(warnings.map(({ file, line, message }) => `${file}:${line} ${message}`)).toEqual([
      'a.yaml:4 upstreams.one.alhpa-1: no target has this model; did you mean `alpha-1`?',
    ]);
  });
});

test('the example of docs and examples is valid, and leaves no model without a price', () => {
  const file = fileURLToPath(new URL('../../examples/prices/config.yaml', import.meta.url));
  const config = loadConfig(file, { OPENAI_API_KEY: 'sk-example' });
  expect(config.warnings).toEqual([]);
  expect([...unpricedTargets(config.dynamic, Date.parse('2030-01-01T00:00:00Z'))]).toEqual([]);
  const page = readFileSync(new URL('../../docs/prices.md', import.meta.url), 'utf8');
  const [model = '', periods = '', list = ''] = Array.from(
    page.matchAll(/```yaml\n([\s\S]*?)```/g),
    ([, text]) => text,
  );
  const upstreams = 'upstreams: { openai: { builtin: echo } }\n';
  const described = load(upstreams + model).dynamic.models['gpt-4o'];
  expect(described?.price?.[0].price).toEqual({ input: 2e6, cached_input: 1e6, output: 8e6 });
  const changed = load(upstreams + model.replace(/ {4}price: .*\n/, periods)).dynamic.models['gpt-4o'];
  expect(changed?.price).toHaveLength(2);
  const lists = withLists({ 'a.yaml': list.replace('openai', 'one') }, 'currency: EUR\nprices: a.yaml');
  expect(Object.keys(lists.dynamic.prices?.['one'] ?? {})).toEqual(['gpt-4o', 'gpt-4o-*']);
});

// --- check -------------------------------------------------------------------------------------------------------------

describe('check', () => {
  const AT = Date.parse('2026-10-15T12:00:00Z');
  const linesOf = (config: Config) => describeConfig(config, AT).split('\n');

  test('names models and targets without a price in force, where any price is configured', () => {
    const models = [
      '  whole: { targets: [{ upstream: one, model: a }] }',
      '  part: { targets: [{ upstream: one, model: a, price: { input: 1, output: 1 } }, { upstream: two, model: b }] }',
      '  later: { targets: [{ upstream: one, model: c }], price: { input: 1, output: 1, from: 2026-11-01 } }',
      '  priced: { targets: [{ upstream: one, model: d }], price: { input: 1, output: 1, from: 2026-10-01 } }',
    ];
    const lines = linesOf(load(`${UPSTREAMS}models:\n${models.join('\n')}`));
    const at = lines.indexOf('models without a price');
    expect(lines.slice(at + 1, at + 4)).toEqual([
      '  whole  one: a',
      '  part   at two: b',
      '  later  one: c (until 2026-11-01)',
    ]);
    expect(lines[at + 4]).toBe('tiers');
    expect(linesOf(load(`${UPSTREAMS}models:\n${models[0]}`))).not.toContain('models without a price');
  });

  test('shows the price in force, later ones, the currency and the lists', () => {
    const lines = linesOf(
      withLists(
        { 'a.yaml': 'upstreams: { one: { "*": { input: 1, output: 1 } } }' },
        'currency: eur\nprices: a.yaml',
      ),
    );
    expect(lines).toContain('  currency    EUR');
    expect(lines).toContain('  prices      1 models of one in price lists');
    const list =
      '[{ input: 2.5, cached_input: 1.25, output: 10, image: 0.04 }, { input: 3, output: 12, from: 2026-11-01 }, { input: 2, output: 9, from: 2026-10-01T10:30:00Z }]';
    expect(linesOf(load(withPrice(list))).find((line) => line.startsWith('  m '))).toBe(
      '  m  -> one: x (price 2 in, 9 out per million tokens; from 2026-11-01 3 in, 12 out per million tokens)',
    );
  });
});
