import { describe, expect, test } from 'vitest';
import { oneOf, readArguments, UsageError } from '../../src/cli/arguments.ts';

const KINDS = { config: 'text', label: 'text', json: 'flag' } as const;
const read = (...argv: string[]) => readArguments(argv, KINDS, ['PREFIX']);

describe('arguments', () => {
  test('are parsed in any order, with = or without', () => {
    for (const argv of [
      ['--config', 'a.yaml', '--label=x y', 'p', '--json'],
      ['p', '--json', '--label', 'x y', '--config=a.yaml'],
    ]) {
      const given = read(...argv);
      expect([given.text('config'), given.text('label'), given.flag('json'), given.operands]).toEqual([
        'a.yaml',
        'x y',
        true,
        ['p'],
      ]);
    }
    const bare = read('p');
    expect([bare.text('config'), bare.flag('json')]).toEqual([undefined, false]);
  });

  test('after -- are operands', () => {
    expect(read('--', '--json').operands).toEqual(['--json']);
    expect(read('--', '--json').flag('json')).toBe(false);
  });

  test('can have a value that begins with a dash, after =', () => {
    expect(read('p', '--label=-x').text('label')).toBe('-x');
  });

  test.each([
    [['p', '--confg', 'x'], 'unknown option --confg (did you mean --config?)'],
    [['p', '--LABEL=x'], 'unknown option --LABEL (did you mean --label?)'],
    [['p', '--zzz'], 'unknown option --zzz'],
    [['p', '-j'], 'unknown option -j'],
    [['p', '--config'], '--config needs a value'],
    [['p', '--config='], '--config needs a value'],
    [
      ['p', '--config', '--json'],
      '--config needs a value; write a value that begins with a dash as --config=VALUE',
    ],
    [['p', '--json=yes'], '--json takes no value'],
    [['p', '--label', 'x', '--label', 'y'], '--label is given twice'],
    [[], 'PREFIX is missing'],
    [['p', 'q'], 'too many operands: only PREFIX is expected here'],
  ])('%j are rejected: %s', (argv, message) => {
    expect(() => read(...argv)).toThrow(new UsageError(message));
  });

  test('are not quoted when they could be a key', () => {
    const key = '0123456789abcdef'.repeat(2);
    for (const argv of [
      ['p', key],
      ['p', `--${key}`],
      ['p', '--label', 'x', `--label=${key}`],
    ]) {
      expect(() => read(...argv)).toThrow(UsageError);
      expect(() => read(...argv)).not.toThrow(new RegExp(key.slice(8)));
    }
  });
});

test('a choice must be a known one; otherwise the nearest is suggested', () => {
  expect(oneOf('Lite', ['Free', 'Lite'], 'tier')).toBe('Lite');
  expect(() => oneOf('lite', ['Free', 'Lite'], 'tier')).toThrow(
    new UsageError('unknown tier: it is one of Free, Lite (did you mean Lite?)'),
  );
  expect(() => oneOf('Gold', ['Free', 'Lite'], 'tier')).toThrow('it is one of Free, Lite');
});
