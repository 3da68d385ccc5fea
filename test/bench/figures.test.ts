// How the bench makes figures of rounds: medians, spread, and comparisons within a round; and how pages take them in.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { MEASUREMENTS } from '../../bench/all.ts';
import { withBlocks } from '../../bench/blocks.ts';
import { figureOf, quantile, rowsOf } from '../../bench/figures.ts';
import { type RecordedRun, readRuns, runsTable } from '../../bench/recorded-runs.ts';
import { merge } from '../../bench/report.ts';
import { tableOf } from '../../bench/section.ts';
import { judge } from '../../bench/targets.ts';
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

test('a target is met, missed or not measured', () => {
  const row = (name: string, field: string, value: number) => ({
    name,
    figures: { [field]: { median: value, min: value, max: value } },
  });
  const section = (id: string, each: ReturnType<typeof row>) => ({
    id,
    title: '',
    note: '',
    columns: [],
    rows: [each],
  });
  const met = judge([
    section('chunks', row('nginx', 'cpu_ratio', 2)),
    section('requests', row('nginx', 'cpu_ratio', 3.1)),
    section('many-streams', row('gateway', 'peak', 9_999)),
  ]).map((verdict) => [verdict.target.split(',')[0], verdict.met]);
  expect(met).toContainEqual(['CPU per streamed chunk', 'yes']);
  expect(met).toContainEqual(['CPU per JSON answer', 'no']);
  expect(met).toContainEqual(['Streams at once in one process', 'no']);
  expect(met).toContainEqual(['Added p50 at half of saturation', 'not measured']);
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

test('runs are shown side by side, with the number of those that met a target', () => {
  const run = (date: string, measured: number | null, met: RecordedRun['targets'][number]['met']) => ({
    date,
    machine: 'm',
    versions: 'v',
    commit: 'c',
    command: 'x',
    load: 0.1,
    targets: [{ target: 'CPU', limit: 'at most 3x', measured, met }],
    references: [{ name: 'nginx', measured: 12.345 }],
  });
  const table = runsTable([
    run('2026-01-01T00:00:00Z', 2.5, 'yes'),
    run('2026-01-02T00:00:00Z', 3.5, 'no'),
    run('2026-01-03T00:00:00Z', null, 'not measured'),
  ]);
  const cells = table.split('\n').map((line) => line.split('|').map((cell) => cell.trim()));
  expect(cells[0]).toEqual([
    '',
    'Run',
    'limit',
    '2026-01-01 00:00',
    '2026-01-02 00:00',
    '2026-01-03 00:00',
    'met',
    '',
  ]);
  expect(cells[2]).toEqual(['', 'CPU', 'at most 3x', '2.5', '3.5', '', '1 of 2', '']);
  expect(cells[3]).toEqual(['', 'nginx', '', '12.3', '12.3', '12.3', '', '']);
  expect(table).toContain('- 2026-01-02T00:00:00Z: m; v; commit c; load before it 0.1; `x`');
  expect(() => readRuns()).not.toThrow();
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
