// Tables: whole in pipes, at most as wide as the terminal, names of columns as in JSON.
import { execFileSync } from 'node:child_process';
import { Writable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { tableOf as linesOf, writeList } from '../../src/cli/program/table.ts';
import { hasColors } from '../../src/cli/program/terminal.ts';
import { collector } from './collector.ts';

function terminal(columns: number, env: NodeJS.ProcessEnv = { NO_COLOR: '1' }) {
  return { stdout: Object.assign(new Writable(), { isTTY: true, columns }), env };
}
const tableOf = (...given: Parameters<typeof linesOf>) => `${linesOf(...given).join('\n')}\n`;
const PIPE = { stdout: new Writable(), env: {} };
const LONG = 'a reason with more words than a line has';

describe('a table', () => {
  test('has texts on the left, numbers on the right and a dash for what is missing', () => {
    const rows = [
      ['a', 1, null, { decimal: '0.50' }],
      ['bcd', 200n, 'x', { decimal: '12.00' }],
    ] as const;
    expect(tableOf(['name', 'requests', 'at', 'cost'], rows, PIPE)).toBe(
      'NAME  REQUESTS  AT   COST\na            1  -    0.50\nbcd        200  x   12.00\n',
    );
    expect(tableOf(['name', 'holders'], [], PIPE)).toBe('NAME  HOLDERS\n');
  });

  test('is whole in a pipe, and cut at a terminal, the widest column first', () => {
    const rows = [['abcdefgh', LONG, LONG]];
    expect(tableOf(['id', 'reason', 'note'], rows, PIPE)).toContain(`abcdefgh  ${LONG}  ${LONG}\n`);
    expect(tableOf(['id', 'reason', 'note'], rows, terminal(40))).toBe(
      'ID        REASON          NOTE\nabcdefgh  a reason with…  a reason with…\n',
    );
  });

  test('says at a narrow terminal which records it lists, and how they are', () => {
    const names = ['prefix', 'state', 'tier', 'created_at', 'holder', 'holder_name', 'name'];
    const rows = [['0123abcd', 'active', 'Pro', LONG, LONG, LONG, LONG]];
    const [, line = ''] = linesOf(names, rows, terminal(40, { FORCE_COLOR: '1' }));
    expect(line).toContain('0123abcd  ');
    expect(stripVTControlCharacters(line)).toHaveLength(40);
    // Green, although it is cut.
    expect(line).toContain('\u001b[32ma');
    expect(line).not.toContain('active');
  });

  test('cuts no number, and leaves out columns of nothing where it is too wide', () => {
    const rows = [['model', 123456789012n, 0, 123456789012n, null]];
    const names = ['model', 'prompt_tokens', 'failed', 'completion_tokens', 'cost'];
    expect(tableOf(names, rows, terminal(34))).toBe(
      'MODEL  PROMPT_TOKENS  COMPLETION_…\nmodel   123456789012  123456789012\n',
    );
    expect(tableOf(names, rows, PIPE)).toMatch(/FAILED.*COST/);
  });

  test('counts wide characters as two columns, and escapes controls', () => {
    const rows = [
      ['日本語', 'x'],
      ['a\u001b[31m\u202eb', 'y'],
      ['👩‍👩‍👧e\u0301', 'z'],
    ];
    expect(tableOf(['name', 'id'], rows, PIPE).split('\n')).toEqual([
      `NAME${' '.repeat(18)}ID`,
      `日本語${' '.repeat(16)}x`,
      `a\\u{1b}[31m\\u{202e}b${' '.repeat(2)}y`,
      `👩‍👩‍👧e\u0301${' '.repeat(19)}z`,
      '',
    ]);
  });

  test('is never wider than a terminal that has room for one letter of each text', () => {
    const cell = fc.oneof(fc.string({ maxLength: 60, unit: 'grapheme' }), fc.constant(null));
    const rows = fc.array(fc.tuple(cell, cell, cell), { maxLength: 5 });
    fc.assert(
      fc.property(rows, fc.integer({ min: 10, max: 100 }), (cells, columns) => {
        const lines = tableOf(['first', 'second', 'third'], cells, terminal(columns)).split('\n');
        // Wide characters take two columns, so no line has more characters than columns.
        for (const line of lines)
          expect([...new Intl.Segmenter().segment(line)].length).toBeLessThanOrEqual(columns);
      }),
    );
  });
});

describe('a list', () => {
  const page =
    (items: readonly number[]) =>
    async (limit: number, after: number | undefined): Promise<readonly number[]> =>
      items.filter((item) => item > (after ?? -1)).slice(0, limit);
  const run = async (count: number, isJson: boolean) => {
    const out = collector();
    const io = { stdout: out.stream, stderr: out.stream, env: {} };
    const items = Array.from({ length: count }, (_, index) => index);
    await writeList(
      io,
      isJson,
      page(items),
      (id) => ({ id }),
      ['id', 'name'],
      (item) => ({ name: `n${item}` }),
    );
    return out.text();
  };

  test.each([0, 1, 499, 500, 501, 1203])('of %i items is whole, and valid JSON', async (count) => {
    expect(JSON.parse(await run(count, true))).toHaveLength(count);
    const lines = (await run(count, false)).trimEnd().split('\n');
    expect(lines).toHaveLength(count + 1);
    expect(lines.filter((line) => line.includes('NAME'))).toHaveLength(1);
  });
});

describe('colours', () => {
  const at = (isTTY: boolean, env: NodeJS.ProcessEnv) =>
    hasColors({ stdout: Object.assign(new Writable(), { isTTY }), env });

  test.each<[boolean, boolean, NodeJS.ProcessEnv]>([
    [true, true, {}],
    [false, false, {}],
    [false, true, { NO_COLOR: '1' }],
    [true, true, { NO_COLOR: '' }],
    [false, true, { NO_COLOR: '1', FORCE_COLOR: '1' }],
    [true, false, { FORCE_COLOR: '1' }],
    [true, false, { FORCE_COLOR: '' }],
    [false, true, { FORCE_COLOR: '0' }],
    [false, true, { TERM: 'dumb' }],
  ])('%s at a terminal (%s) with %j', (expected, isTTY, env) => expect(at(isTTY, env)).toBe(expected));

  test('are those of states and of the head, and change no text', () => {
    const rows = [
      ['active', 'active'],
      ['revoked', 'x'],
    ];
    const plain = tableOf(['state', 'name'], rows, PIPE);
    const colored = tableOf(['state', 'name'], rows, terminal(80, {}));
    expect(stripVTControlCharacters(colored)).toBe(plain);
    expect(colored).toContain('\u001b[32mactive\u001b[39m   active\n');
    expect(colored).toContain('\u001b[31mrevoked\u001b[39m');
    expect(colored.split('\n')[0]).toBe('\u001b[1mSTATE    NAME\u001b[22m');
    expect(plain).not.toContain('\u001b');
  });

  test('of help are only at a terminal', () => {
    const help = (...env: readonly string[]) =>
      execFileSync('env', [...env, process.execPath, 'src/main.ts', '--help'], { encoding: 'utf8' });
    expect(help('-u', 'FORCE_COLOR')).not.toContain('\u001b');
    expect(help('-u', 'NO_COLOR', 'FORCE_COLOR=1')).toContain('\u001b[1mUsage:\u001b[22m');
  });
});
