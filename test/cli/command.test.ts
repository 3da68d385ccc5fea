// Definitions of commands: what they accept, and their errors, which are one line and quote no values.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { countUpTo, oneOf, UsageError } from '../../src/cli/program/arguments.ts';
import {
  choice,
  command,
  flag,
  type Given,
  group,
  list,
  type Options,
  required,
  text,
} from '../../src/cli/program/command.ts';
import { type Program, runCommandLine } from '../../src/cli/program/command-line.ts';
import { collector } from './collector.ts';

const OPTIONS = {
  config: text('FILE', 'a file'),
  label: list('LABEL', 'a label'),
  tier: choice(['Free', 'Lite'], 'TIER', 'a tier'),
  name: text('TEXT', 'a name', ['noName']),
  noName: flag('no name'),
  unusedSince: text('TIME', 'a time'),
  json: flag('JSON'),
} as const;

let given: { readonly options: Given<Options>; readonly operand: string } | undefined;

const spec = { options: OPTIONS, examples: ['things show abc'] } as const;
const run = async (options: Given<typeof OPTIONS>, _io: unknown, operand: string) => {
  given = { options, operand };
  return undefined;
};
const own = command('reports', 'a command', { ...spec, run });
const things = command('things', 'a command', { ...spec, run });
const PROGRAM: Program = {
  version: '1.2.3',
  about: 'a program',
  entries: [
    {
      name: 'things',
      about: 'things',
      load: async () =>
        group('things', 'things', [
          command('show', 'a command', { ...spec, operand: { name: 'PREFIX', about: 'a prefix' }, run }),
          command('maybe', 'a command', {
            ...spec,
            operand: { name: 'WORD', about: 'a word', isOptional: true },
            run,
          }),
          command('move', 'a command', {
            ...spec,
            options: { to: required(choice(['a', 'b'], 'PLACE', 'where to')) },
            run: async () => 3,
          }),
          command('fail', 'a command', {
            ...spec,
            options: {},
            run: async () => {
              throw new Error('no luck', { cause: new Error('the cause') });
            },
          }),
        ]),
    },
    { name: 'reports', about: 'reports', load: async () => group('reports', 'reports', [things], own) },
  ],
};

async function tollgate(...argv: readonly string[]) {
  given = undefined;
  const [out, err] = [collector(), collector()];
  const code = await runCommandLine(PROGRAM, argv, { stdout: out.stream, stderr: err.stream, env: {} });
  return { code, out: out.text(), err: err.text() };
}

const show = (...argv: readonly string[]) => tollgate('things', 'show', ...argv);

describe('options', () => {
  test('are parsed in any order, with = or without', async () => {
    for (const argv of [
      ['--config', 'a.yaml', '--label=x y', 'p', '--json', '--unused-since', '30d'],
      ['p', '--json', '--unused-since=30d', '--label', 'x y', '--config=a.yaml'],
    ]) {
      expect(await show(...argv)).toEqual({ code: 0, out: '', err: '' });
      const options = { config: 'a.yaml', label: ['x y'], json: true, noName: false, unusedSince: '30d' };
      expect(given).toEqual({ operand: 'p', options });
    }
    await show('p');
    expect(given?.options).toEqual({ label: [], json: false, noName: false });
  });

  test('that are lists keep their order', async () => {
    await show('p', '--label', 'b', '--label=a', '--label', 'b');
    expect(given?.options['label']).toEqual(['b', 'a', 'b']);
  });

  test('have any value after =, also one that begins with a dash or has line breaks', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ minLength: 1, unit: 'binary' }), async (value) => {
        expect(await show('p', `--name=${value}`)).toMatchObject({ code: 0 });
        expect(given?.options['name']).toBe(value);
      }),
    );
  });

  test('behind -- are operands', async () => {
    expect(await show('--', '--json')).toMatchObject({ code: 0 });
    expect(given).toMatchObject({ operand: '--json', options: { json: false } });
  });

  test('a dash alone is a value', async () => {
    await show('p', '--config', '-');
    expect(given?.options['config']).toBe('-');
  });

  test('that begin with no- are their own', async () => {
    await show('p', '--no-name');
    expect(given?.options).toEqual({ label: [], json: false, noName: true });
  });
});

describe('wrong usage', () => {
  test.each([
    [['p', '--confg', 'x'], 'unknown option --confg (did you mean --config?)'],
    [['p', '--LABEL=x'], 'unknown option --LABEL (did you mean --label?)'],
    [['p', '--unusedSince', 'x'], 'unknown option --unusedSince (did you mean --unused-since?)'],
    [['p', '--zzz'], 'unknown option --zzz'],
    [['p', '--\u001b[2J'], 'unknown option'],
    [['p', '--hlep'], 'unknown option --hlep (did you mean --help?)'],
    [['p', '-j'], 'unknown option -j'],
    [['p', '--config'], '--config needs a value'],
    [['p', '--config='], '--config needs a value'],
    [
      ['p', '--config', '--json'],
      '--config needs a value; write a value that begins with a dash as --config=VALUE',
    ],
    [['p', '--json=yes'], '--json takes no value'],
    [['p', '--config', 'x', '--config', 'y'], '--config is given twice'],
    [['p', '--json', '--json'], '--json is given twice'],
    [['p', '--name', 'x', '--no-name'], 'give either --name or --no-name'],
    [['p', '--tier', 'lite'], 'unknown tier: it is one of Free, Lite (did you mean Lite?)'],
    [[], 'PREFIX is missing'],
    [['p', 'q'], 'too many operands: only PREFIX is expected here'],
  ])('%j: %s', async (argv, message) => {
    const err = `tollgate things show: ${message}; see tollgate things show --help\n`;
    expect(await show(...argv)).toEqual({ code: 2, out: '', err });
    expect(given).toBeUndefined();
  });

  test.each([
    [['thing'], 'tollgate', 'unknown command (did you mean things?)'],
    [['--jsn', 'things'], 'tollgate', 'unknown option --jsn'],
    [['things'], 'tollgate things', 'a command is missing'],
    [['things', 'shwo'], 'tollgate things', 'unknown command (did you mean show?)'],
    [['things', '--json', 'show'], 'tollgate things', 'unknown option --json'],
    [['things', 'move'], 'tollgate things move', '--to is missing'],
    [
      ['things', 'move', 'x', '--to', 'a'],
      'tollgate things move',
      'too many operands: no operand is expected here',
    ],
    [['reports', 'thing'], 'tollgate reports', 'unknown command (did you mean things?)'],
    [
      ['reports', '--config', 'x', 'things'],
      'tollgate reports',
      'options are given behind the command: reports things OPTIONS',
    ],
  ])('%j: %s: %s', async (argv, path, message) => {
    expect(await tollgate(...argv)).toEqual({
      code: 2,
      out: '',
      err: `${path}: ${message}; see ${path} --help\n`,
    });
  });

  test('does not quote what could be a key', async () => {
    const key = '0123456789abcdef'.repeat(2);
    for (const part of [key, key.slice(0, 31), `sk-${key}`, key.toUpperCase()])
      for (const argv of [
        [part],
        ['things', part],
        ['things', 'show', 'p', part],
        ['things', 'show', 'p', `--${part}`],
        ['things', 'show', 'p', '--config', 'x', `--config=${part}`],
        ['things', 'show', 'p', `--confg=${part}`],
        ['things', 'show', 'p', '--tier', part],
        ['reports', part],
        ['help', part],
      ]) {
        const { code, out, err } = await tollgate(...argv);
        expect([argv, code === 2 || argv[0] === 'help']).toEqual([argv, true]);
        expect((out + err).toLowerCase()).not.toContain(key.slice(8, 24));
      }
  });
});

describe('help', () => {
  test.each([
    [['things', 'show', '--help'], 'things show'],
    [['things', 'show', '-h'], 'things show'],
    [['things', 'show', 'p', '--tier', 'none', '--help'], 'things show'],
    [['help', 'things', 'show'], 'things show'],
    [['things', '--help'], 'things'],
    [['things', '--zzz', '-h'], 'things'],
    [['help', 'reports'], 'reports'],
    [['things', 'help'], 'things'],
    [['reports', '--json', '--help'], 'reports'],
  ])('%j', async (argv, path) => {
    const { code, out, err } = await tollgate(...argv);
    expect([code, err, out.split('\n')[0]]).toEqual([
      0,
      '',
      expect.stringMatching(`^Usage: tollgate ${path} `),
    ]);
    expect(given).toBeUndefined();
  });

  test('shows choices, options in dashes and examples', async () => {
    const { out } = await show('--help');
    expect(out).toContain('a tier: Free, Lite\n');
    expect(out).toContain('--unused-since <TIME>');
    expect(out).toMatch(/\nExamples:\n {2}tollgate things show abc\n$/);
  });
});

test('a command gives its exit code; a failed one 1 and its error with the cause', async () => {
  expect(await tollgate('things', 'move', '--to', 'b')).toEqual({ code: 3, out: '', err: '' });
  expect(await tollgate('things', 'maybe')).toEqual({ code: 0, out: '', err: '' });
  expect(given?.operand).toBe('');
  expect(await tollgate('things', 'fail')).toEqual({
    code: 1,
    out: '',
    err: 'tollgate things fail: no luck (the cause)\n',
  });
  for (const argv of [['--version'], ['-v']])
    expect(await tollgate(...argv)).toEqual({ code: 0, out: '1.2.3\n', err: '' });
});

test('a choice must be a known one; otherwise the nearest is suggested', () => {
  expect(oneOf('Lite', ['Free', 'Lite'], 'tier')).toBe('Lite');
  expect(() => oneOf('lite', ['Free', 'Lite'], 'tier')).toThrow(
    new UsageError('unknown tier: it is one of Free, Lite (did you mean Lite?)'),
  );
  expect(() => oneOf('Gold', ['Free', 'Lite'], 'tier')).toThrow('it is one of Free, Lite');
});

test('a count is a whole number in digits, from 1 to its maximum', () => {
  const read = countUpTo(1000, '--limit');
  expect(['1', '007', '1000'].map(read)).toEqual([1, 7, 1000]);
  for (const text of ['0', '-1', '1.5', '1e2', '0x10', ' 5', '5 ', '', '1001', '9'.repeat(30), 'x'])
    expect(() => read(text), text).toThrow('--limit is a whole number from 1 to 1000');
});
