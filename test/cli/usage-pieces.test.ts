// Large reports are made in pieces, so that a gateway does other work between them.
import { expect, test } from 'vitest';
import { csvOf, jsonOf } from '../../src/cli/usage/usage-table.ts';
import { usageSums } from '../../src/store/usage-record.ts';

/** More than a number of JavaScript can have. */
const COUNT = 2n ** 60n + 1n;

function table(lines: number) {
  return {
    by: ['holder'],
    from: '2030-01-01T00',
    to: '2030-01-31T23',
    currency: 'usd',
    lines: Array.from({ length: lines }, (_, index) => ({
      group: [`h${index}`],
      sums: usageSums(() => COUNT),
    })),
    totals: usageSums(() => COUNT * BigInt(lines)),
    names: new Map([['h1', 'One, "two"']]),
    isCut: false,
  };
}

test.each([0, 1, 499, 500, 501, 2000])(
  'JSON and CSV of %d lines are whole, in pieces of at most 500',
  (count) => {
    const json = [...jsonOf(table(count))];
    const text = json.join('');
    const { lines, truncated } = JSON.parse(text);
    expect(lines.map((line: { holder: string }) => line.holder)).toEqual(
      Array.from({ length: count }, (_, index) => `h${index}`),
    );
    expect(truncated).toBe(false);
    expect(text.split(String(COUNT)).length - 1).toBeGreaterThanOrEqual(count);
    const csv = [...csvOf(table(count))];
    expect(csv.join('').split('\r\n')).toHaveLength(count + 2);
    for (const pieces of [json, csv]) {
      expect(pieces.length).toBeGreaterThan(count / 500);
      for (const piece of pieces) expect(piece.match(/\bh\d+\b/g)?.length ?? 0).toBeLessThanOrEqual(500);
    }
    if (count > 1) expect(csv.join('')).toContain('h1,"One, ""two"""');
  },
);
