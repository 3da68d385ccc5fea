// How the bench makes figures of rounds: medians, spread, and comparisons within a round; and how pages take them in.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { chosen, MEASUREMENTS } from '../../bench/all.ts';
import { withBlocks } from '../../bench/blocks.ts';
import { figureOf, quantile, rowsOf } from '../../bench/figures.ts';
import { isWholeRun } from '../../bench/publish.ts';
import {
  addRun,
  completeRun,
  type RecordedRun,
  readRuns,
  runsTable,
  targetsOfRuns,
} from '../../bench/recorded-runs.ts';
import { merge } from '../../bench/report.ts';
import { tableOf } from '../../bench/section.ts';
import { blockOf, judge, TARGETS } from '../../bench/targets.ts';
import { busierShare, starvedKinds } from '../../bench/workers.ts';

test('a figure is the median of an odd and of an even number of rounds, with the spread', () => {
  expect(figureOf([3, 1, 2])).toEqual({ median: 2, min: 1, max: 3 });
  expect(figureOf([4, 1, 2, 3])).toEqual({ median: 2.5, min: 1, max: 4 });
});

test('a quantile is a value that occurred', () => {
  const values = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect(quantile(values, 0.5)).toBe(51);
  expect(quantile(values, 0.99)).toBe(100);
  expect(quantile(values, 1)).toBe(100);
  expect(quantile([], 0.5)).toBeNaN();
});

describe('comparisons', () => {
  const rounds = new Map([
    ['direct', [{ p50_ms: 1 }, { p50_ms: 2 }]],
    [
      'nginx',
      [
        { cpu_us: 10, p50_ms: 2 },
        { cpu_us: 20, p50_ms: 3 },
      ],
    ],
    [
      'gateway',
      [
        { cpu_us: 30, p50_ms: 4 },
        { cpu_us: 100, p50_ms: 6 },
      ],
    ],
  ]);
  const rows = rowsOf(rounds, { gatewayIs: { ratio: 'cpu_us' }, overDirect: { added: 'p50_ms' } });
  const of = (name: string) => rows.find((row) => row.name === name)?.figures;

  test('ratios and differences are taken within a round', () => {
    expect(of('nginx')?.['ratio']).toEqual({ median: 4, min: 3, max: 5 });
    expect(of('gateway')?.['added']).toEqual({ median: 3.5, min: 3, max: 4 });
  });

  test('nothing is compared with itself, or with what was not measured', () => {
    expect(of('gateway')?.['ratio']).toBeUndefined();
    expect(of('direct')?.['added']).toBeUndefined();
    expect(of('direct')?.['ratio']).toBeUndefined();
  });

  test('a table shows medians with their spread, and leaves out columns without figures', () => {
    const columns = [
      { field: 'ratio', heading: 'uses', digits: 1, unit: 'x' },
      { field: 'missing', heading: 'nothing', digits: 1 },
    ];
    expect(tableOf({ id: 'a', title: 'Name', note: '', columns, rows })).toBe(
      [
        '| Name    |           uses |\n',
        '| ------- | -------------: |\n',
        '| direct  |                |\n',
        '| nginx   | 4.0x (3.0–5.0) |\n',
        '| gateway |                |\n',
      ].join(''),
    );
  });
});

describe('targets', () => {
  const limit = { kind: 'at most', limit: 3, digits: 1, unit: 'x', at: ['a', 'b', 'c'] } as const;
  const figure = (median: number, min = median, max = median) => ({ median, min, max });

  test('a target is met, missed or not measured, by the median', () => {
    const target = { ...limit, text: 'CPU' };
    expect(judge(target, () => figure(3, 2, 4))).toEqual({
      text: 'CPU',
      limit: 'at most 3x',
      measured: '3.0x (2.0–4.0)',
      met: 'yes',
    });
    expect(judge(target, () => figure(3.01)).met).toBe('no');
    expect(judge(target, () => undefined)).toMatchObject({ measured: '', met: 'not measured' });
    expect(judge({ ...target, kind: 'at least' }, () => figure(2.99)).met).toBe('no');
  });

  test('every round has to meet a target that says so', () => {
    const target = { ...limit, text: 'CPU', everyRound: true };
    expect(judge(target, () => figure(2, 1, 3)).met).toBe('yes');
    expect(judge(target, () => figure(2, 1, 3.1)).met).toBe('no');
    expect(judge({ ...target, kind: 'at least' }, () => figure(4, 2.9, 5)).met).toBe('no');
  });

  test('one of two limits is enough', () => {
    const or = { kind: 'at least', limit: 95, digits: 0, unit: ' %', at: ['d', 'e', 'f'] } as const;
    const target = { ...limit, text: 'CPU', or };
    const found = (first: number | undefined, second: number | undefined) =>
      judge(target, ([section]) => {
        const value = section === 'a' ? first : second;
        return value === undefined ? undefined : figure(value);
      });
    expect(found(4, 95)).toEqual({
      text: 'CPU',
      limit: 'at most 3x; or at least 95 %',
      measured: '4.0x; 95 %',
      met: 'yes',
    });
    expect(found(3, 90).met).toBe('yes');
    expect(found(4, 90).met).toBe('no');
    expect(found(4, undefined).met).toBe('not measured');
    expect(found(undefined, 95).met).toBe('yes');
  });

  test('each is measured by a command of `npm run bench:all`', () => {
    const blocks = new Set(MEASUREMENTS.flatMap((each) => each.blocks));
    for (const target of TARGETS) expect(blocks).toContain(blockOf(target));
  });
});

test('figures go into their block of a page and nowhere else', () => {
  const page = 'a\n<!-- figures one -->\nold\n<!-- end -->\nb\n<!-- figures two -->\nkept\n<!-- end -->\n';
  const filled = withBlocks(page, { one: 'new\n' });
  expect(filled).toBe(
    'a\n<!-- figures one -->\n\nnew\n\n<!-- end -->\nb\n<!-- figures two -->\nkept\n<!-- end -->\n',
  );
  expect(withBlocks(filled, { one: 'new' })).toBe(filled);
  expect(() => withBlocks(page, { three: 'x' })).toThrow(/three/);
});

describe('runs in parts', () => {
  const section = (id: string, note: string) => ({ id, title: id, note, columns: [], rows: [] });
  const report = (command: string, commit: string, sections: readonly ReturnType<typeof section>[]) => ({
    command,
    machine: 'm',
    versions: 'v',
    commit,
    date: '2026-01-01T00:00:00Z',
    rounds: 5,
    seconds: 4,
    sections,
  });
  const earlier = report('first', 'c', [section('a', 'old'), section('b', 'old')]);

  test('what was measured before stays, in its place, where the commit is the same', () => {
    const merged = merge(earlier, report('second', 'c', [section('c', 'new'), section('a', 'new')]), [
      'a',
      'b',
      'c',
    ]);
    expect(merged.sections.map(({ id, note }) => `${id} ${note}`)).toEqual(['a new', 'b old', 'c new']);
    expect(merged.command).toBe('first; second');
  });

  test('it goes where the commit is another, or the file is none', () => {
    const measured = report('second', 'd', [section('b', 'new')]);
    expect(merge(earlier, measured, ['a', 'b'])).toEqual(measured);
    expect(merge(undefined, measured, ['a', 'b'])).toEqual(measured);
  });
});

test('every block of figures of docs/performance.md has its command in `npm run bench:all`, and the other way round', () => {
  const page = readFileSync(new URL('../../docs/performance.md', import.meta.url), 'utf8');
  const blocks = Array.from(page.matchAll(/<!-- figures (\S+) -->/g), ([, name]) => name);
  expect(MEASUREMENTS.flatMap((each) => each.blocks).toSorted()).toEqual(blocks.toSorted());
});

describe('recorded runs', () => {
  const run = (date: string, figures: RecordedRun['figures'], block = 'targets'): RecordedRun => ({
    block,
    date,
    machine: 'm',
    versions: 'v',
    commit: 'c',
    command: 'x',
    load: 0.1,
    figures,
  });
  const figure = (median: number) => ({ median, min: median, max: median });
  const ratio = (value: number) => ({ 'requests/nginx/cpu_ratio': figure(value) });
  const cells = (table: string) =>
    table.split('\n').map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );

  test('a target shows what the last run of its command measured, and in how many runs it was met', () => {
    const rows = cells(
      targetsOfRuns([
        run('2026-01-01T00:00:00Z', ratio(2.5)),
        run('2026-01-02T00:00:00Z', ratio(3.5)),
        run('2026-01-03T00:00:00Z', { 'replicas/1 replica/of_one': figure(1.1) }, 'replicas'),
      ]),
    );
    expect(rows[0]).toEqual(['Target', 'limit', 'measured', 'met', 'in runs', 'figure']);
    expect(rows).toContainEqual([
      "CPU per JSON answer, 64 connections, of nginx's",
      'at most 3x',
      '3.50x',
      'no',
      '1 of 2',
      '`requests` of RESULTS.md',
    ]);
    const replica = rows.find(([text]) => text?.startsWith('CPU per request of a replica'));
    expect(replica?.slice(1)).toEqual(['at most 1.15x', '1.10x', 'yes', '1 of 1', 'block `replicas`']);
    const workers = rows.find(([text]) => text?.startsWith('Throughput of two workers'));
    expect(workers?.slice(2)).toEqual(['', 'not measured', '0 of 0', 'block `workers`']);
  });

  test('references are shown side by side, with where each run was', () => {
    const table = runsTable([
      run('2026-01-01T00:00:00Z', { 'requests/nginx/cpu_us': figure(12.345) }),
      run('2026-01-02T00:00:00Z', {}),
      run('2026-01-03T00:00:00Z', {}, 'workers'),
    ]);
    const rows = cells(table);
    expect(rows[0]).toEqual(['References', '2026-01-01 00:00', '2026-01-02 00:00']);
    expect(rows).toContainEqual(['CPU µs per JSON answer, nginx', '12.3', '']);
    expect(rows).toContainEqual(['2026-01-03T00:00:00Z', 'workers', 'c', '0.1', 'm; v', '`x`']);
    expect(runsTable([])).toBe('No run has been recorded.\n');
    expect(() => readRuns()).not.toThrow();
  });

  test('a run has the figures of its targets, and what it could not measure is added where all else is alike', () => {
    const section = (id: string, value: number) => ({
      id,
      title: '',
      note: '',
      columns: [],
      rows: [{ name: 'nginx', figures: { cpu_ratio: figure(value), other: figure(1) } }],
    });
    const where = { machine: 'm', versions: 'v', commit: 'c', date: '2026-01-01T00:00:00Z' };
    const asked = { block: 'targets', command: 'x', load: 0.1, sections: [section('requests', 2.5)] };
    const runs = addRun([run(where.date, {}, 'workers')], asked, where);
    expect(runs.slice(1)).toEqual([run(where.date, ratio(2.5))]);
    const later = [section('requests', 9), section('chunks', 1.9)];
    expect(completeRun(runs, 'targets', later, where)?.slice(1)).toEqual([
      run(where.date, { ...ratio(2.5), 'chunks/nginx/cpu_ratio': figure(1.9) }),
    ]);
    expect(completeRun(runs, 'targets', later, { ...where, commit: 'd' })).toBeUndefined();
    expect(completeRun(runs, 'replicas', later, where)).toBeUndefined();
  });

  test('a run is whole with lengths that are the default ones or longer', () => {
    expect(isWholeRun({ rounds: 5, seconds: 3 }, { rounds: 5, seconds: 3 })).toBe(true);
    expect(isWholeRun({ rounds: 6, seconds: 2 }, { rounds: 5, seconds: 3 })).toBe(false);
    expect(isWholeRun({ rounds: 6 }, { rounds: 5, seconds: 3 })).toBe(false);
  });
});

test('blocks choose the commands of `npm run bench:all`', () => {
  const names = (...asked: Parameters<typeof chosen>) => chosen(...asked).map(({ blocks }) => blocks[0]);
  expect(names()).toHaveLength(MEASUREMENTS.length);
  expect(names('growth-young')).toEqual(['growth-bodies', 'console', 'many-streams']);
  expect(names(undefined, 'workers,peers')).toEqual(['targets', 'workers']);
  expect(names('profile-chunk', undefined, 'growth-chunks')).toEqual([
    'profile-chunk',
    'console',
    'many-streams',
  ]);
  expect(() => chosen('nothing')).toThrow('no command writes the block nothing');
});

test('a kind whose processes do not use their quota is starved', () => {
  const samples = new Map([
    ['full', { used_percent: 15.4 }],
    ['nearly', { used_percent: 13.5 }],
    ['short', { used_percent: 13.4 }],
    ['unknown', {}],
  ]);
  expect(starvedKinds(samples, 15)).toEqual(['short', 'unknown']);
});

test('the share of the busier worker is read from the access log', () => {
  const line = (worker: number) => `{"level":30,"worker":${worker},"msg":"request"}\n`;
  expect(busierShare(`${line(1)}${line(2)}${line(2)}{"msg":"of the primary"}\n${line(2)}`)).toBe(75);
  expect(busierShare('')).toBeNaN();
});
