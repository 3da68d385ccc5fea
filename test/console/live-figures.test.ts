// The figures of *Now*: sums of counters, whose fault an error is, rates over a minute, and one sampler for all viewers.
import { expect, test, vi } from 'vitest';
import { LiveFigures, sumsOf } from '../../src/console/live-figures.ts';

const outcome = (route: string, upstream: string, code: string, count: number) =>
  `tollgate_request_outcomes_total{route="${route}",model="a\\"} 9",upstream="${upstream}",outcome="${code}"} ${count}`;

test('requests are summed by whose fault they failed, those of pages not at all', () => {
  const text = [
    '# HELP tollgate_request_outcomes_total Requests',
    outcome('/v1/chat/completions', 'openai', 'ok', 5),
    outcome('/v1/embeddings', 'openai', 'ok', 2),
    outcome('/pricing', 'none', 'ok', 100),
    outcome('/v1/chat/completions', 'none', 'model_not_found', 3),
    outcome('/v1/chat/completions', 'openai', 'upstream_timeout', 4),
    outcome('/v1/chat/completions', 'openai', 'stream_incomplete', 1),
    outcome('/v1/chat/completions', 'none', 'store_unavailable', 6),
    'tollgate_requests_in_flight 7',
    'tollgate_requests_total{route="/v1/models",status="200"} 50',
  ].join('\n');
  const wanted = { ok: 7, client: 3, upstream: 5, gateway: 6, tollgate_requests_in_flight: 7 };
  expect(sumsOf(text)).toEqual(wanted);
});

test('rates are those of the last minute; a process that begins anew has none below zero', async () => {
  let at = 0;
  let count = 0;
  let reads = 0;
  const figures = new LiveFigures({
    metrics: async () => {
      reads += 1;
      return outcome('/v1/chat/completions', 'openai', 'ok', count);
    },
    now: () => at,
    currency: () => undefined,
    states: async () => ({}),
  });
  expect((await figures.current())['requests']).toBe('–');
  for (; at < 120_000; at += 5000) {
    count += 10;
    await figures.current();
  }
  // The last sample is young enough.
  at -= 5000;
  const before = reads;
  expect((await figures.current())['requests']).toBe('120');
  expect(reads).toBe(before);
  count = 0;
  at += 5000;
  expect((await figures.current())['requests']).toBe('0');
});

test('more than a hundred viewers are refused', () => {
  const figures = new LiveFigures({
    metrics: async () => '',
    now: () => 0,
    currency: () => undefined,
    states: async () => ({}),
  });
  const ends = Array.from({ length: 100 }, () => figures.watch(() => {}));
  expect(() => figures.watch(() => {})).toThrow('overloaded');
  ends[0]?.();
  ends.push(figures.watch(() => {}));
  for (const end of ends) end();
});

test('a change of a state is sent within a second, as one event for all viewers, and nothing is sent without one', async () => {
  vi.useFakeTimers();
  try {
    let state = 'ok';
    let asked = 0;
    const figures = new LiveFigures({
      metrics: async () => '',
      now: () => 0,
      currency: () => undefined,
      states: async () => {
        asked += 1;
        return { 'state-a': state };
      },
    });
    const seen: Buffer[][] = [[], []];
    const ends = seen.map((frames) => figures.watch((frame) => void frames.push(frame)));
    await vi.advanceTimersByTimeAsync(1000);
    const [one = [], other = []] = seen;
    expect([one.length, one[0] === other[0]]).toEqual([1, true]);
    expect(String(one[0])).toMatch(/^data: \{.*"state-a":"ok".*\}\n\n$/);
    await vi.advanceTimersByTimeAsync(3000);
    expect(one.length).toBe(1);
    state = 'half_open';
    await vi.advanceTimersByTimeAsync(1000);
    expect([one.length, String(other[1]).includes('"state-a":"half_open"')]).toEqual([2, true]);
    expect(asked).toBe(5);
    for (const end of ends) end();
    await vi.advanceTimersByTimeAsync(5000);
    expect(asked).toBe(5);
  } finally {
    vi.useRealTimers();
  }
});
