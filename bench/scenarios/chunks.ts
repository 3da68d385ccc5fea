// What a streamed chunk costs in CPU time: streams at the pace of a fast model, every byte compared.
import { alternate, CONCURRENCY } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { streamRound } from '../round.ts';
import type { Scenario } from './scenario.ts';

const FRAMES = 200;
const EVERY_MS = 10;

export const chunks: Scenario = {
  id: 'chunks',
  sections: ['chunks'],
  async run({ processes, rounds, seconds, nginx, gateway, bare }) {
    const pace = { frames: FRAMES, every: EVERY_MS, kind: 'exact' } as const;
    const times = Math.max(1, Math.round((seconds * 1000) / (FRAMES * EVERY_MS)));
    const results = await alternate('chunks', [nginx, gateway, ...bare], rounds, (subject) =>
      streamRound(processes, subject, { kind: 'streams', concurrency: CONCURRENCY, times, ramp_ms: 0, pace }),
    );
    return [
      {
        id: 'chunks',
        title: `Chunks of ${CONCURRENCY} streams`,
        note:
          `${CONCURRENCY} streams at once, each of ${FRAMES} frames, one every ${EVERY_MS} ms and each written alone. The client compares ` +
          'every byte with what was sent. The gateway also writes its model name into each chunk, asks for usage, hides it and takes it ' +
          'down. "pieces/chunk" near 1 says that chunks arrived one by one.',
        columns: [
          { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
          { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
          { field: 'pieces_per_chunk', heading: 'pieces/chunk', digits: 2 },
        ],
        rows: rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }),
      },
    ];
  },
};
