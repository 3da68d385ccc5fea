import { describe, expect, test } from 'vitest';
import type { Prices } from '../../src/config/prices.ts';
import { makeScopes } from '../../src/limits/scope.ts';
import type { AttemptUse, Unreported } from '../../src/proxy/contracts/receiver.ts';
import type { Estimate } from '../../src/proxy/request/token-estimate.ts';
import { HIDDEN_TOKENS_PER_SECOND, PREFILL_MS, UsageMeter } from '../../src/proxy/reservation/usage-meter.ts';
import { reservedAmounts } from '../../src/proxy/reservation/usage-reservation.ts';
import { holderScope } from '../limits/of-holder.ts';

const usage = (prompt: number, completion: number) => ({
  prompt,
  completion,
  total: prompt + completion,
  cached: 1,
  reasoning: 2,
});

function read(...uses: Partial<AttemptUse>[]) {
  return readWith({ prompt: 50, completion: 100, isBounded: true }, ...uses);
}

function readWith(estimate: Estimate, ...uses: Partial<AttemptUse>[]) {
  const meter = new UsageMeter(estimate);
  for (const use of uses) {
    meter.add({
      upstream: 'a',
      provider: 'p',
      target: 'm',
      usage: null,
      outputs: 0,
      isSent: true,
      outcome: 'ok',
      ...use,
    });
  }
  return meter.read();
}

describe('what a request has used', () => {
  test('is nothing when it reached nobody', () => {
    expect(read()).toBeUndefined();
    expect(read({ isSent: false, outcome: 'upstream_unreachable' })).toBeUndefined();
  });

  test('is what the upstream says', () => {
    expect(read({ usage: usage(3, 5) })).toEqual({
      attempts: 1,
      upstream: 'a',
      provider: 'p',
      target: 'm',
      tokens: { prompt: 3, completion: 5, cached: 1, reasoning: 2, total: 8 },
      isEstimated: false,
      isReported: true,
      isCounted: true,
      extra: [],
    });
  });

  test.each([
    ['of a whole answer are those that it has', { outputs: 7 }, { requests: 1, images: 1 }],
    [
      'of a client that left are those that were asked for',
      { outcome: 'client_closed', outputs: 3 },
      { requests: 1, images: 2 },
    ],
    ['of a failure before output are none', { outcome: 'upstream_unreachable' }, undefined],
    ['of a rejected request are none', { outcome: 'upstream_error', hasErrorStatus: true }, undefined],
  ] as const)('the images %s', (_, use, quantities) => {
    const about = { quantities: { requests: 1, images: 2 }, measured: { images: 1 } };
    expect(read({ ...use, ...about })?.quantities).toEqual(quantities);
  });

  test.each([
    ['a whole answer', { outputs: 7 }, 50, 7],
    ['a whole answer without output', { outputs: 0 }, 50, 0],
    ['a client that left in the middle', { outcome: 'client_closed', outputs: 3 }, 50, 3],
    ['a client that left before the first token', { outcome: 'client_closed' }, 50, 0],
    ['a stream that broke', { outcome: 'stream_incomplete', outputs: 4 }, 50, 4],
    ['a drain', { outcome: 'draining', outputs: 4 }, 50, 4],
    ['an upstream that says it failed, after output', { outcome: 'upstream_error', outputs: 4 }, 0, 0],
  ] as const)('without a word of the upstream is estimated: %s', (_, use, prompt, completion) => {
    expect(read(use)).toMatchObject({ tokens: { prompt, completion }, isEstimated: true });
  });

  test.each([
    ['asked for', {}, { requests: 1, images: 2 }],
    ['of the answer', { measured: { images: 1 } }, { requests: 1, images: 1 }],
    ['reported', { usage: { ...usage(1, 1), measured: { images: 3 } } }, { requests: 1, images: 3 }],
    [
      'reported of a broken answer',
      { outcome: 'draining', measured: { images: 1 } },
      { requests: 1, images: 2 },
    ],
  ] as const)('has the quantities %s', (_, use, quantities) => {
    expect(read({ outputs: 1, ...use, quantities: { requests: 1, images: 2 } })?.quantities).toEqual(
      quantities,
    );
  });

  test('without a report is not counted by the upstream', () => {
    expect(read({ outputs: 7 })).toMatchObject({ isCounted: false, isReported: false });
  });

  test('has the estimate of the prompt where the upstream reports the output alone', () => {
    expect(read({ usage: usage(0, 5) })).toMatchObject({
      tokens: { prompt: 50, completion: 5 },
      isEstimated: true,
      isReported: false,
    });
    expect(read({ usage: usage(0, 5), outcome: 'superseded' }, { usage: usage(3, 4) })).toMatchObject({
      tokens: { prompt: 3, completion: 4 },
      isReported: true,
      extra: [{ tokens: { prompt: 50, completion: 5 } }],
    });
    expect(read({ usage: usage(0, 1) })?.tokens.prompt).toBe(50);
    expect(read({ usage: usage(1, 1) })?.tokens.prompt).toBe(1);
    expect(read({ usage: usage(0, 0) })).toMatchObject({ tokens: { prompt: 0 }, isReported: true });
    const measured = read({ usage: { ...usage(0, 0), measured: { milliseconds: 1 } } });
    expect([measured?.tokens.prompt, measured?.quantities]).toEqual([0, undefined]);
  });

  test.each(['upstream_timeout', 'upstream_rate_limited', 'upstream_error', 'upstream_unreachable'] as const)(
    'is nothing, and no estimate, when the upstream failed before any output: %s',
    (outcome) => {
      expect(read({ outcome })).toMatchObject({ tokens: { prompt: 0, completion: 0 }, isEstimated: false });
    },
  );

  const left = (use: Partial<AttemptUse>, unreported: Partial<Unreported>, estimate?: Partial<Estimate>) =>
    readWith(
      { prompt: 50, completion: 256, isBounded: false, choices: 1, ...estimate },
      {
        outcome: 'client_closed',
        unreported: { textBytes: 0, silentMs: 0, isReserved: false, ...unreported },
        ...use,
      },
    )?.tokens.completion;

  test('of text is a token for four bytes, and never less than its frames', () => {
    expect(left({ outputs: 3 }, { textBytes: 30_000 })).toBe(7_500);
    expect(left({ outputs: 30 }, { textBytes: 4 })).toBe(30);
    expect(left({ outcome: 'ok', outputs: 3 }, { textBytes: 30_000, silentMs: 60_000 })).toBe(7_500);
  });

  test('of what was thought in silence goes by its time, within the bound of the client', () => {
    expect(left({}, { silentMs: PREFILL_MS + 10_000 })).toBe(10 * HIDDEN_TOKENS_PER_SECOND);
    expect(left({}, { silentMs: PREFILL_MS + 10_000 }, { choices: 3 })).toBe(30 * HIDDEN_TOKENS_PER_SECOND);
    expect(left({}, { silentMs: PREFILL_MS + 10_000 }, { completion: 100, isBounded: true })).toBe(100);
    expect(
      left({ outputs: 150 }, { silentMs: PREFILL_MS + 10_000 }, { completion: 100, isBounded: true }),
    ).toBe(150);
    // No text model: a picture thinks nothing.
    const picture = { prompt: 50, completion: 1000, isBounded: false };
    const unreported = { textBytes: 0, silentMs: 10_000, isReserved: false };
    expect(readWith(picture, { outcome: 'client_closed', unreported })?.tokens.completion).toBe(0);
  });

  test('of what was thought behind a report is of an answer that did not end', () => {
    const silence = { silentMs: PREFILL_MS + 10_000 };
    const part = { usage: usage(3, 60) };
    expect([PREFILL_MS, HIDDEN_TOKENS_PER_SECOND]).toEqual([250, 50]);
    expect(left(part, silence)).toBe(60 + 500);
    expect(left(part, silence, { completion: 100, isBounded: true })).toBe(100);
    for (const outcome of ['ok', 'upstream_error', 'superseded'] as const)
      expect(left({ ...part, outcome }, silence)).toBe(60);
  });

  test('of an answer that comes at once is at least what was reserved', () => {
    expect(left({}, { silentMs: 10, isReserved: true })).toBe(256);
    expect(left({}, { silentMs: PREFILL_MS + 60_000, isReserved: true })).toBe(60 * HIDDEN_TOKENS_PER_SECOND);
    expect(
      left({}, { silentMs: PREFILL_MS + 60_000, isReserved: true }, { completion: 500, isBounded: true }),
    ).toBe(500);
  });

  test('goes beyond the bound of the client where the upstream did not receive it', () => {
    const bound = { completion: 1, isBounded: true };
    expect(left({ isUnbounded: true }, { silentMs: PREFILL_MS + 10_000 }, bound)).toBe(
      10 * HIDDEN_TOKENS_PER_SECOND,
    );
    expect(left({ isUnbounded: true }, { silentMs: 10, isReserved: true }, bound)).toBe(256);
    expect(left({ isUnbounded: true }, { silentMs: 10, isReserved: true }, { completion: 900 })).toBe(900);
    // No text model has no answers in choices.
    const unreported = { textBytes: 0, silentMs: 10, isReserved: true };
    const picture = { outcome: 'client_closed', isUnbounded: true, unreported } as const;
    expect(readWith({ prompt: 50, ...bound }, picture)?.tokens.completion).toBe(1);
  });

  test('of a prompt has what its texts hold beyond the reservation, unless the upstream counts it', () => {
    const estimate = { prompt: 50, promptText: 7_000, completion: 100, isBounded: true };
    expect(readWith(estimate, { outcome: 'client_closed', outputs: 1 })?.tokens.prompt).toBe(7_050);
    expect(readWith(estimate, { usage: usage(0, 5) })?.tokens.prompt).toBe(7_050);
    expect(readWith(estimate, { usage: usage(3, 5) })?.tokens.prompt).toBe(3);
  });

  test('has what came behind a report added to it, however the answer ended', () => {
    const part = { usage: usage(3, 5), outputs: 2 };
    expect(left(part, { textBytes: 4_000 })).toBe(1_005);
    expect(left({ ...part, outcome: 'ok' }, { textBytes: 4_000 })).toBe(1_005);
    expect(left({ ...part, outputs: 0, outcome: 'ok' }, { textBytes: 0 })).toBe(5);
    expect(left({ ...part, outputs: 1, outcome: 'ok' }, { textBytes: 0 })).toBe(6);
    expect(left({ ...part, outcome: 'stream_incomplete' }, { textBytes: 4_000 })).toBe(1_005);
  });

  test('is that of the upstream which answered, and what others used stands beside it', () => {
    const reading = read(
      { upstream: 'a', outcome: 'upstream_error', usage: usage(3, 0) },
      { upstream: 'b', outcome: 'upstream_unreachable', isSent: false },
      { upstream: 'c', usage: usage(3, 5) },
    );
    expect(reading).toMatchObject({ upstream: 'c', tokens: { completion: 5 }, isEstimated: false });
    expect(reading?.extra).toEqual([
      {
        upstream: 'a',
        provider: 'p',
        target: 'm',
        tokens: { prompt: 3, completion: 0, cached: 1, reasoning: 2, total: 3 },
        isCounted: true,
      },
    ]);
  });

  test('is not that of one that was superseded, whichever ended first', () => {
    const [lost, won] = [
      { upstream: 'a', outcome: 'superseded' } as const,
      { upstream: 'b', usage: usage(1, 1) },
    ];
    expect(read(lost, won)?.upstream).toBe('b');
    expect(read(won, lost)?.upstream).toBe('b');
    expect(read(lost)?.upstream).toBe('a');
  });
});

describe('what a request reserves', () => {
  /** A token of input costs 1000 billionths, one of output 2000, a request 5000. */
  const price: Prices = [{ from: 0, price: { input: 1_000_000, output: 2_000_000, request: 5 } }];
  const reserved = (
    estimate: Partial<Estimate>,
    limits: Parameters<typeof holderScope>[1] = {},
    quantities?: { requests: number },
  ) =>
    reservedAmounts({
      route: { targets: [{ price }] },
      scopes: makeScopes('a', [holderScope('a', limits)]),
      estimate: { prompt: 10, completion: 20, isBounded: false, ...estimate },
      quantities,
    });
  const PRICE = 10_000 + 40_000 + 5000;

  test('is the estimate, with its cost where there is a budget', () => {
    expect(reserved({})).toEqual({ tokens: 30, cost: 0 });
    expect(reserved({}, { cost_per_day: PRICE })).toEqual({ tokens: 30, cost: PRICE });
    expect(reserved({}, { cost_per_month: 1e9 }, { requests: 3 })).toEqual({
      tokens: 30,
      cost: PRICE + 10_000,
    });
    expect(reserved({ prompt: 9.5, completion: 19.5 }, { cost_per_day: 1e9 }).cost).toBe(PRICE);
  });

  test.each([
    ['a limit of tokens, beyond the prompt', {}, { tokens_per_day: 25 }, { tokens: 25, cost: 0 }],
    ['no less than the prompt', {}, { tokens_per_day: 5 }, { tokens: 10, cost: 0 }],
    [
      'a budget, beyond the price of the prompt',
      {},
      { cost_per_day: PRICE - 1 },
      { tokens: 30, cost: PRICE - 1 },
    ],
    ['no less than the price of the prompt', {}, { cost_per_day: 9 }, { tokens: 30, cost: 15_000 }],
    [
      'nothing where the client bounds the answer',
      { isBounded: true },
      { tokens_per_day: 25, cost_per_day: 9 },
      { tokens: 30, cost: PRICE },
    ],
  ])('is bounded by %s', (_what, estimate, limits, amounts) => {
    expect(reserved(estimate, limits)).toEqual(amounts);
  });
});
