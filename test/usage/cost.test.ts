// Costs: what has which price, exactly, and from when. The expected costs come from a list of single tokens and from fractions, not
// from the code's own parts.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ModelPrice, PRICE_KINDS, type Prices } from '../../src/config/prices.ts';
import { readAmount } from '../../src/config/schema/units.ts';
import { costOf, estimateOf, partsOf } from '../../src/usage/records/token-price.ts';
import type { Quantities, TokenDetails, Tokens } from '../../src/wire/token-usage.ts';

type Kind = (typeof PRICE_KINDS)[number]['name'];
type Texts = Partial<Record<Kind, string>>;

/** A price that is always in force, as the configuration reads it. */
function always(texts: Texts): Prices {
  const price: Record<string, number> = {};
  for (const [kind, text] of Object.entries(texts)) {
    const reading = readAmount(text);
    if (!reading.ok) throw new Error(reading.fault);
    price[kind] = reading.value;
  }
  return [{ from: 0, price }];
}

const NO_DETAILS: TokenDetails = {
  cacheWrite: 0,
  audioInput: 0,
  imageInput: 0,
  cachedAudio: 0,
  cachedImage: 0,
  audioOutput: 0,
};
const tokens = (some: Partial<Omit<Tokens, 'details'>>, details?: Partial<TokenDetails>): Tokens => ({
  prompt: 0,
  completion: 0,
  cached: 0,
  reasoning: 0,
  ...some,
  ...(details === undefined ? {} : { details: { ...NO_DETAILS, ...details } }),
});
const costIn = (texts: Texts, used: Tokens, quantities?: Quantities): number | undefined =>
  costOf(always(texts), { tokens: used, quantities }, 1);

// --- the expected cost ------------------------------------------------------------------------------------------------

/** A decimal text as a fraction of 10^6. */
function millionths(text = '0'): bigint {
  const [whole = '0', decimals = ''] = text.split('.');
  return BigInt(whole) * 1_000_000n + BigInt(decimals.padEnd(6, '0'));
}

/** The kind of each single token: first what it is, then, for those of a cache with a price of its own, the cache. */
function kindsOf(used: Tokens, texts: Texts): Kind[] {
  const { audioInput, imageInput, cachedAudio, cachedImage, cacheWrite, audioOutput } =
    used.details ?? NO_DETAILS;
  const input: Kind[] = Array.from({ length: used.prompt }, (_, index) =>
    index < audioInput ? 'audio_input' : index < audioInput + imageInput ? 'image_input' : 'input',
  );
  const mark = (as: Kind, of: Kind, count: number): number => {
    let marked = 0;
    for (const [index, kind] of input.entries()) {
      if (kind !== of || marked === count) continue;
      input[index] = as;
      marked += 1;
    }
    return marked;
  };
  if (texts.cached_input !== undefined) {
    let left = used.cached;
    left -= mark('cached_input', 'audio_input', Math.min(left, cachedAudio));
    left -= mark('cached_input', 'image_input', Math.min(left, cachedImage));
    for (const sort of ['input', 'audio_input', 'image_input'] as const)
      left -= mark('cached_input', sort, left);
  }
  if (texts.cache_write !== undefined) {
    let left = cacheWrite;
    for (const sort of ['input', 'audio_input', 'image_input'] as const)
      left -= mark('cache_write', sort, left);
  }
  const output: Kind[] = Array.from({ length: used.completion }, (_, index) =>
    index < audioOutput ? 'audio_output' : index < audioOutput + used.reasoning ? 'reasoning' : 'output',
  );
  return [...input, ...output];
}

const COARSER: Partial<Record<Kind, Kind>> = {
  cached_input: 'input',
  cache_write: 'input',
  audio_input: 'input',
  image_input: 'input',
  reasoning: 'output',
  audio_output: 'output',
};

/** Half up, in billionths, of a sum of fractions with the denominator 6 × 10^16: millionths of a unit for a million, or a minute. */
function expectedCost(used: Tokens, texts: Texts, quantities: Quantities = {}): number {
  const of = (kind: Kind): bigint => millionths(texts[kind] ?? texts[COARSER[kind] ?? kind]);
  const denominator = 60_000n * 10n ** 12n;
  let sum = 0n;
  for (const kind of kindsOf(used, texts)) sum += of(kind) * 60_000n;
  sum += BigInt(quantities.characters ?? 0) * of('characters') * 60_000n;
  sum += BigInt(quantities.images ?? 0) * of('image') * 60_000n * 1_000_000n;
  sum += BigInt(quantities.requests ?? 0) * of('request') * 60_000n * 1_000_000n;
  sum += BigInt(quantities.milliseconds ?? 0) * of('minute') * 1_000_000n;
  return Number((2n * sum * 10n ** 9n + denominator) / (2n * denominator));
}

const amountText = fc
  .tuple(fc.oneof(fc.nat(3), fc.nat(999_999_999)), fc.nat(999_999), fc.integer({ min: 0, max: 6 }))
  .map(([whole, rest, digits]) =>
    digits === 0 ? String(whole) : `${whole}.${String(rest).padStart(6, '0').slice(0, digits)}`,
  );
const priceTexts: fc.Arbitrary<Texts> = fc
  .record(Object.fromEntries(PRICE_KINDS.map(({ name }) => [name, amountText])), { requiredKeys: [] })
  .map((texts) => ({ input: '1', output: '2', ...texts }));
/** What an upstream may report, parts larger than their whole included. */
const anyTokens = (max: number): fc.Arbitrary<Tokens> =>
  fc
    .record({
      prompt: fc.nat(max),
      completion: fc.nat(max),
      cached: fc.nat(max),
      reasoning: fc.nat(max),
      details: fc.option(
        fc.record({
          cacheWrite: fc.nat(max),
          audioInput: fc.nat(max),
          imageInput: fc.nat(max),
          cachedAudio: fc.nat(max),
          cachedImage: fc.nat(max),
          audioOutput: fc.nat(max),
        }),
        { nil: undefined },
      ),
    })
    .map(({ details, ...rest }) => ({ ...rest, ...(details === undefined ? {} : { details }) }));
const anyQuantities: fc.Arbitrary<Quantities> = fc.record({
  requests: fc.nat(1),
  images: fc.nat(10_000),
  characters: fc.nat(100_000),
  milliseconds: fc.nat(100_000_000),
});

describe('a cost', () => {
  test('equals the sum of the prices of single tokens and quantities, rounded once', () => {
    fc.assert(
      fc.property(anyTokens(60), priceTexts, anyQuantities, (used, texts, quantities) => {
        expect(costIn(texts, used, quantities)).toBe(
          Math.min(expectedCost(used, texts, quantities), Number.MAX_SAFE_INTEGER),
        );
      }),
    );
  });

  test('is exact for any number of tokens and any price', () => {
    const count = fc.integer({ min: 0, max: 1e9 });
    fc.assert(
      fc.property(count, count, amountText, amountText, (prompt, completion, input, output) => {
        const sum = BigInt(prompt) * millionths(input) + BigInt(completion) * millionths(output);
        const exact = (sum + 500n) / 1000n;
        const most = BigInt(Number.MAX_SAFE_INTEGER);
        expect(costIn({ input, output }, tokens({ prompt, completion }))).toBe(
          Number(exact > most ? most : exact),
        );
      }),
    );
  });

  test('divides all tokens into parts that do not overlap', () => {
    const optional = fc.option(fc.constant(1), { nil: undefined });
    fc.assert(
      fc.property(anyTokens(1000), optional, optional, (used, cached_input, cache_write) => {
        const price: Pick<ModelPrice, 'cached_input' | 'cache_write'> = {
          ...(cached_input === undefined ? {} : { cached_input }),
          ...(cache_write === undefined ? {} : { cache_write }),
        };
        const { text, audio, image, cached, written, answer, speech, reasoning } = partsOf(used, price);
        for (const part of [text, audio, image, cached, written, answer, speech, reasoning])
          expect(part).toBeGreaterThanOrEqual(0);
        expect(text + audio + image + cached + written).toBe(used.prompt);
        expect(answer + speech + reasoning).toBe(used.completion);
      }),
    );
  });

  test('does not depend on the order of requests', () => {
    fc.assert(
      fc.property(fc.array(anyTokens(1e6), { maxLength: 20 }), priceTexts, (list, texts) => {
        const sum = (each: readonly Tokens[]) =>
          each.reduce((total, used) => total + BigInt(costIn(texts, used) ?? -1), 0n);
        expect(sum(list.toReversed())).toBe(sum(list));
      }),
    );
  });

  test('is the same where a kind has the price of the coarser one, and where it has none', () => {
    fc.assert(
      fc.property(anyTokens(1000), amountText, amountText, (used, input, output) => {
        const finer = { audio_input: input, image_input: input, cached_input: input, cache_write: input };
        const all = { input, output, ...finer, reasoning: output, audio_output: output };
        expect(costIn(all, used)).toBe(costIn({ input, output }, used));
      }),
    );
  });

  test('is rounded half up', () => {
    const one = tokens({ prompt: 1 });
    expect(costIn({ input: '0.0005', output: '0' }, one)).toBe(1);
    expect(costIn({ input: '0.000499', output: '0' }, one)).toBe(0);
    expect(costIn({ input: '0.000483', minute: '0.000001' }, one, { milliseconds: 1 })).toBe(0);
    expect(costIn({ input: '0.000484', minute: '0.000001' }, one, { milliseconds: 1 })).toBe(1);
    // Twice four tenths of a billionth is not twice nothing.
    expect(costIn({ input: '0.0004', output: '0.0004' }, tokens({ prompt: 1, completion: 1 }))).toBe(1);
  });

  test('counts at most a billion tokens, as usage does', () => {
    const most = costIn({ input: '1', output: '1' }, tokens({ prompt: 1e9 }));
    expect(most).toBe(1000 * 1e9);
    expect(costIn({ input: '1', output: '1' }, tokens({ prompt: 1e12 }))).toBe(most);
  });

  test.each<[string, Texts, Tokens, Quantities | undefined, number]>([
    [
      'cached tokens',
      { input: '2', cached_input: '0.5', output: '0' },
      tokens({ prompt: 10, cached: 4 }),
      undefined,
      14_000,
    ],
    [
      'a cache that is written',
      { input: '2', cache_write: '2.5', output: '0' },
      tokens({ prompt: 10 }, { cacheWrite: 4 }),
      undefined,
      22_000,
    ],
    [
      'sound',
      { input: '2', audio_input: '40', output: '0' },
      tokens({ prompt: 10 }, { audioInput: 4 }),
      undefined,
      172_000,
    ],
    [
      'sound in a cache without a price',
      { input: '2', audio_input: '40', output: '0' },
      tokens({ prompt: 4, cached: 4 }, { audioInput: 4, cachedAudio: 4 }),
      undefined,
      160_000,
    ],
    [
      'images in the input',
      { input: '2', image_input: '8', output: '0' },
      tokens({ prompt: 10 }, { imageInput: 4 }),
      undefined,
      44_000,
    ],
    [
      'reasoning',
      { input: '0', output: '10', reasoning: '20' },
      tokens({ completion: 10, reasoning: 4 }),
      undefined,
      140_000,
    ],
    [
      'spoken output',
      { input: '0', output: '10', audio_output: '80' },
      tokens({ completion: 10 }, { audioOutput: 4 }),
      undefined,
      380_000,
    ],
    ['images', { image: '0.04' }, tokens({}), { requests: 1, images: 3 }, 120_000_000],
    ['characters', { characters: '15' }, tokens({}), { requests: 1, characters: 1000 }, 15_000_000],
    [
      'a minute and a half',
      { minute: '0.006' },
      tokens({}),
      { requests: 1, milliseconds: 90_000 },
      9_000_000,
    ],
    ['a request', { request: '0.001' }, tokens({}), { requests: 1 }, 1_000_000],
    ['documents', { document: '0.04' }, tokens({}), { requests: 1, documents: 3 }, 120_000_000],
    ['images alone', { image: '0.04' }, tokens({ prompt: 10, completion: 5 }), { images: 3 }, 120_000_000],
    [
      'a request alone',
      { request: '0.001' },
      tokens({}),
      { requests: 1, images: 2, characters: 3, milliseconds: 4, documents: 5 },
      1_000_000,
    ],
    [
      'images in a cache',
      { input: '2', image_input: '8', cached_input: '0.5', output: '0' },
      tokens({ prompt: 10, cached: 4 }, { imageInput: 4, cachedImage: 4 }),
      undefined,
      14_000,
    ],
  ])('has the price of %s', (_, texts, used, quantities, expected) => {
    expect(costIn(texts, used, quantities)).toBe(expected);
  });

  test('of characters, images and minutes replaces that of tokens where the upstream counts none', () => {
    const texts = { characters: '15', input: '2', output: '2' };
    const used = { tokens: tokens({ prompt: 1000 }), quantities: { characters: 1000 } };
    expect(costOf(always(texts), { ...used, isCounted: false }, 1)).toBe(15_000_000);
    expect(costOf(always(texts), { ...used, isCounted: true }, 1)).toBe(17_000_000);
    expect(costOf(always({ input: '2', output: '2' }), { ...used, isCounted: false }, 1)).toBe(2_000_000);
  });

  test.each([
    ['characters', 'characters', 15_000],
    ['image', 'images', 15_000_000_000],
    ['minute', 'milliseconds', 250_000],
    ['document', 'documents', 15_000_000_000],
  ])(
    'for %s replaces that of tokens where the upstream counts none, from the first one',
    (unit, name, expected) => {
      const use = { tokens: tokens({ prompt: 1000 }), quantities: { [name]: 1 }, isCounted: false };
      expect(costOf(always({ [unit]: '15', input: '2', output: '2' }), use, 1)).toBe(expected);
    },
  );

  test.each(['characters', 'image', 'minute', 'document'])(
    'of tokens stands where the upstream counts none, and the use has nothing of the price for %s',
    (unit) => {
      const use = { tokens: tokens({ prompt: 1000 }), isCounted: false };
      expect(costOf(always({ [unit]: '15', input: '2', output: '2' }), use, 1)).toBe(2_000_000);
    },
  );
});

describe('prices from different times', () => {
  const at = (text: string): number => Date.parse(text);
  const prices: Prices = [
    { from: at('2026-11-01T00:00:00Z'), price: { input: 3_000_000 } },
    { from: at('2026-10-01T00:00:00Z'), price: { input: 2_000_000 } },
  ];
  const use = { tokens: tokens({ prompt: 1 }) };

  test.each([
    ['2026-09-30T23:59:59.999Z', undefined],
    ['2026-10-01T00:00:00.000Z', 2000],
    ['2026-10-31T23:59:59.999Z', 2000],
    ['2026-11-01T00:00:00.000Z', 3000],
    ['2030-01-01T00:00:00.000Z', 3000],
  ])('at %s a token costs %s billionths', (time, expected) => {
    expect(costOf(prices, use, at(time))).toBe(expected);
  });

  test('no price is no cost of 0', () => {
    expect(costOf(undefined, use, 1)).toBeUndefined();
    expect(costOf(always({ input: '0', output: '0' }), use, 1)).toBe(0);
  });
});

test('an estimate is the highest cost among the targets', () => {
  const target = (input: string) => ({ price: always({ input, output: '0' }) });
  const use = { tokens: tokens({ prompt: 1000 }) };
  expect(estimateOf([target('1'), {}, target('3'), target('2')], use, 1)).toBe(3_000_000);
  expect(estimateOf([{}], use, 1)).toBe(0);
  expect(estimateOf([{ price: [{ from: 2, price: { input: 1 } }] }], use, 1)).toBe(0);
  expect(estimateOf([], use, 1)).toBe(0);
});
