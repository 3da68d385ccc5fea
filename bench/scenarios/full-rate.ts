// A thousand streams of a fast model: whether words still come in time on the processors of this machine, and what a chunk costs then.
import { alternate } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { streamRound } from '../round.ts';
import type { Scenario } from './scenario.ts';

const STREAMS = 1_000;
const EVERY_MS = 20;
const LAST_MS = 4_000;
/** Within which they begin. */
const RAMP_MS = 1_000;

export const fullRate: Scenario = {
  id: 'full-rate',
  sections: ['full-rate'],
  async run({ processes, rounds, direct, nginx, gateway, bare }) {
    const proxy = bare.filter(({ name }) => name === 'Node, http-proxy-3');
    const pace = { frames: LAST_MS / EVERY_MS, every: EVERY_MS, kind: 'timed' } as const;
    const results = await alternate(
      'full rate',
      [direct, nginx, gateway, ...proxy],
      rounds,
      async (subject) => {
        const sample = await streamRound(processes, subject, {
          kind: 'streams',
          concurrency: STREAMS,
          times: 1,
          ramp_ms: RAMP_MS,
          pace,
        });
        return { ...sample, in_time_percent: 100 * (sample['in_time'] ?? Number.NaN) };
      },
    );
    return [
      {
        id: 'full-rate',
        title: `${STREAMS} streams of ${1_000 / EVERY_MS} words a second`,
        note:
          `${(STREAMS * 1_000) / EVERY_MS} words a second. A word is in time when it comes no more than 100 ms after it was due by the pace of its stream, counted from ` +
          'the first one; of a stream that an overloaded gateway refuses none is. Upstream and load generator share the processors with the proxy, which is what the row "direct" shows. Where chunks arrive together ' +
          '("pieces/chunk" well below 1) each is cheaper.',
        columns: [
          { field: 'in_time_percent', heading: 'in time', digits: 1, unit: ' %' },
          { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
          { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
          { field: 'pieces_per_chunk', heading: 'pieces/chunk', digits: 2 },
          { field: 'transit_p50_ms', heading: 'word p50 ms', digits: 1 },
          { field: 'transit_p99_ms', heading: 'p99', digits: 1 },
          { field: 'peak', heading: 'at once', digits: 0 },
          { field: 'refused', heading: 'refused', digits: 0 },
        ],
        rows: rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }),
      },
    ];
  },
};
