// New contents of files that the configuration refers to: which are taken, together or alone, and what stays of the others.
import { describe, expect, test } from 'vitest';
import { ReferencedFiles } from '../../src/config/source/referenced-files.ts';

const BAD = { faults: ['bad'] };

/** A configuration that takes a certificate only with its own key, and nothing that is called bad. */
function started(before: Record<string, string>) {
  const files = new ReferencedFiles('/nowhere/config.yaml', before);
  const inForce = () => files.contents(Object.keys(before));
  let attempts = 0;
  const apply = () => {
    attempts += 1;
    const values = inForce();
    const isPair = values['cert']?.slice(-1) === values['key']?.slice(-1);
    return isPair && !Object.values(values).some((value) => value.startsWith('bad')) ? undefined : BAD;
  };
  return {
    inForce,
    attempts: () => attempts,
    update: (contents: Record<string, string>) =>
      Object.fromEntries(
        Array.from(
          files.update(
            new Map(Object.entries(contents).map(([path, text]) => [path, Buffer.from(text)])),
            apply,
          ),
          ([path, { kind }]) => [path, kind],
        ),
      ),
  };
}

const PAIR = { cert: 'cert-1', key: 'key-1', other: 'other-1', third: 'third-1' };

describe('new contents', () => {
  test('that are good only together are taken together, with one reading of the configuration', () => {
    const files = started(PAIR);
    expect(files.update({ cert: 'cert-2', key: 'key-2' })).toEqual({ cert: 'changed', key: 'changed' });
    expect(files.inForce()).toEqual({ ...PAIR, cert: 'cert-2', key: 'key-2' });
    expect(files.attempts()).toBe(1);
  });

  test('of which one belongs to a content that is not there yet are not taken', () => {
    const files = started(PAIR);
    expect(files.update({ cert: 'cert-2' })).toEqual({ cert: 'refused' });
    expect(files.inForce()).toEqual(PAIR);
    expect(files.update({ cert: 'cert-2', key: 'key-2' })).toEqual({ cert: 'changed', key: 'changed' });
  });

  test.each([
    ['other', 'third'],
    ['third', 'other'],
  ])('are taken although %s, which changed with them, is bad', (bad, good) => {
    const files = started(PAIR);
    const changes = { [bad]: 'bad', [good]: 'good-2', cert: 'cert-2', key: 'key-2' };
    expect(files.update(changes)).toEqual({
      [bad]: 'refused',
      [good]: 'changed',
      cert: 'changed',
      key: 'changed',
    });
    expect(files.inForce()).toEqual({ ...PAIR, [good]: 'good-2', cert: 'cert-2', key: 'key-2' });
  });

  test('that are empty, too long, not UTF-8 or the same as before are told apart', () => {
    const files = started(PAIR);
    expect(files.update({ cert: ' ', key: 'key-1\n', other: 'x'.repeat(1e6) })).toEqual({
      cert: 'unreadable',
      key: 'unchanged',
      other: 'unreadable',
    });
    expect(files.attempts()).toBe(0);
  });

  test('of many files are tried alone if one is bad, so that the configuration is not read hundreds of times', () => {
    const names = Array.from({ length: 40 }, (_, index) => `file-${index}`);
    const before = Object.fromEntries(names.map((each) => [each, 'good-1']));
    const files = started(before);
    const changes = Object.fromEntries(names.map((each, index) => [each, index === 7 ? 'bad' : 'good-2']));
    const kinds = Object.values(files.update(changes));
    expect(kinds.filter((kind) => kind === 'refused')).toHaveLength(1);
    expect(files.attempts()).toBe(41);
  });
});
