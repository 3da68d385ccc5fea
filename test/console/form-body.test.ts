// Fields of forms and what they mean: words, and pairs of names and values, with spaces and quotes in them.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { quotedWord, readFormCall } from '../../src/console/pages/form-body.ts';

const bodyOf = (fields: Readonly<Record<string, string>>) => readFormCall(new URLSearchParams(fields)).body;

test.each([
  ['env=prod owner=ann', { env: 'prod', owner: 'ann' }],
  ['env=prod,owner=ann', { env: 'prod', owner: 'ann' }],
  ['dept="Human Resources, EU" env=prod', { dept: 'Human Resources, EU', env: 'prod' }],
  ['note="a=1 b=2"', { note: 'a=1 b=2' }],
  ['"dept=Human Resources"', { dept: 'Human Resources' }],
  ['size=5"disk', { size: '5"disk' }],
  ['path=C:\\x', { path: 'C:\\x' }],
  ['said="\\"yes\\" \\\\"', { said: '"yes" \\' }],
])('the labels %s', (text, labels) => {
  expect(bodyOf({ 'map.labels': text })).toEqual({ labels });
});

test('values and words are read as they were shown', () => {
  const texts = fc.array(fc.string({ unit: 'grapheme', maxLength: 200 }), { minLength: 1, maxLength: 5 });
  const odd = fc.array(fc.string({ unit: fc.constantFrom('"', '\\', ' ', ',', '=', 'a'), maxLength: 12 }), {
    minLength: 1,
  });
  fc.assert(
    fc.property(fc.oneof(texts, odd), (values) => {
      const labels = Object.fromEntries(values.map((value, at) => [`l${at}`, value]));
      const text = values.map((value, at) => `l${at}=${quotedWord(value)}`).join(' ');
      expect(bodyOf({ 'map.labels': text })).toEqual({ labels });
      expect(bodyOf({ 'list.models': values.map(quotedWord).join(' ') })).toEqual({ models: values });
    }),
  );
});

test.each(['a', '=x', 'a=1 b', 'dept=Human Resources', 'a=1 a=2', '__proto__=1'])('%s is wrong', (text) => {
  expect(() => bodyOf({ 'map.labels': text })).toThrow(/^labels: /);
});

test('a long text of quotes is read at once', () => {
  const text = `a=${'"\\'.repeat(16_000)}`;
  const start = performance.now();
  bodyOf({ 'map.labels': text });
  expect(performance.now() - start).toBeLessThan(2000);
});
