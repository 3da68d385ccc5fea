// The table of limits and its documentation.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { eachLimit, LIMITS, limitTexts, PLAIN_LIMITS, pickLimits } from '../../src/config/limit-table.ts';
import { activeLimits } from '../../src/limits/active-limits.ts';

const STARTS = {
  minute: "when the window ends; the holder's first request opens it",
  day: 'at midnight UTC',
  month: 'on the first of the month, UTC',
  concurrent: 'as each request ends',
};

test('docs/limits.md has exactly one row for each limit', () => {
  const page = readFileSync(new URL('../../docs/limits.md', import.meta.url), 'utf8');
  const [, after = ''] = page.split('|---|---|---|\n', 2);
  const rows = after.slice(0, after.indexOf('\n\n')).split('\n');
  expect(rows).toEqual(
    PLAIN_LIMITS.map(({ name, many, window }) => `| \`${name}\` | ${many} | ${STARTS[window]} |`),
  );
});

test('limits have texts in the order of the table, singular and plural', () => {
  const texts = limitTexts({ concurrency: 1, tokens_per_month: 20_000_000, requests_per_minute: 2 });
  expect(texts.map(({ max, text }) => `${max} ${text}`)).toEqual([
    '2 requests a minute',
    '20000000 tokens a month',
    '1 request at a time',
  ]);
  expect(LIMITS.map(({ rate }) => rate)).toContain('requests at once');
});

test('the limits of a tier are resolved to the data of the limiters', () => {
  const all = eachLimit(({ index }) => 100 - index);
  expect(activeLimits(all)).toMatchObject({
    needTotals: true,
    maxCost: Math.min(all.cost_per_day, all.cost_per_month),
    list: Object.values(all).map((max) => ({ max })),
  });
  expect(activeLimits(all).maxTokens).toBe(
    Math.min(...Object.values(pickLimits(all, ({ counts }) => counts === 'tokens'))),
  );
  expect(activeLimits({ concurrency: 3 })).toMatchObject({
    needTotals: false,
    maxTokens: Number.POSITIVE_INFINITY,
    list: [{ max: 3 }],
  });
});
