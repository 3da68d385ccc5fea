// What commands print is what their options take: times, amounts, shares, ids, names, labels and limits, from the text and from `--json`.
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { commandsWith } from './commands.ts';

const CONFIG = `
currency: EUR
upstreams: { demo: { builtin: echo }, spare: { builtin: echo } }
models: { m: { targets: [{ upstream: demo, model: echo }, { upstream: spare, model: echo }], price: { input: 1, output: 1 } } }
tiers: { Free: {}, Lite: {}, Pro: {} }
`;

let dir: TempDir;
let prefix: string;
const { tollgate, done, json, issue } = commandsWith(() => dir.file('config.yaml'));

const member = (value: unknown, ...path: readonly (string | number)[]): unknown =>
  path.reduce<unknown>((at, name) => Reflect.get(Object(at), name), value);
/** The first text of this form. */
const found = (text: string, pattern: RegExp): string => pattern.exec(text)?.[1] ?? '';

beforeAll(async () => {
  dir = await tempDir();
  writeFileSync(dir.file('config.yaml'), `store: sqlite:${dir.file('keys.db')}\n${CONFIG}`);
  await done(
    'teams',
    'add',
    'Search',
    '--budget',
    '500.5/month',
    '--soft',
    '50%,80%',
    '--label',
    'env=a b, c',
  );
  prefix = await issue('--tier', 'Pro', '--team', 'Search', '--holder', 'R&D, "x"', '--expires', '90d');
  const own = ['--limit', 'requests_per_minute=100', '--budget', '20/day', '--soft', '80%'];
  await done('holders', 'set', prefix, ...own, '--label', 'env=prod=1', '--endpoints', 'chat,embeddings');
  await done('keys', 'set', prefix, '--limit', 'requests_per_minute=7');
  await tollgate('operators', 'add', 'ann', '--role', 'viewer', '--expires', '30d');
  await done('upstreams', 'drain', 'demo', '--for', '30d');
});
afterAll(() => dir.remove());

const TIME = /\b(20\d\d-\d\d-\d\dT[\d:.]+Z)/;

/** Times to come, and past ones, as they are printed. */
const TIMES: readonly (readonly [string, 'to come' | 'past', () => Promise<unknown>])[] = [
  ['keys show --json', 'to come', async () => member(await json('keys', 'show', prefix), 'expires_at')],
  ['keys show', 'to come', async () => found(await done('keys', 'show', prefix), /expires at\s+(20\S+)/)],
  ['keys list', 'to come', async () => found(await done('keys', 'list'), /Z +(20\S+Z)/)],
  ['operators list --json', 'to come', async () => member(await json('operators', 'list'), 0, 'expires_at')],
  ['operators list', 'to come', async () => found(await done('operators', 'list'), TIME)],
  [
    'upstreams list --json',
    'to come',
    async () => member(await json('upstreams', 'list'), 0, 'drained', 'until'),
  ],
  [
    'upstreams list',
    'to come',
    async () => found((await tollgate('upstreams', 'list')).out, /until (20[\d-]+T[\d:.]+Z)/),
  ],
  ['keys show --json', 'past', async () => member(await json('keys', 'show', prefix), 'created_at')],
  ['keys events', 'past', async () => found(await done('keys', 'events', prefix), TIME)],
  [
    'holders show --json',
    'past',
    async () => member(await json('holders', 'show', prefix), 'events', 0, 'at'),
  ],
  ['teams show', 'past', async () => found(await done('teams', 'show', 'Search'), TIME)],
  ['upstreams events', 'past', async () => found(await done('upstreams', 'events'), TIME)],
  ['usage --json', 'past', async () => member(await json('usage'), 'from')],
];

/** Options that take a time. */
const TAKERS: readonly (readonly [string, 'to come' | 'past', (time: string) => Promise<unknown>])[] = [
  ['keys set --expires', 'to come', (time) => done('keys', 'set', prefix, '--expires', time)],
  ['keys issue --expires', 'to come', (time) => issue('--tier', 'Free', '--expires', time)],
  ['keys list --expires-before', 'to come', (time) => done('keys', 'list', '--expires-before', time)],
  ['upstreams drain --for', 'to come', (time) => done('upstreams', 'drain', 'demo', '--for', time)],
  ['keys list --unused-since', 'past', (time) => done('keys', 'list', '--unused-since', time)],
  ['usage --since', 'past', (time) => done('usage', '--since', time)],
];

describe.each(TIMES)('a time of `%s`, %s,', (_, when, print) => {
  test.each(TAKERS.filter(([, wanted]) => wanted === when))(
    'is taken by `%s`',
    async (_name, _when, take) => {
      const time = String(await print());
      expect(time).toMatch(/^20\d\d-\d\d-\d\dT\d\d/);
      await take(time);
    },
  );
});

test('a time that is given stays the same', async () => {
  const time = '2098-01-31T23:59:58.123Z';
  await done('keys', 'set', prefix, '--expires', time);
  expect(await json('keys', 'show', prefix)).toMatchObject({ expires_at: time });
  await done('keys', 'set', prefix, '--expires', '2098-02-01T01:59:59+02:00');
  expect(await json('keys', 'show', prefix)).toMatchObject({ expires_at: '2098-01-31T23:59:59.000Z' });
  for (const wrong of ['2098-02-30T00:00:00Z', '2098-01-01T25:00:00Z', '2098-01-01T10:00'])
    expect(await tollgate('keys', 'set', prefix, '--expires', wrong)).toMatchObject({
      code: 2,
      err: expect.stringContaining('or a time, such as 2030-01-31T12:00:00Z'),
    });
});

test('the period of a report is one that a report takes', async () => {
  const report = await json('usage', '--since', '2d');
  const [from, to] = [String(member(report, 'from')), String(member(report, 'to'))];
  const again = await json('usage', '--since', from, '--until', to);
  expect([member(again, 'from'), String(member(again, 'to')).slice(0, 10)]).toEqual([from, to.slice(0, 10)]);
  const month = from.slice(0, 7);
  const whole = await json('usage', '--month', month);
  const period = ['--since', String(member(whole, 'from')), '--until', String(member(whole, 'to'))];
  expect(await json('usage', ...period)).toMatchObject({ from: member(whole, 'from') });
  expect((await tollgate('usage', '--since', '2020-01-01', '--until', '2020-01-31T10')).code).toBe(2);
});

/** What a record has, given to an option again: it is as before. */
const SAME: readonly (readonly [string, () => Promise<readonly string[]>])[] = [
  [
    'limits and budget of a holder, by JSON',
    async () => {
      const record = await json('holders', 'show', prefix);
      return [
        ...Object.entries(Object(member(record, 'limits'))).flatMap((pair) => ['--limit', pair.join('=')]),
        '--budget',
        `${member(record, 'budget', 'per_day')}/day`,
        '--soft',
        String(member(record, 'budget', 'soft')),
        '--endpoints',
        String(member(record, 'endpoints')),
        '--name',
        String(member(record, 'name')),
        '--team',
        String(member(record, 'team')),
        ...Object.entries(Object(member(record, 'labels'))).flatMap((pair) => ['--label', pair.join('=')]),
      ];
    },
  ],
  [
    'limits and budget of a holder, by the text',
    async () => {
      const text = await done('holders', 'show', prefix);
      const limit = /limits +(requests per minute) (\d+)/.exec(text) ?? [];
      return [
        '--limit',
        `${limit[1]}=${limit[2]}`,
        '--budget',
        `${found(text, /per day ([\d.]+ EUR)/)}/day`,
        '--soft',
        found(text, /warnings from ([\d., %]+%)/),
        '--label',
        found(text, /labels +(.*)/),
        '--endpoints',
        found(text, /endpoints +(.*)/),
      ];
    },
  ],
];

test.each(SAME)('%s, are taken as options, and change nothing', async (_, options) => {
  const { code, out, err } = await tollgate('holders', 'set', prefix, ...(await options()), '--json');
  expect([code, err, member(JSON.parse(out), 'outcome')]).toEqual([0, '', 'same']);
});

test('budget, shares and labels of a team are taken as options, and change nothing', async () => {
  const team = await json('teams', 'show', 'Search');
  const text = await done('teams', 'show', 'Search');
  const label = ['--label', `env=${member(team, 'labels', 'env')}`];
  for (const options of [
    [
      '--budget',
      `${member(team, 'budget', 'per_month')}/month`,
      '--soft',
      String(member(team, 'budget', 'soft')),
    ],
    [
      '--budget',
      `${found(text, /per month ([\d.]+ EUR)/)}/month`,
      '--soft',
      found(text, /from ([\d., %]+%)/),
    ],
  ])
    expect(await json('teams', 'set', 'Search', ...options, ...label)).toMatchObject({ outcome: 'same' });
});

test('ids and prefixes are taken wherever a record of their kind is named', async () => {
  const key = await json('keys', 'show', prefix);
  const holder = String(member(key, 'holder'));
  const events = String(await done('keys', 'events', prefix));
  for (const words of [
    ['holders', 'show', holder],
    ['holders', 'set', holder, '--name', 'R&D, "x"'],
    ['usage', '--holder', holder],
    ['usage', '--key', prefix],
    ['explain', 'm', '--key', holder],
    ['explain', 'm', '--key', prefix],
  ])
    await done(...words);
  expect(await issue('--for', holder)).toMatch(/^[0-9a-f]{8}$/);
  for (const given of [holder, holder.toUpperCase(), 'R&D'])
    expect(await json('keys', 'list', '--holder', given)).toHaveLength(2);
  await done('holders', 'set', prefix, '--no-team');
  await done('holders', 'set', prefix, '--team', 'Search');
  const id = found(await done('keys', 'events', prefix), /Search \(([0-9a-f-]{36})\)/);
  expect(events).not.toContain(id);
  expect(await json('teams', 'show', id)).toMatchObject({ name: 'Search' });
  expect(await json('holders', 'list', '--team', id)).toHaveLength(1);
  expect(await json('keys', 'list', '--team', 'Search', '--label', 'env=prod=1')).toHaveLength(2);
});
