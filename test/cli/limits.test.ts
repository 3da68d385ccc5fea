// Limits and budgets as operators set and see them: on a store in a file, with a tier that has some.
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { keyLimitLines } from '../../src/cli/explain/key-limits.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { commandsWith } from './commands.ts';

const CONFIG = `
currency: EUR
upstreams: { demo: { builtin: echo } }
models:
  gpt-4o:
    targets: [{ upstream: demo, model: echo }]
    price: { input: 1, output: 2 }
    limits: { Lite: { tokens_per_day: 1000 } }
  "llama3:8b": { targets: [{ upstream: demo, model: echo }], tiers: [Pro] }
tiers:
  Free: {}
  Lite: { requests_per_minute: 200, tokens_per_day: 100000, budget: { per_month: 50, soft: 0.8 } }
  Pro: {}
`;

let dir: TempDir;

function configure(yaml = CONFIG): void {
  writeFileSync(dir.file('config.yaml'), `store: sqlite:${dir.file('keys.db')}\n${yaml}`);
}

beforeEach(async () => {
  dir = await tempDir();
  configure();
});

afterEach(() => dir.remove());

const { tollgate, done, json, issue } = commandsWith(() => dir.file('config.yaml'));

/** What went wrong, without the usage text. */
async function fault(...argv: string[]): Promise<string> {
  const { code, out, err } = await tollgate(...argv);
  expect([code, out]).toEqual([2, '']);
  return err.split('\n', 1)[0] ?? '';
}

describe('a holder', () => {
  test('has limits and a budget of its own instead of those of its tier, and goes back to them', async () => {
    const prefix = await issue('--tier', 'Lite');
    const set = ['holders', 'set', prefix];
    await done(
      ...set,
      '--limit',
      'requests_per_minute=100',
      '--limit',
      'concurrency=4',
      '--budget',
      '20/month',
    );
    expect(await json('holders', 'show', prefix)).toMatchObject({
      limits: { requests_per_minute: 100, concurrency: 4 },
      budget: { per_month: 20 },
      model_limits: null,
      tier_limits: { requests_per_minute: 200, tokens_per_day: 100_000 },
      tier_budget: { per_month: 50, soft: [0.8] },
    });
    const text = await done('holders', 'show', prefix);
    expect(text).toContain(
      'limits      requests per minute 100 (tier 200), tokens per day 100000 (tier), concurrency 4\n',
    );
    expect(text).toContain('budget      per month 20 EUR (tier 50 EUR), warnings from 80% (tier)\n');
    expect(await done('holders', 'list')).toContain(
      '  requests per minute 100, concurrency 4; per month 20\n',
    );
    await done(...set, '--limit', 'concurrency=tier', '--budget', 'tier/month', '--soft', '50%,95%');
    expect(await json('holders', 'show', prefix)).toMatchObject({
      limits: { requests_per_minute: 100 },
      budget: { soft: [0.5, 0.95] },
    });
    await done(...set, '--limit', 'requests_per_minute=tier', '--soft', 'tier');
    expect(await json('holders', 'show', prefix)).toMatchObject({ limits: null, budget: null });
    expect(await done('keys', 'events', prefix)).toMatch(
      new RegExp(
        [
          'version 2 by cli:alice: limit requests_per_minute unset to 100, limit concurrency unset to 4, budget per_month unset to 20',
          'version 3 by cli:alice: limit concurrency 4 to unset, budget per_month 20 to unset, soft thresholds unset to 50%, 95%',
          'version 4 by cli:alice: limit requests_per_minute 100 to unset, soft thresholds 50%, 95% to unset',
        ].join('\n.*'),
      ),
    );
  });

  test('gets more than its tier allows only by force, and the refusal says both values', async () => {
    const prefix = await issue('--tier', 'Lite');
    const set = ['holders', 'set', prefix];
    expect(await fault(...set, '--limit', 'requests_per_minute=500')).toContain(
      'requests_per_minute is 500, and the tier Lite has 200: give --force',
    );
    expect(await fault(...set, '--limit', 'tokens_per_day=none')).toContain(
      'tokens_per_day is none, and the tier Lite has 100000: give --force',
    );
    expect(await fault(...set, '--budget', '50.000001/month')).toContain(
      'budget per_month is 50.000001, and the tier Lite has 50: give --force',
    );
    expect(await fault(...set, '--model-limit', 'gpt-4o:tokens_per_day=1001')).toContain(
      'tokens_per_day is 1001, and the tier Lite has 1000: give --force',
    );
    expect(await json('holders', 'show', prefix)).toMatchObject({ limits: null, budget: null });
    const more = ['--limit', 'requests_per_minute=500', '--limit', 'tokens_per_day=none', '--budget', 'none'];
    await done(...set, ...more, '--force');
    expect(await json('holders', 'show', prefix)).toMatchObject({
      limits: { requests_per_minute: 500, tokens_per_day: 'none' },
      budget: { per_day: 'none', per_month: 'none' },
    });
    // Where the tier says nothing, a limit allows nothing more.
    await done(...set, '--limit', 'concurrency=1000', '--budget', '9000000/day');
  });

  test('shows the name of each field apart from its value', async () => {
    const prefix = await issue('--tier', 'Lite');
    await done('holders', 'set', prefix, '--model-limit', 'gpt-4o:tokens_per_day=5');
    expect(await done('holders', 'show', prefix)).toContain('\nmodel limits gpt-4o: tokens per day 5\n');
  });

  test('has limits with single models, whose names may have colons', async () => {
    const prefix = await issue('--tier', 'Pro');
    const set = ['holders', 'set', prefix];
    await done(...set, '--model-limit', 'llama3:8b:concurrency=2', '--model-budget', 'gpt-4o:12.5/day');
    expect(await json('holders', 'show', prefix)).toMatchObject({
      limits: null,
      model_limits: {
        'llama3:8b': { limits: { concurrency: 2 }, budget: null },
        'gpt-4o': { limits: null, budget: { per_day: 12.5 } },
      },
    });
    expect(await done('holders', 'show', prefix)).toContain('gpt-4o: per day 12.5 EUR');
    await done(...set, '--model-limit', 'llama3:8b:concurrency=tier', '--model-budget', 'gpt-4o:tier');
    expect(await json('holders', 'show', prefix)).toMatchObject({ model_limits: null });
  });
});

describe('a team', () => {
  test('has limits that its holders share, set when it is added and changed later', async () => {
    const add = ['teams', 'add', 'Search', '--limit', 'requests_per_day=5', '--budget', '500/month'];
    expect(await json(...add, '--soft', '80%')).toEqual({
      outcome: 'added',
      team: 'Search',
      limits: { requests_per_day: 5 },
      budget: { per_month: 500, soft: [0.8] },
    });
    expect(await json('teams', 'list')).toMatchObject([
      { name: 'Search', limits: { requests_per_day: 5 }, budget: { per_month: 500, soft: [0.8] } },
    ]);
    expect(await done('teams', 'list')).toContain('  requests per day 5; per month 500, warnings from 80%\n');
    const set = [
      'teams',
      'set',
      'Search',
      '--limit',
      'requests_per_day=none',
      '--budget',
      '600.50 eur/month',
    ];
    expect(await json(...set)).toMatchObject({
      outcome: 'changed',
      limits: null,
      budget: { per_month: 600.5, soft: [0.8] },
    });
    expect(await json(...set)).toMatchObject({ outcome: 'same' });
    const shown = await done('teams', 'show', 'Search');
    expect(shown).toContain('budget      per month 600.5 EUR, warnings from 80%\n');
    expect(shown).toContain(
      'limit requests_per_day 5 to unset, budget per_month 500 to 600.5 by cli:alice\n',
    );
  });

  test('goes back to no tier, because it has none', async () => {
    await done('teams', 'add', 'Search');
    expect(await fault('teams', 'set', 'Search', '--limit', 'requests_per_day=tier')).toContain(
      '--limit: limits of a team are its own, so it goes back to no tier; use none',
    );
  });
});

describe('a key', () => {
  test('has limits of its own, beside those of its holder', async () => {
    const prefix = await issue('--tier', 'Lite', '--limit', 'requests_per_minute=10', '--budget', '5/day');
    expect(await json('keys', 'show', prefix)).toMatchObject({
      limits: { requests_per_minute: 10 },
      budget: { per_day: 5 },
      tier_limits: { requests_per_minute: 200 },
    });
    expect(await json('holders', 'show', prefix)).toMatchObject({ limits: null, budget: null });
    expect(await json('keys', 'set', prefix, '--limit', 'requests_per_minute=none')).toMatchObject({
      outcome: 'changed',
      limits: null,
      budget: { per_day: 5 },
    });
    expect(await done('keys', 'list')).toContain('  per day 5\n');
  });

  test('has no more than its holder, unless by force', async () => {
    const prefix = await issue('--tier', 'Lite');
    await done('holders', 'set', prefix, '--limit', 'requests_per_minute=50');
    expect(await fault('keys', 'set', prefix, '--limit', 'requests_per_minute=51')).toContain(
      'requests_per_minute is 51, and its holder has 50: give --force',
    );
    expect(await fault('keys', 'issue', '--for', prefix, '--limit', 'requests_per_minute=51')).toContain(
      'its holder has 50',
    );
    await done('keys', 'set', prefix, '--limit', 'requests_per_minute=51', '--force');
    await done('keys', 'set', prefix, '--limit', 'requests_per_minute=50');
  });
});

test.each([
  [['--limit', 'requests_per_minut=5'], /unknown limit: .*did you mean requests_per_minute\?/],
  [['--limit', 'cost_per_day=5'], /unknown limit/],
  [['--limit', 'requests_per_minute'], /--limit is NAME=NUMBER/],
  [['--limit', 'requests_per_minute='], /requests_per_minute is a whole number from 1, or none, or tier/],
  [['--limit', 'requests_per_minute=0'], /whole number from 1/],
  [['--limit', 'requests_per_minute=-5'], /whole number from 1/],
  [['--limit', 'requests_per_minute=1e3'], /whole number from 1/],
  [['--limit', 'requests_per_minute=1.5'], /whole number from 1/],
  [['--limit', 'requests_per_minute=99999999999999999999'], /whole number from 1/],
  [['--limit', 'concurrency=1', '--limit', 'concurrency=2'], /the limit concurrency is given twice/],
  [['--budget', '500'], /--budget is an amount in a day or a month, such as 500\/month/],
  [['--budget', '/month'], /--budget must be an amount/],
  [['--budget', '500/week'], /unknown window of a budget: it is one of day, month/],
  [['--budget', '500/mont'], /did you mean month\?/],
  [['--budget', '0/month'], /must be more than 0/],
  [['--budget', '-5/month'], /--budget/],
  [['--budget', '1.0000001/month'], /six decimals/],
  [['--budget', '1,000/month'], /must be an amount/],
  [['--budget', '9000001/month'], /must be at most 9000000/],
  [['--budget', '5/month', '--budget', '6/month'], /the budget of a month is given twice/],
  [['--budget', '500 usd/month'], /--budget is USD, but the `currency` of the configuration is EUR/],
  [['--budget', '500 abc/month'], /--budget must be an amount in digits, .* currency of ISO 4217/],
  [['--budget', 'EUR 5 EUR/month'], /--budget names a currency twice/],
  [['--budget', 'EUR 5 USD/month'], /--budget names a currency twice/],
  [['--budget', 'USD 500/month'], /is USD, but the `currency` of the configuration is EUR/],
  [['--budget', '5/month/day'], /--budget/],
  [
    ['--budget', '5k/month'],
    /amount in digits, with nothing beside it but a currency of ISO 4217, such as EUR; with its time, such as 500\/month/,
  ],
  [['--budget', 'tier 5/month'], /amount in digits, .*, or tier\/month for that of the tier/],
  [['--budget', '5 euros/month'], /amount in digits/],
  [['--soft', '0%'], /--soft is a share of the budget between 0 and 1/],
  [['--soft', '100%'], /--soft is a share/],
  [['--soft', '1'], /--soft is a share/],
  [['--soft', '80'], /--soft is a share/],
  [['--soft', '80%,'], /--soft is a share/],
  [['--soft', 'much'], /--soft is a share/],
  [['--soft', '10%,20%,30%,40%,50%,60%'], /up to five/],
  [['--model-limit', 'gpt-4o'], /--model-limit is MODEL:NAME=NUMBER/],
  [
    ['--model-limit', 'gpt-4:concurrency=1'],
    /the model of a limit is no entry of `models` \(did you mean gpt-4o\?\)/,
  ],
  [['--model-limit', 'llama3:8b:concurrency=1'], /not offered to the tier Lite/],
  [['--model-limit', 'gpt-4o:concurency=1'], /did you mean concurrency\?/],
  [['--model-budget', 'gpt-4o:5'], /--model-budget is an amount in a day or a month/],
  [['--model-limit', 'constructor:concurrency=1'], /is no entry/],
  [['--model-limit', 'gone:concurrency=tier'], /is no entry/],
])('%j is refused for a holder, and nothing changes', async (options, message) => {
  const prefix = await issue('--tier', 'Lite');
  expect(await fault('holders', 'set', prefix, ...options)).toMatch(message);
  expect(await json('keys', 'show', prefix)).toMatchObject({ version: 1 });
});

test('what was set for a model that is gone, or is not for the tier any more, can be removed', async () => {
  const prefix = await issue('--tier', 'Pro');
  const set = ['holders', 'set', prefix];
  await done(...set, '--model-limit', 'gpt-4o:concurrency=2', '--model-limit', 'llama3:8b:concurrency=2');
  await done('holders', 'tier', prefix, '--tier', 'Lite');
  configure(CONFIG.replace('gpt-4o:', 'gpt-5:'));
  for (const model of ['gpt-4o', 'llama3:8b']) {
    expect(await fault(...set, '--model-limit', `${model}:concurrency=1`)).toMatch(/is no entry|not offered/);
    expect(await fault(...set, '--model-limit', `${model}:concurrency=none`)).toMatch(/no entry|not offered/);
    await done(...set, '--model-limit', `${model}:concurrency=tier`);
  }
  expect(await json('holders', 'show', prefix)).toMatchObject({ model_limits: null });
});

test('what an owner has already needs no force, and may be gone from the configuration', async () => {
  const prefix = await issue('--tier', 'Lite', '--models', 'gpt-4o');
  const [limit, budget] = ['requests_per_minute=900', '90/month'];
  await done('holders', 'set', prefix, '--limit', limit, '--budget', budget, '--force');
  const both = ['--limit', limit, '--limit', 'concurrency=3', '--budget', budget];
  await done('holders', 'set', prefix, ...both);
  expect(await fault('holders', 'set', prefix, '--limit', 'requests_per_minute=901')).toContain('--force');
  configure(CONFIG.replace('gpt-4o:', 'gpt-5:'));
  await done('keys', 'set', prefix, '--models', 'gpt-4o,gpt-5');
  expect(await fault('keys', 'set', prefix, '--models', 'gpt-4o,gpt-4o-mini')).toContain(
    'no model is called',
  );
});

test('a key is restricted to what its holder may use, and `explain` says what it may not', async () => {
  const prefix = await issue('--tier', 'Pro');
  await done('holders', 'set', prefix, '--models', 'gpt-*', '--endpoints', 'chat,embeddings');
  const set = ['keys', 'set', prefix];
  expect(await fault(...set, '--models', 'llama3:8b')).toContain('not among those of the holder, gpt-*');
  expect(await fault(...set, '--endpoints', 'chat,images')).toMatch(
    /unknown endpoint of the holder: it is one of chat, embeddings/,
  );
  await done(...set, '--models', 'gpt-4o', '--endpoints', 'embeddings');
  const explained = await tollgate('explain', 'gpt-4o', '--key', prefix);
  expect([explained.code, explained.out]).toEqual([0, expect.stringMatching(/\n +for +embeddings\n/)]);
  expect(await tollgate('explain', 'llama3:8b', '--key', prefix)).toMatchObject({
    code: 1,
    out: expect.stringContaining('restricted to other models, and requests get a 404 model_not_found'),
  });
  const { out } = await tollgate('explain', 'llama3:8b', '--key', prefix, '--json');
  expect(JSON.parse(out)).toMatchObject({ key: { allowed: false, endpoints: ['embeddings'] } });
});

test('warnings without a budget, and budgets without prices, are refused', async () => {
  const prefix = await issue('--tier', 'Pro');
  expect(await fault('holders', 'set', prefix, '--soft', '80%')).toContain('--soft needs a budget');
  configure(
    'upstreams: { demo: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: demo, model: e }] } }\n',
  );
  expect(await fault('holders', 'set', prefix, '--budget', '5/day')).toContain('has no prices');
  expect(await fault('holders', 'set', prefix, '--budget', '5 EUR/day')).toContain('no `currency`');
  writeFileSync(dir.file('prices.yaml'), 'upstreams: { demo: { e: { input: 1, output: 2 } } }\n');
  configure(
    'currency: EUR\nprices: prices.yaml\nupstreams: { demo: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: demo, model: e }] } }\ntiers: { Pro: {} }\n',
  );
  await done('holders', 'set', prefix, '--budget', '5/day');
});

test('the limits of a key are lines, with the time to their reset where they have one', () => {
  const at = { max: 10, used: 4, remaining: 6 };
  const lines = [
    { limit: 'requests_per_minute', ...at, resets_in_s: 1 },
    { limit: 'concurrency', ...at, resets_in_s: 0 },
    { scope: 'team', limit: 'cost_per_month', ...at, resets_in_s: 864_000 },
    { scope: 'key', limit: 'tokens_per_day', ...at, resets_in_s: 37_872 },
  ] as const;
  const texts = [
    'holder: requests per minute 10, used 4, left 6, resets in 1s',
    'holder: concurrency 10, used 4, left 6',
    'team: budget per month 10, used 4, left 6, resets in 10d',
    'key: tokens per day 10, used 4, left 6, resets in 11h',
  ];
  const note = 'no gateway answers, so what is used in a minute and at once is unknown';
  const textsOf = (source: 'redis' | 'store') => keyLimitLines({ source, lines, rejected: null, notes: [] });
  expect(textsOf('redis')).toEqual(texts.map((text, index) => [index === 0 ? 'key' : '', text]));
  expect(textsOf('store').map(([, text]) => text)).toEqual([...texts, note]);
  expect(keyLimitLines({ source: 'redis', lines: [], rejected: null, notes: [] })).toEqual([
    ['key', 'has no limits'],
  ]);
});
