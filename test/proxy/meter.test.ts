import { describe, expect, test } from 'vitest';
import { Meter } from '../../src/proxy/meter.ts';
import type { AttemptUse } from '../../src/proxy/receiver.ts';

const usage = (prompt: number, completion: number) => ({
  prompt,
  completion,
  total: prompt + completion,
  cached: 1,
  reasoning: 2,
});

function read(...uses: Partial<AttemptUse>[]) {
  const meter = new Meter({ prompt: 50, completion: 100, isBounded: true });
  for (const use of uses) {
    meter.note({
      upstream: 'a',
      provider: 'p',
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
    expect(read({ usage: usage(3, 5), outputs: 9 })).toEqual({
      attempts: 1,
      upstream: 'a',
      provider: 'p',
      tokens: { prompt: 3, completion: 5, cached: 1, reasoning: 2 },
      isEstimated: false,
      extra: [],
    });
  });

  test.each([
    ['a whole answer', { outputs: 7 }, 50, 7],
    ['a client that left in the middle', { outcome: 'client_closed', outputs: 3 }, 50, 3],
    ['a client that left before the first token', { outcome: 'client_closed' }, 50, 0],
    ['a stream that broke', { outcome: 'stream_incomplete', outputs: 4 }, 50, 4],
    ['a drain', { outcome: 'draining', outputs: 4 }, 50, 4],
    ['an upstream that says it failed, after output', { outcome: 'upstream_error', outputs: 4 }, 0, 0],
    ['an upstream that failed before any', { outcome: 'upstream_timeout' }, 0, 0],
    ['a refusal', { outcome: 'upstream_rate_limited' }, 0, 0],
  ] as const)('without a word of the upstream is estimated: %s', (_, use, prompt, completion) => {
    expect(read(use)).toMatchObject({ tokens: { prompt, completion }, isEstimated: true });
  });

  test('is that of the upstream which answered, and what others used stands beside it', () => {
    const reading = read(
      { upstream: 'a', outcome: 'upstream_error', usage: usage(3, 0) },
      { upstream: 'b', outcome: 'upstream_unreachable', isSent: false },
      { upstream: 'c', usage: usage(3, 5) },
    );
    expect(reading).toMatchObject({ upstream: 'c', tokens: { completion: 5 }, isEstimated: false });
    expect(reading?.extra).toEqual([
      { upstream: 'a', provider: 'p', tokens: { prompt: 3, completion: 0, cached: 1, reasoning: 2 } },
    ]);
  });

  test('is not that of one that was superseded, whichever ended first', () => {
    const [lost, won] = [
      { upstream: 'a', outcome: 'superseded' } as const,
      { upstream: 'b', usage: usage(1, 1) },
    ];
    expect(read(lost, won)?.upstream).toBe('b');
    expect(read(won, lost)?.upstream).toBe('b');
  });
});
