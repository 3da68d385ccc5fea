// Failures are booked under the model that was asked for, and invented names do not become rows without end.
import { expect, test } from 'vitest';
import { ModelNames } from '../../src/usage/records/model-names.ts';

const failed = (model: string) => ({ model, entry: 'any/*', outcome: 'upstream_error' });
const ok = (model: string) => ({ ...failed(model), outcome: 'ok' });

test('a failure is booked under the name that was asked for', () => {
  const names = new ModelNames();
  expect(names.nameOf(failed('any/new'))).toBe('any/new');
  expect(names.nameOf(ok('any/new'))).toBe('any/new');
  expect(names.nameOf({ model: 'gpt', outcome: 'upstream_error' })).toBe('gpt');
});

test('beyond a thousand unknown names, failures are booked under the pattern, and known names under their own', () => {
  const names = new ModelNames();
  names.nameOf(ok('any/good'));
  const booked = new Set(
    Array.from({ length: 5000 }, (_, index) => names.nameOf(failed(`any/invented-${index}`))),
  );
  expect(booked.size).toBe(1001);
  expect(booked).toContain('any/*');
  expect(names.nameOf(failed('any/good'))).toBe('any/good');
  expect(names.nameOf(failed('any/invented-7'))).toBe('any/invented-7');
  expect(names.nameOf(failed('any/another'))).toBe('any/*');
  // An upstream accepts it after all.
  expect(names.nameOf(ok('any/another'))).toBe('any/another');
  expect(names.nameOf(failed('any/another'))).toBe('any/another');
});
