// The commands for teams, holders and keys as an organisation uses them, on a store in a file.
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { commandsWith } from './commands.ts';

const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;

let dir: TempDir;

beforeEach(async () => {
  dir = await tempDir();
  writeFileSync(
    dir.file('config.yaml'),
    `store: sqlite:${dir.file('keys.db')}
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
});

afterEach(() => dir.remove());

const { tollgate, done, json, issue } = commandsWith(() => dir.file('config.yaml'));

describe('teams', () => {
  test('are added, listed with their holders, renamed and removed, and their history says by whom', async () => {
    expect(await done('teams', 'add', 'Search', '--label', 'cost=42')).toBe('The team Search is added.\n');
    await done('teams', 'add', 'Ads', '--actor', 'the pipeline');
    const prefix = await issue('--tier', 'Pro', '--holder', 'Indexer', '--team', 'search');
    expect((await done('teams', 'list')).replaceAll(/ +/g, ' ')).toMatch(
      /^NAME HOLDERS LABELS CREATED_AT LIMITS\nAds 0 - \S+Z -\nSearch 1 cost=42 \S+Z -\n$/,
    );
    expect(await json('teams', 'list', '--label', 'cost=4*')).toMatchObject([{ name: 'Search', holders: 1 }]);
    await done(
      'teams',
      'set',
      'Search',
      '--name',
      'Ranking',
      '--remove-label',
      'cost',
      '--reason',
      'reorganised',
    );
    expect(await done('teams', 'show', 'ranking')).toMatch(
      new RegExp(
        `^name +Ranking\ncreated at +${TIME}\nlabels +-\nevents\n +${TIME} +created by cli:alice\n` +
          ` +${TIME} +name Search to Ranking, label cost removed by cli:alice: reorganised\n$`,
      ),
    );
    expect((await tollgate('teams', 'remove', 'Ranking')).err).toContain('the team has holders');
    await done('holders', 'set', prefix, '--no-team');
    await done('teams', 'remove', 'Ranking');
    expect(await json('teams', 'show', 'Ads')).toMatchObject({ events: [{ actor: 'the pipeline' }] });
    expect(await tollgate('teams', 'show', 'Adz')).toMatchObject({
      code: 1,
      err: expect.stringContaining('no team with this name (did you mean Ads?)'),
    });
  });

  test('that have the values already get no event', async () => {
    await done('teams', 'add', 'Search', '--label', 'cost=42');
    const set = ['teams', 'set', 'Search', '--name', 'Search', '--label', 'cost=42'];
    expect(await done(...set)).toBe('The team Search is as before.\n');
    expect(await json('teams', 'show', 'Search')).toMatchObject({ events: [{ what: 'created' }] });
    expect(await done('teams', 'set', 'Search', '--label', 'cost=43')).toBe('The team Search is changed.\n');
    expect(Object(await json('teams', 'show', 'Search')).events).toHaveLength(2);
  });

  test('and holders have at most 20 labels, over all commands', async () => {
    const labels = (from: number, count: number) =>
      Array.from({ length: count }, (_, index) => ['--label', `l${from + index}=x`]).flat();
    await done('teams', 'add', 'Search', ...labels(0, 20));
    expect(await tollgate('teams', 'set', 'Search', ...labels(20, 1))).toMatchObject({
      code: 1,
      err: expect.stringContaining('A holder or a team has at most 20 labels.'),
    });
    await done('teams', 'set', 'Search', ...labels(20, 1), '--remove-label', 'l0');
    const prefix = await issue('--tier', 'Lite', ...labels(0, 12));
    expect((await tollgate('holders', 'set', prefix, ...labels(12, 9))).code).toBe(1);
    await done('holders', 'set', prefix, ...labels(12, 8));
  });

  test('are found by the beginning of their name', async () => {
    for (const name of ['Search', 'Search ads', 'Ranking']) await done('teams', 'add', name);
    expect(await json('teams', 'list', '--name', 'sea')).toMatchObject([
      { name: 'Search' },
      { name: 'Search ads' },
    ]);
  });

  test.each([
    ['composed', '\u00e9quipe', 'e\u0301quipe'],
    ['decomposed', 'e\u0301quipe', '\u00e9quipe'],
    ['of compatible Hangul', '\u1112\u1161\u11ab', '\ud55c'],
  ])('have one name whatever form of Unicode it is written in: %s first', async (_what, one, other) => {
    await done('teams', 'add', one, '--label', `name=${one}`);
    expect(await tollgate('teams', 'add', other)).toMatchObject({
      code: 1,
      err: expect.stringContaining('there is a team with this name already'),
    });
    const prefix = await issue('--tier', 'Pro', '--holder', other, '--team', other);
    expect(await json('holders', 'list', '--name', one)).toMatchObject([{ team: one.normalize('NFC') }]);
    expect(await json('teams', 'list', '--name', other, '--label', `name=${other}`)).toHaveLength(1);
    expect(await json('keys', 'list', '--holder', other)).toMatchObject([{ prefix }]);
  });

  test('and holders that lack a label to remove stay as they are, and the nearest name is said', async () => {
    await done('teams', 'add', 'Search', '--label', 'cost=42');
    const prefix = await issue('--tier', 'Pro', '--label', 'env=prod');
    expect(await tollgate('teams', 'set', 'Search', '--remove-label', 'cots')).toEqual({
      code: 0,
      out: 'The team Search is as before.\n',
      err: 'There is no label cots to remove (did you mean cost?).\n',
    });
    expect(await tollgate('holders', 'set', prefix, '--remove-label', 'Env')).toMatchObject({
      code: 0,
      err: 'There is no label Env to remove (did you mean env?).\n',
    });
    expect(
      await tollgate('holders', 'set', prefix, '--label', 'env=x', '--remove-label', 'env'),
    ).toMatchObject({
      code: 2,
      err: expect.stringContaining('the label env is given and removed'),
    });
    expect(await json('holders', 'show', prefix)).toMatchObject({ labels: { env: 'prod' } });
    expect(await done('holders', 'set', prefix, '--label', 'env=prod')).toMatch(/ is as before\. /);
  });

  test.each(['teams', 'holders', 'keys'])('%s are not searched by a label that nobody has', async (what) => {
    await done('teams', 'add', 'Search', '--label', 'cost=42');
    expect(await tollgate(what, 'list', '--label', 'cosst=42')).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('no team has a label with this name (did you mean cost?)'),
    });
  });

  test.each(['.', '..', ' .. '])('are not called %j, which no address can name', async (name) => {
    await done('teams', 'add', 'Search');
    const message = expect.stringContaining('not called . or ..');
    expect(await tollgate('teams', 'add', name)).toMatchObject({ code: 2, err: message });
    expect(await tollgate('teams', 'set', 'Search', '--name', name)).toMatchObject({ code: 2, err: message });
  });

  test('and keys are made and removed with JSON as the only output', async () => {
    await done('teams', 'add', 'Search');
    const issued = await tollgate('keys', 'issue', '--tier', 'Pro', '--team', 'search', '--json');
    const { key, ...fields } = JSON.parse(issued.out);
    expect([issued.code, issued.err, key]).toEqual([0, '', expect.stringMatching(/^[0-9a-f]{32}$/)]);
    const prefix = key.slice(0, 8);
    const { holder, created_at } = Object(await json('keys', 'show', prefix));
    expect(fields).toEqual({ prefix, tier: 'Pro', holder, created_at });
    expect((await tollgate('teams', 'remove', 'Search', '--json')).out).toBe('');
    await done('holders', 'set', prefix, '--no-team');
    expect(await json('teams', 'remove', 'search')).toEqual({ outcome: 'removed', team: 'Search' });
  });

  test('have names that differ in more than case', async () => {
    await done('teams', 'add', 'Search');
    expect(await tollgate('teams', 'add', 'SEARCH')).toMatchObject({
      code: 1,
      err: expect.stringContaining('there is a team with this name already'),
    });
  });
});

test('the user of a command is text that a terminal can show', async () => {
  const as = (variables: Readonly<Record<string, string>>) =>
    commandsWith(() => dir.file('config.yaml'), variables).tollgate('teams', 'add', 'Search');
  expect(await as({ USER: 'a\u001b[2J' })).toMatchObject({
    code: 1,
    err: expect.stringContaining('The actor contains a control character'),
  });
  expect((await as({ SUDO_USER: '', USER: 'bob' })).code).toBe(0);
  expect(await json('teams', 'show', 'Search')).toMatchObject({ events: [{ actor: 'cli:bob' }] });
});

describe('holders', () => {
  test('are found by name, label, team, tier and standing', async () => {
    await done('teams', 'add', 'Search');
    const one = await issue(
      '--tier',
      'Pro',
      '--holder',
      'Indexer',
      '--team',
      'Search',
      '--label',
      'env=prod',
    );
    await issue('--tier', 'Lite', '--holder', 'Frontend', '--label', 'env=dev', '--label', 'app=web');
    await done('holders', 'suspend', one, '--reason', 'leak');
    const names = async (...argv: string[]) => {
      const found = await json('holders', 'list', ...argv);
      return Array.isArray(found) ? found.map(({ name }) => name).toSorted() : found;
    };
    expect(await names()).toEqual(['Frontend', 'Indexer']);
    expect(await names('--name', 'index')).toEqual(['Indexer']);
    expect(await names('--label', 'env=dev', '--label', 'app=web')).toEqual(['Frontend']);
    expect(await names('--label', 'env=dev', '--label', 'app=api')).toEqual([]);
    expect(await names('--team', 'search')).toEqual(['Indexer']);
    expect(await names('--tier', 'Lite')).toEqual(['Frontend']);
    expect(await names('--standing', 'suspended')).toEqual(['Indexer']);
    expect(await done('holders', 'list', '--team', 'Search')).toMatch(
      /^HOLDER +TIER +STANDING +KEYS +LAST_USED +TEAM +NAME +LABELS +LIMITS\n[0-9a-f-]{36} +Pro +suspended +1 +- +Search +Indexer +env=prod +-\n$/,
    );
  });

  test('change in name, team and labels, by a key or by their id', async () => {
    const prefix = await issue('--tier', 'Pro', '--holder', 'Old', '--label', 'env=dev');
    await done('teams', 'add', 'Search');
    const set = ['--name', 'New', '--team', 'search', '--label', 'env=prod', '--reason', 'moved'];
    expect(await done('holders', 'set', prefix, ...set)).toContain(
      `The holder of ${prefix} is changed. Active keys: ${prefix}.`,
    );
    const shown = await json('holders', 'show', prefix);
    expect(shown).toMatchObject({ name: 'New', team: 'Search', labels: { env: 'prod' }, keys: [{ prefix }] });
    const id = String(Object(shown).holder);
    expect(await done('holders', 'set', id, '--no-name', '--remove-label', 'env')).toContain('is changed');
    expect(await done('holders', 'show', id)).toMatch(/^holder +\S+\nteam +Search\ntier +Pro\n/);
    expect(await done('holders', 'set', id, '--no-name')).toContain('as before');
    expect(await done('keys', 'events', prefix)).toMatch(
      /changed, version 2 by cli:alice: name Old to New, team none to Search \(\S{36}\), label env=prod: moved\n/,
    );
  });

  test.each([
    [2, ['set', '01234567', '--label', 'env'], /--label is NAME=VALUE/],
    [2, ['set', '01234567', '--label', '-x=1'], /needs a value/],
    [2, ['set', '01234567', '--label', 'a b=1'], /a label has a name of letters/],
    [2, ['set', '01234567', '--label', 'a=1', '--label', 'a=2'], /given twice/],
    [2, ['set', '01234567', '--name', 'x', '--no-name'], /either --name or --no-name/],
    [2, ['list', '--standing', 'good?'], /unknown state/],
    [1, ['show', '01234567'], /no key with this prefix, and no holder/],
    [1, ['set', '00000000-0000-0000-0000-000000000000', '--no-name'], /no holder with this id/],
  ])('exit with %i for %j', async (code, argv, message) => {
    await issue('--tier', 'Lite');
    expect(await tollgate('holders', ...argv)).toMatchObject({
      code,
      out: '',
      err: expect.stringMatching(message),
    });
  });
});

describe('keys', () => {
  test('have names and an expiry, which can be changed while they are active', async () => {
    const first = await issue('--tier', 'Lite', '--name', 'ci', '--expires', '90d');
    const { holder } = Object(await json('keys', 'show', first));
    const second = await issue('--for', holder, '--name', 'deploy', '--expires', '2199-12-31');
    expect(await json('keys', 'list')).toMatchObject([
      { prefix: first, name: 'ci', expires_at: expect.stringMatching(TIME) },
      { prefix: second, name: 'deploy', expires_at: '2199-12-31T00:00:00.000Z' },
    ]);
    expect(await json('keys', 'list', '--expires-before', '91d')).toMatchObject([{ prefix: first }]);
    expect(await json('keys', 'list', '--expires-before', '89d')).toEqual([]);
    expect(await done('keys', 'set', second, '--no-expiry', '--name', 'release')).toContain(
      `${second} is changed.`,
    );
    expect(await json('keys', 'show', second)).toMatchObject({ name: 'release', expires_at: null });
    await done('keys', 'revoke', second);
    expect(await tollgate('keys', 'set', second, '--no-name')).toMatchObject({
      code: 1,
      err: expect.stringContaining('the key has ended: it is revoked'),
    });
  });

  test.each([
    ['2020-01-01', /--expires is in the past: 2020-01-01T00:00:00\.000Z was \d{4}d ago/],
    ['2030-02-30', /--expires is a day that does not exist/],
    ['soon', /--expires is a duration/],
    ['0d', /--expires is a duration/],
  ])('are not issued with the expiry %s', async (expires, message) => {
    expect(await tollgate('keys', 'issue', '--tier', 'Lite', '--expires', expires)).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringMatching(message),
    });
  });

  test('are listed by holder, label, team and use', async () => {
    await done('teams', 'add', 'Search');
    const one = await issue(
      '--tier',
      'Pro',
      '--holder',
      'Indexer',
      '--team',
      'Search',
      '--label',
      'env=prod',
    );
    const two = await issue('--tier', 'Lite', '--holder', 'Frontend');
    const listed = async (...argv: string[]) => {
      const found = await json('keys', 'list', ...argv);
      return Array.isArray(found) ? found.map(({ prefix }) => prefix) : found;
    };
    expect(await listed('--holder', 'INDEX')).toEqual([one]);
    expect(await listed('--team', 'search')).toEqual([one]);
    expect(await listed('--label', 'env=prod')).toEqual([one]);
    expect(await listed('--unused-since', '30d')).toEqual([one, two]);
  });

  test('are listed by the states that a list shows', async () => {
    const [active, suspended, expired] = [
      await issue('--tier', 'Pro'),
      await issue('--tier', 'Pro'),
      await issue('--tier', 'Lite', '--expires', '1ms'),
    ];
    await done('holders', 'suspend', suspended, '--reason', 'leak');
    const listed = async (...argv: string[]) => {
      const found = await json('keys', 'list', ...argv);
      return Array.isArray(found) ? found.map(({ prefix }) => prefix) : found;
    };
    expect(await listed('--state', 'active')).toEqual([active, suspended, expired]);
    expect(await listed('--state', 'suspended')).toEqual([suspended]);
    expect(await listed('--state', 'expired')).toEqual([expired]);
    expect(await listed('--state', 'expired', '--tier', 'Pro')).toEqual([]);
    expect(await listed('--state', 'expired', '--expires-before', '2020-01-01')).toEqual([]);
  });

  test.each(['3000000d', '99999999999d', '9007199254740991d'])('do not expire in %s', async (far) => {
    const beyond = 'is a time beyond the years 0000 to 9999';
    for (const argv of [
      ['keys', 'issue', '--tier', 'Pro', '--expires', far],
      ['keys', 'list', '--expires-before', far],
      ['keys', 'list', '--unused-since', far],
    ])
      expect(await tollgate(...argv)).toMatchObject({
        code: 2,
        out: '',
        err: expect.stringContaining(beyond),
      });
  });

  test('are issued for a team that exists, or not at all', async () => {
    expect(await tollgate('keys', 'issue', '--tier', 'Lite', '--team', 'Search')).toMatchObject({
      code: 1,
      out: '',
    });
    expect(await json('keys', 'list')).toEqual([]);
    for (const nobody of ['01234567', '00000000-0000-0000-0000-000000000000'])
      expect(await tollgate('keys', 'issue', '--for', nobody)).toMatchObject({
        code: 1,
        err: expect.stringContaining('no key with this prefix, and no holder with this id'),
      });
    expect(await tollgate('keys', 'issue', '--for', '01234567', '--team', 'Search')).toMatchObject({
      code: 2,
      err: expect.stringContaining('--team is only for a new holder'),
    });
  });

  test('are restricted to models and endpoints of their tier, and so are all keys of a holder', async () => {
    const prefix = await issue('--tier', 'Lite', '--models', 'echo', '--endpoints', 'chat,embeddings');
    expect(await json('keys', 'show', prefix)).toMatchObject({
      models: ['echo'],
      endpoints: ['chat', 'embeddings'],
    });
    await done('keys', 'set', prefix, '--endpoints', 'all');
    expect(await json('keys', 'show', prefix)).toMatchObject({ models: ['echo'], endpoints: null });
    await done('holders', 'set', prefix, '--models', 'ec*');
    expect(await json('holders', 'show', prefix)).toMatchObject({ models: ['ec*'], endpoints: null });
  });

  test.each([
    [['--models', 'ecko'], /no model is called like one of --models \(did you mean echo\?\)/],
    [['--models', 'echo,'], /list of names with commas/],
    [['--endpoints', 'chats'], /unknown endpoint of the tier Lite.*did you mean chat/],
  ])('are not restricted to %j', async (options, message) => {
    expect(await tollgate('keys', 'issue', '--tier', 'Lite', ...options)).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringMatching(message),
    });
    expect(await json('keys', 'list')).toEqual([]);
  });
});
