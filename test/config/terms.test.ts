// What owners have of their own: how it replaces what the tier says, and how a change of it reads.
import { describe, expect, test } from 'vitest';
import { limitsWith, readTerms, type Terms, termsChanges, writeTerms } from '../../src/config/terms.ts';

const TIER = { requests_per_minute: 20, tokens_per_day: 1000, cost_per_month: 5_000_000_000, soft: [0.8] };

describe('limits of an owner', () => {
  test('are the very ones of the tier where it has none of its own', () => {
    expect(limitsWith(TIER, { limits: undefined })).toBe(TIER);
    expect(limitsWith(undefined)).toEqual({});
  });

  test('replace those of the tier one by one, remove them and add others', () => {
    const own = {
      limits: { requests_per_minute: 500, tokens_per_day: null, concurrency: 3 },
      budget: { per_day: 1_000_000_000 },
    };
    expect(limitsWith(TIER, own)).toEqual({
      requests_per_minute: 500,
      concurrency: 3,
      cost_per_day: 1_000_000_000,
      cost_per_month: 5_000_000_000,
      soft: [0.8],
    });
    expect(limitsWith(TIER, { budget: { per_month: null, soft: [0.5] } })).toEqual({
      requests_per_minute: 20,
      tokens_per_day: 1000,
      soft: [0.5],
    });
  });
});

describe('stored terms', () => {
  test('are read as they were written', () => {
    const terms: Terms = {
      limits: { concurrency: 7, tokens_per_day: null },
      budget: { per_day: null, per_month: 9_000_000_000_000_000, soft: [0.5, 0.8] },
      models: ['gpt-*'],
      endpoints: ['chat'],
      model_limits: { 'llama3:8b': { limits: { requests_per_day: 1 }, budget: { per_day: 1 } } },
    };
    expect(readTerms(writeTerms(terms))).toEqual(terms);
  });

  test.each([
    ['{"later":1}'],
    ['{"limits":{"requests_per_year":1}}'],
    ['{"limits":{"concurrency":0}}'],
    ['{"budget":{"per_week":1}}'],
    ['{"budget":{"per_day":9000000000000001}}'],
    ['{"budget":{"soft":[1]}}'],
    ['{"model_limits":{"a":{"models":["b"]}}}'],
    ['[]'],
    ['{'],
  ])('%s are not read in part', (text) => {
    expect(() => readTerms(text)).toThrow();
  });
});

describe('a change of terms', () => {
  test('names each value before and after, and nothing that stays', () => {
    const before: Terms = {
      limits: { concurrency: 7, requests_per_minute: 5 },
      budget: { per_day: 20_000_000_000 },
      models: ['a', 'b'],
      model_limits: { a: { limits: { requests_per_day: 1 } }, b: { budget: { per_day: 1 } } },
    };
    const after: Terms = {
      limits: { concurrency: 7, requests_per_minute: null, tokens_per_day: 9 },
      budget: { per_day: 12_500_000_000, per_month: 1_000, soft: [0.5, 0.8] },
      endpoints: ['chat', 'images'],
      model_limits: { a: { limits: { requests_per_day: 2 } } },
    };
    expect(termsChanges(before, after)).toEqual([
      'limit requests_per_minute 5 to none',
      'budget per_day 20 to 12.5',
      'models a, b to unset',
      'limit requests_per_day for a 1 to 2',
      'budget per_day for b 0.000000001 to unset',
      'limit tokens_per_day unset to 9',
      'budget per_month unset to 0.000001',
      'soft thresholds unset to 50%, 80%',
      'endpoints unset to chat, images',
    ]);
    expect(termsChanges(before, before)).toEqual([]);
  });
});
