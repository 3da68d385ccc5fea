// What a word of a stream waits longer because of a proxy, with 200 and with 1,000 streams open: the first one, and each after it.
import { alternate, type Bench } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { streamRound } from '../round.ts';
import type { Section } from '../section.ts';
import type { Scenario } from './scenario.ts';

const EVERY_MS = 100;

export const streamLatency: Scenario = {
  id: 'stream-latency',
  sections: ['streams-200', 'streams-1000'],
  run: async (bench) => [await measure(bench, 200), await measure(bench, 1_000)],
};

async function measure(bench: Bench, concurrency: number): Promise<Section> {
  const { processes, rounds, seconds, direct, nginx, gateway } = bench;
  // Twice as long as they take to begin, so that all of them are open for at least half of the time.
  const ramp_ms = seconds * 500;
  const frames = Math.max(10, Math.ceil((seconds * 1000) / EVERY_MS));
  const pace = { frames, every: EVERY_MS, kind: 'timed' } as const;
  const results = await alternate(`${concurrency} streams`, [direct, nginx, gateway], rounds, (subject) =>
    streamRound(processes, subject, { kind: 'streams', concurrency, times: 1, ramp_ms, pace }),
  );
  return {
    id: `streams-${concurrency}`,
    title: `${concurrency} streams`,
    note:
      `${concurrency} streams, one frame every ${EVERY_MS} ms each. "First" is from the request to the first word, which ` +
      'the upstream writes at once. "Word" is from the moment at which the upstream wrote a word, which stands in it, to its arrival. "Gap" is between two words of a stream.',
    columns: [
      { field: 'added_first_p50_ms', heading: 'added first p50 ms', digits: 2 },
      { field: 'added_first_p99_ms', heading: 'p99', digits: 2 },
      { field: 'added_word_p50_ms', heading: 'added word p50 ms', digits: 2 },
      { field: 'added_word_p99_ms', heading: 'p99', digits: 2 },
      { field: 'added_gap_p99_ms', heading: 'added gap p99 ms', digits: 2 },
      { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
      { field: 'peak', heading: 'at once', digits: 0 },
    ],
    rows: rowsOf(results, {
      gatewayIs: { cpu_ratio: 'cpu_us' },
      overDirect: {
        added_first_p50_ms: 'first_p50_ms',
        added_first_p99_ms: 'first_p99_ms',
        added_word_p50_ms: 'transit_p50_ms',
        added_word_p99_ms: 'transit_p99_ms',
        added_gap_p99_ms: 'gap_p99_ms',
      },
    }),
  };
}
