// 10,000 streams at once through one process, every byte compared.
import { residentBytes } from '../cpu.ts';
import { figureOf, type Row } from '../figures.ts';
import { findProgram } from '../processes.ts';
import { streamRound } from '../round.ts';
import { missing } from '../section.ts';
import type { Scenario } from './scenario.ts';

const STREAMS = 10_000;
const EVERY_MS = 1_000;
const RAMP_MS = 20_000;
/** The last begins before the first has ended, with time to spare on a slow machine. */
const FRAMES = 45;
/** A connection to the client and one to the upstream for each, and some more. */
const FILES = 2 * STREAMS + 500;
const TITLE = `${STREAMS} streams`;

export const manyStreams: Scenario = {
  id: 'many-streams',
  isLong: true,
  async run({ processes, gateway }) {
    const shell = findProgram('sh') ?? '/bin/sh';
    const most = (await processes.run(shell, ['-c', 'ulimit -n; exit 0'], 5_000, { files: FILES })).trim();
    if (most !== 'unlimited' && Number(most) < FILES) {
      return [
        missing('many-streams', TITLE, `a process may have ${most} files open here, and ${FILES} are needed`),
      ];
    }
    const pace = { frames: FRAMES, every: EVERY_MS, kind: 'exact' } as const;
    const sample = await streamRound(processes, gateway, {
      kind: 'streams',
      concurrency: STREAMS,
      times: 1,
      ramp_ms: RAMP_MS,
      pace,
    });
    const shown = {
      ...sample,
      after_mib: gateway.pids.reduce((sum, pid) => sum + residentBytes(pid), 0) / 2 ** 20,
    };
    const figures: Record<string, Row['figures'][string]> = {};
    for (const [field, value] of Object.entries(shown)) {
      if (typeof value === 'number') figures[field] = figureOf([value]);
    }
    return [
      {
        id: 'many-streams',
        title: TITLE,
        note:
          `${STREAMS} streams of ${FRAMES} frames, one a second each, begun within ${RAMP_MS / 1000} s. The client compares every byte ` +
          'with what was sent, and the run fails if one differs or a stream is not whole.',
        columns: [
          { field: 'streams', heading: 'whole and exact', digits: 0 },
          { field: 'peak', heading: 'at once', digits: 0 },
          { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
          { field: 'after_mib', heading: 'MiB afterwards', digits: 0 },
        ],
        rows: [{ name: 'gateway', figures }],
      },
    ];
  },
};
