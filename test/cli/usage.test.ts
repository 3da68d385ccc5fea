import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import type { Store } from '../../src/store/store.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { startChild } from '../store/processes.ts';
import { newHolder, newKey } from '../store/samples.ts';
import { batch, row } from '../store/usage-samples.ts';
import { collector } from './collector.ts';

const NOW = Date.parse('2030-01-08T12:34:56Z');

let dir: TempDir;
let configFile: string;
let store: Store;

beforeEach(async () => {
  dir = await tempDir();
  configFile = dir.file('config.yaml');
  writeFileSync(
    configFile,
    `store: sqlite:${dir.file('keys.db')}
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
  store = await openNewStore(dir.file('keys.db'));
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

async function usage(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {}, now: () => NOW };
  const named = argv.includes('--config') ? argv : [...argv, '--config', configFile];
  const code = await main(['usage', ...named], io);
  return { code, out: out.text(), err: err.text() };
}

const lines = async (...argv: string[]) => (await usage(...argv)).out.trimEnd().split('\n');
const groups = async (...argv: string[]) => {
  const { lines } = JSON.parse((await usage('--json', ...argv)).out);
  return lines.map((line: Record<string, unknown>) => [Object.values(line)[0], line['requests']]);
};

const TIMES = { duration_ms: 1000, ttft_ms: 200, ttft_count: 1 };

async function add(...rows: Parameters<typeof row>[0][]) {
  await store.usage.addUsage(batch(rows.map((each) => row({ hour: '2030-01-07T10', ...each }))));
}

describe('tollgate usage', () => {
  test('prints an aligned table with totals', async () => {
    await add(
      {
        model: 'gpt-4o-mini',
        sums: { prompt: 1200, completion: 300, cached: 200, reasoning: 100, ...TIMES },
      },
      { model: 'llama', sums: { failed: 1, estimated: 1, prompt: 7, duration_ms: 2000 } },
    );
    expect(await usage()).toEqual({
      code: 0,
      err: '',
      out: [
        'MODEL        REQUESTS  FAILED  ESTIMATED  PROMPT_TOKENS  CACHED_TOKENS  COMPLETION_TOKENS  REASONING_TOKENS  AVERAGE_DURATION_MS  AVERAGE_TTFT_MS',
        'gpt-4o-mini         1       0          0           1200            200                300               100                 1000              200',
        'llama               1       1          1              7              0                  0                 0                 2000                -',
        'TOTAL               2       1          1           1207            200                300               100                 1500              200',
        '',
      ].join('\n'),
    });
  });

  test('has a cost column when anything had a price', async () => {
    await add({ sums: { priced: 1, cost: 1_234_567_891 } }, { model: 'free' });
    const [head, free, gpt, total] = await lines();
    expect(head).toMatch(/ COST /);
    expect(free).toMatch(/ - +0 +-$/);
    // Exact, so that the lines add up to the total.
    for (const line of [gpt, total]) expect(line).toContain(' 1.234567891 ');
    const told = JSON.parse((await usage('--json')).out);
    expect(told.totals.cost).toBe('1.234567891');
    expect(told.lines[0].cost).toBeNull();
    expect((await usage('--csv')).out).toContain(',1.234567891,');
  });

  test('reports an empty result, which is no failure', async () => {
    expect(await usage()).toEqual({
      code: 0,
      out: 'No usage from 2030-01-01T12:00Z to 2030-01-08T12:59Z.\n',
      err: '',
    });
    expect(JSON.parse((await usage('--json')).out)).toMatchObject({ lines: [], totals: { requests: 0 } });
    expect((await usage('--csv')).out).toMatch(/^model,requests,[a-z_,]+\r\n$/);
  });

  test('shows as many lines as are asked for, with the totals of all, and says that there are more', async () => {
    await add({ model: 'a' }, { model: 'b' }, { model: 'c' });
    const cut = await usage('--limit', '2', '--json');
    expect(JSON.parse(cut.out)).toMatchObject({
      lines: [{ model: 'a' }, { model: 'b' }],
      totals: { requests: 3 },
      truncated: true,
    });
    expect(cut.err).toBe('tollgate usage: only the first 2 lines are shown; the totals include all\n');
    const whole = await usage('--limit', '3', '--json');
    expect([JSON.parse(whole.out).truncated, whole.err]).toEqual([false, '']);
    for (const limit of ['0', '-1', '1.5', '100001', 'x', '1e3'])
      expect(await usage(`--limit=${limit}`)).toMatchObject({
        code: 2,
        err: expect.stringContaining('--limit is a whole number from 1 to 100000'),
      });
  });

  test('covers a week, some hours, or the time since a day', async () => {
    const hours = ['2029-12-31T23', '2030-01-01T11', '2030-01-01T12', '2030-01-08T11', '2030-01-08T12'];
    await add(...hours.map((hour) => ({ hour })));
    expect(await groups('--by', 'day')).toEqual([
      ['2030-01-01', 1],
      ['2030-01-08', 2],
    ]);
    expect(await groups('--since', '59m')).toEqual([['gpt', 2]]);
    expect(await groups('--since', '30m')).toEqual([['gpt', 1]]);
    expect(await groups('--since', '2030-01-01')).toEqual([['gpt', 4]]);
    expect(await groups('--since', '30d', '--by', 'hour')).toEqual(hours.map((hour) => [hour, 1]));
    const { from, to, by } = JSON.parse((await usage('--json')).out);
    expect({ from, to, by }).toEqual({
      from: '2030-01-01T12:00:00Z',
      to: '2030-01-08T12:00:00Z',
      by: 'model',
    });
  });

  test('covers the holder of any of its keys, or a tier', async () => {
    const [old, young] = [newKey('aaaaaaaa'), newKey('bbbbbbbb')];
    const added = await store.addKey(old, newHolder('Pro'), null);
    if (added.kind !== 'added') throw new Error(added.kind);
    const { holderId } = added.record;
    await store.rotateKey(added.record, young);
    await add({ holderId, prefix: 'aaaaaaaa' }, { holderId, prefix: 'bbbbbbbb' }, { holderId: 'other' });
    for (const prefix of ['aaaaaaaa', 'BBBBBBBB', `bbbbbbbb${'0'.repeat(24)}`]) {
      expect(await groups('--key', prefix, '--by', 'key')).toEqual([
        ['aaaaaaaa', 1],
        ['bbbbbbbb', 1],
      ]);
    }
    expect((await usage('--key', `bbbbbbbb${'0'.repeat(24)}`)).err).toMatch(
      /^Warning: a whole key was given/,
    );
    expect((await usage('--key', 'bbbbbbbb')).err).toBe('');
    expect(await groups('--holder', holderId)).toEqual([['gpt', 2]]);
    expect(await groups('--holder', 'bbbbbbbb')).toEqual([['gpt', 2]]);
    await add({ holderId, prefix: 'bbbbbbbb', tier: 'Pro' });
    expect(await groups('--tier', 'Pro')).toEqual([['gpt', 1]]);
    expect(await groups('--tier', 'Free')).toEqual([]);
    expect(await usage('--key', 'cccccccc')).toEqual({
      code: 1,
      out: '',
      err: 'tollgate usage: no key with this prefix\n',
    });
  });

  describe('by teams, months and labels', () => {
    const by = { actor: null, reason: null, at: '2030-01-01T00:00:00.000Z' };

    beforeEach(async () => {
      for (const [id, name] of [
        ['t1', 'search'],
        ['t2', 'Ads, "new"'],
        ['t3', 'gone'],
      ] as const)
        await store.organisation.addTeam(
          { id, name, terms: {} },
          by,
          id === 't1' ? { cost_center: '4711' } : {},
        );
      const priced = (cost: number) => ({ sums: { priced: 1, cost } });
      await add(
        { hour: '2029-12-31T23', teamId: 't1', ...priced(1) },
        { hour: '2030-01-01T00', teamId: 't1', ...priced(9_007_199_254_740_991) },
        { hour: '2030-01-02T00', teamId: 't1', prefix: 'ffff0000', ...priced(9_007_199_254_740_991) },
        { hour: '2030-01-03T00', teamId: 't2', model: 'b', ...priced(2_500_000) },
        { hour: '2030-01-04T00', teamId: 't3', model: 'free' },
        { hour: '2030-01-05T00' },
      );
      await store.organisation.removeTeam('t3', by);
    });

    const withCurrency = () =>
      writeFileSync(configFile, `currency: EUR\n${readFileSync(configFile, 'utf8')}`);

    test('has one line for each team, exact, also for removed ones', async () => {
      withCurrency();
      expect(await lines('--month', '2030-01', '--by', 'team')).toEqual([
        'TEAM        REQUESTS  FAILED  ESTIMATED  PROMPT_TOKENS  CACHED_TOKENS  COMPLETION_TOKENS  REASONING_TOKENS            COST_EUR  AVERAGE_DURATION_MS  AVERAGE_TTFT_MS',
        '-                  1       0          0              0              0                  0                 0                   -                    0  -',
        'Ads, "new"         1       0          0              0              0                  0                 0         0.002500000                    0  -',
        'gone               1       0          0              0              0                  0                 0                   -                    0  -',
        'search             2       0          0              0              0                  0                 0  18014398.509481982                    0  -',
        'TOTAL              5       0          0              0              0                  0                 0  18014398.511981982                    0  -',
      ]);
      const json = JSON.parse((await usage('--month', '2030-01', '--by', 'team,month', '--json')).out);
      expect(json).toMatchObject({
        from: '2030-01-01T00:00:00Z',
        to: '2030-01-31T23:00:00Z',
        by: 'team,month',
        currency: 'EUR',
        lines: [
          { team: '', team_id: '', month: '2030-01', cost: null },
          { team: 'Ads, "new"', team_id: 't2', cost: '0.002500000' },
          { team: 'gone', team_id: 't3', cost: null },
          { team: 'search', team_id: 't1', requests: 2, cost: '18014398.509481982' },
        ],
        totals: { requests: 5, cost: '18014398.511981982' },
      });
      const { out } = await usage('--month', '2030-01', '--by', 'team', '--csv');
      expect(out.split('\r\n')).toEqual([
        'team,team_id,requests,failed,estimated,prompt_tokens,cached_tokens,completion_tokens,reasoning_tokens,cost,average_duration_ms,average_ttft_ms,currency',
        ',,1,0,0,0,0,0,0,,0,,',
        '"Ads, ""new""",t2,1,0,0,0,0,0,0,0.002500000,0,,EUR',
        'gone,t3,1,0,0,0,0,0,0,,0,,',
        'search,t1,2,0,0,0,0,0,0,18014398.509481982,0,,EUR',
        '',
      ]);
    });

    test('filters by team, model and label, and groups by up to three of them', async () => {
      const told = async (...argv: string[]) => {
        const { lines: found } = JSON.parse((await usage('--json', '--since', '2029-12-01', ...argv)).out);
        return found.map((line: Record<string, unknown>) => [
          ...Object.values(line).slice(0, Object.keys(line).indexOf('requests')),
          line['requests'],
        ]);
      };
      expect(await told('--team', 'SEARCH', '--by', 'month,key')).toEqual([
        ['2029-12', '0123abcd', 1],
        ['2030-01', '0123abcd', 1],
        ['2030-01', 'ffff0000', 1],
      ]);
      expect(await told('--model', 'b', '--by', 'team,target,endpoint')).toEqual([
        ['Ads, "new"', 't2', 'gpt-1', 'chat', 1],
      ]);
      expect(await told('--by', 'label:cost_center')).toEqual([
        ['', 3],
        ['4711', 3],
      ]);
      expect(await told('--label', 'cost_center=47*', '--by', 'day', '--until', '2030-01-01')).toEqual([
        ['2029-12-31', 1],
        ['2030-01-01', 1],
      ]);
      expect(await told('--by', 'holder')).toEqual([['holder-1', '', 6]]);
    });

    test.each([
      [['--team', 'serach'], 'there is no team with this name (did you mean search?)'],
      [
        ['--by', 'label:cost_centre'],
        'no holder and no team has a label with this name (did you mean cost_center?)',
      ],
      [
        ['--label', 'cost-center=4711'],
        'no holder and no team has a label with this name (did you mean cost_center?)',
      ],
      [['--holder', 'nobody'], 'there is no holder with this id or key'],
      // `free` has usage, `echo` is in the configuration.
      [['--model', 'fere'], 'no model has this name, and none with usage had it (did you mean free?)'],
      [['--model', 'ehco'], 'no model has this name, and none with usage had it (did you mean echo?)'],
      [['--model', 'quite-another'], 'no model has this name, and none with usage had it'],
    ])('%j is an error with the nearest right name', async (argv, message) => {
      expect(await usage(...argv)).toEqual({ code: 1, out: '', err: `tollgate usage: ${message}\n` });
    });

    test('a model without usage is no error where the configuration has it, or where it had usage at another time', async () => {
      writeFileSync(
        configFile,
        readFileSync(configFile, 'utf8').replace(
          'models: {',
          'models: { "llama/*":' + ' { targets: [{ upstream: demo, model: "*" }] },',
        ),
      );
      for (const model of ['echo', 'llama/*', 'llama/3', 'b'])
        expect(await usage('--month', '2029-12', '--model', model)).toEqual({
          code: 0,
          out: 'No usage from 2029-12-01T00:00Z to 2029-12-31T23:59Z.\n',
          err: '',
        });
      expect((await usage('--month', '2029-12', '--model', 'llama/')).code).toBe(1);
    });

    test('an unknown group is wrong usage with the nearest right one', async () => {
      expect((await usage('--by', 'teem')).err).toMatch(/unknown group of --by: .*\(did you mean team\?\)/);
    });

    test('what is not kept is an error that says what is', async () => {
      await store.usage.forgetUsage('hours', '2030-01-02', 100);
      await store.usage.forgetUsage('days', '2030-01-01', 100);
      expect((await usage('--since', '2030-01-01', '--by', 'hour')).err).toContain('kept from 2030-01-02 on');
      expect((await usage('--since', '2029-12-15', '--by', 'model')).err).toContain(
        'kept from 2030-01-01 on',
      );
      expect((await usage('--month', '2029-12', '--by', 'day')).err).toContain('kept from 2030-01-01 on');
      expect(await groups('--month', '2029-12')).toEqual([['gpt', 1]]);
      expect(await groups('--since', '2029-12-01', '--by', 'month')).toEqual([
        ['2029-12', 1],
        ['2030-01', 5],
      ]);
      // The first day is whole where hours are gone.
      expect(await groups('--since', '7d')).toEqual([
        ['b', 1],
        ['free', 1],
        ['gpt', 3],
      ]);
    });
  });

  test('as CSV contains no formulas, and escapes commas, quotes and line feeds', async () => {
    const names = ['=1+1', '+1', '-1', '@x', 'a,"b"\nc', 'plain'];
    await add(...names.map((model) => ({ model })));
    const { out } = await usage('--csv');
    expect(out.endsWith('\r\n')).toBe(true);
    for (const shown of [`'=1+1,`, `'+1,`, `'-1,`, `'@x,`, `"a,""b""\nc",`, 'plain,']) {
      expect(out).toContain(`\r\n${shown}1,0,`);
    }
  });

  test('escapes terminal control characters in a table', async () => {
    await add({ model: 'a\u001b[31mred\u202e👩‍💻' });
    expect(await lines()).toEqual(
      expect.arrayContaining([expect.stringMatching(/^a\\u\{1b\}\[31mred\\u\{202e\}👩‍💻 /)]),
    );
  });

  test.each([
    [['--since', '7']],
    [['--since', '0d']],
    [['--since', '2030-02-30']],
    [['--since', '-7d']],
    [['--by', 'week']],
    [['--by', 'label']],
    [['--by', 'model,team,day,key']],
    [['--by', 'model,model']],
    [['--by', 'hour,team']],
    [['--by', 'hour', '--tier', 'Pro']],
    [['--month', '2030-13']],
    [['--month', '2030-1']],
    [['--month', '2030-02']],
    [['--month', '2029-12', '--since', '7d']],
    [['--until', '2030-01-07']],
    [['--since', '2030-01-05', '--until', '2030-01-04']],
    [['--since', '2030-01-05', '--until', '2d']],
    [['--since', '2030-01-09']],
    [['--holder', 'a', '--key', '0123abcd']],
    [['--label', 'x']],
    [['colse', '2029-12']],
    [['close']],
    [['close', '2029-12', '--reopen']],
    [['--tier', 'Gold']],
    [['--key', 'xyz']],
    [['--json', '--csv']],
    [['--modle', 'x']],
    [['extra']],
  ])('%j is wrong usage', async (argv) => {
    const { code, out, err } = await usage(...argv);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^(tollgate usage(?: close)?): .+; see \1 --help\n$/);
  });

  test('without a store or a configuration reports what is missing and creates nothing', async () => {
    writeFileSync(
      configFile,
      `store: sqlite:${dir.file('none.db')}\nupstreams: { d: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: d, model: m }] } }\n`,
    );
    expect(await usage()).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('there is no store at'),
    });
    expect(existsSync(dir.file('none.db'))).toBe(false);
    expect(await usage('--config', dir.file('none.yaml'))).toMatchObject({
      code: 1,
      err: expect.stringContaining('there is no such file'),
    });
  });

  test('--help prints the usage on stdout', async () => {
    expect(await usage('--help')).toMatchObject({
      code: 0,
      out: expect.stringContaining('--since <TIME>'),
      err: '',
    });
  });

  test('works as a process while another has the store open', async () => {
    await add({ hour: new Date().toISOString().slice(0, 13) });
    const script = fileURLToPath(new URL('./children/usage.ts', import.meta.url));
    await using child = startChild(script, ['--csv', '--config', configFile]);
    expect(await child.ended).toBe(0);
    expect(child.lines[1]).toMatch(/^gpt,1,/);
  });
});
