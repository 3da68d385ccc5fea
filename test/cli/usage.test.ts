import { existsSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runUsage } from '../../src/cli/usage-command.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
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
  store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

async function usage(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {} };
  const named = argv.includes('--config') ? argv : [...argv, '--config', configFile];
  const code = await runUsage(named, io, () => NOW);
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
        'MODEL        REQUESTS  FAILED  ESTIMATED  PROMPT  CACHED  COMPLETION  REASONING  AVG MS  TTFT MS',
        'gpt-4o-mini         1       0          0    1200     200         300        100    1000      200',
        'llama               1       1          1       7       0           0          0    2000        -',
        'TOTAL               2       1          1    1207     200         300        100    1500      200',
        '',
      ].join('\n'),
    });
  });

  test('has a cost column when anything had a price', async () => {
    await add({ sums: { priced: 1, cost: 1_234_567_891 } }, { model: 'free' });
    const [head, free, gpt, total] = await lines();
    expect(head).toMatch(/ COST /);
    expect([free, gpt, total].map((line) => /(\d+\.\d+)/.exec(line ?? '')?.[1])).toEqual([
      '0.000000',
      '1.234568',
      '1.234568',
    ]);
    const told = JSON.parse((await usage('--json')).out);
    expect(told.totals.cost).toBe(1.234567891);
    expect(told.lines[0]).not.toHaveProperty('cost');
    expect((await usage('--csv')).out).toContain(',1.234567891,');
  });

  test('reports an empty result, which is no failure', async () => {
    expect(await usage()).toEqual({ code: 0, out: 'No usage since 2030-01-01T12:00Z.\n', err: '' });
    expect(JSON.parse((await usage('--json')).out)).toMatchObject({ lines: [], totals: { requests: 0 } });
    expect((await usage('--csv')).out).toMatch(/^model,requests,[a-z_,]+\r\n$/);
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
    expect(await groups('--tier', 'Pro')).toEqual([['gpt', 2]]);
    expect(await groups('--tier', 'Lite')).toEqual([]);
    expect(await usage('--key', 'cccccccc')).toEqual({
      code: 1,
      out: '',
      err: 'tollgate usage: no key with this prefix\n',
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
    await add({ model: 'a\u001b[31mred\u202e' });
    expect(await lines()).toEqual(
      expect.arrayContaining([expect.stringMatching(/^a\\u\{1b\}\[31mred\\u\{202e\} /)]),
    );
  });

  test.each([
    [['--since', '7']],
    [['--since', '0d']],
    [['--since', '2030-02-30']],
    [['--since', '-7d']],
    [['--by', 'week']],
    [['--tier', 'Gold']],
    [['--key', 'xyz']],
    [['--json', '--csv']],
    [['--modle', 'x']],
    [['extra']],
  ])('%j is wrong usage', async (argv) => {
    const { code, out, err } = await usage(...argv);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^tollgate usage: .+\n\nUsage: tollgate usage /);
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
      out: expect.stringContaining('--since TIME'),
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
