// What a word of a stream waits longer because of a proxy, with 1,000 streams open: the first one, and each after it.
import { alternate, type Bench } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { streamRound } from '../round.ts';
import type { Section } from '../section.ts';
import type { Scenario } from './scenario.ts';

const STREAMS = 1_000;
const EVERY_MS = 100;
/** Within which they begin. They last twice as long, so that all of them are open for half of the time. */
const RAMP_MS = 2_000;

export const streamLatency: Scenario = {
  id: 'stream-latency',
  sections: ['streams-1000'],
  run: async (bench) => [await measure(bench)],
};

async function measure({ processes, rounds, direct, nginx, gateway }: Bench): Promise<Section> {
  const pace = { frames: (2 * RAMP_MS) / EVERY_MS, every: EVERY_MS, kind: 'timed' } as const;
  const results = await alternate(`${STREAMS} streams`, [direct, nginx, gateway], rounds, (subject) =>
    streamRound(processes, subject, {
      kind: 'streams',
      concurrency: STREAMS,
      times: 1,
      ramp_ms: RAMP_MS,
      pace,
    }),
  );
  return {
    id: 'streams-1000',
    title: `${STREAMS} streams`,
    note:
      `${STREAMS} streams that begin within ${RAMP_MS / 1000} s, one frame every ${EVERY_MS} ms each. "First" is from the request to the first word, which ` +
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
