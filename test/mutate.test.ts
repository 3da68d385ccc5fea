// The changes that `npm run mutate` makes: of behaviour alone, and the same for the same seed.
import { expect, test } from 'vitest';
import { mutationsOf, sampleOf } from '../tools/mutate.ts';

const SOURCE = `import { a } from 'a';
/** Text with === and 7. */
export function f(n: number, isOn = true): string | 3 {
  if (n < 2 && isOn) return;
  call(n);
  logger.info('n + 1');
  return n === 4 ? 'x' : 'a' + n;
}
`;

function changed(source: string): string[] {
  return mutationsOf('src/f.ts', source).map(
    ({ start, end, text }) => `${source.slice(start, end)} → ${text}`,
  );
}

test('conditions, operators, constants, early returns and calls are changed; types, comments and log lines are not', () => {
  expect(changed(SOURCE).sort()).toEqual(
    [
      'true → false',
      'n < 2 && isOn → !(n < 2 && isOn)',
      '&& → ||',
      '< → <=',
      '2 → (2 + 1)',
      'return; → ;',
      'call(n); → ;',
      'n === 4 → !(n === 4)',
      '=== → !==',
      '4 → (4 + 1)',
    ].sort(),
  );
});

test('each change leaves a text that parses', () => {
  for (const { start, end, text } of mutationsOf('src/f.ts', SOURCE))
    expect(() => mutationsOf('src/f.ts', SOURCE.slice(0, start) + text + SOURCE.slice(end))).not.toThrow();
});

test('the same seed makes the same sample, without repetition', () => {
  const files = new Map([['src/f.ts', SOURCE]]);
  const sample = sampleOf(files, 6, 7);
  expect(sampleOf(files, 6, 7)).toEqual(sample);
  expect(sampleOf(files, 6, 8)).not.toEqual(sample);
  expect(new Set(sample.map(({ start, text }) => `${start} ${text}`)).size).toBe(6);
  expect(sampleOf(files, 1000, 7)).toHaveLength(mutationsOf('src/f.ts', SOURCE).length);
});
