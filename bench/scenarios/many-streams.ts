// 10,000 streams at once through one process, every byte compared.
import { residentBytes } from '../cpu.ts';
import { type Figure, figureOf } from '../figures.ts';
import { findProgram } from '../processes.ts';
import { streamRound } from '../round.ts';
import type { Scenario } from './scenario.ts';

const STREAMS = 10_000;
const EVERY_MS = 1_000;
const RAMP_MS = 20_000;
/** The last begins before the first has ended, with time to spare on a slow machine. */
const FRAMES = 45;
/**
 * Files that a gateway keeps for what are no streams: by itself it takes as many clients as half of its files, less 256 (see
 * `listen.max_connections`), and the bench asks it for its health meanwhile.
 */
const OTHER_FILES = 2 * 256 + 88;

export const manyStreams: Scenario = {
  id: 'many-streams',
  sections: ['many-streams'],
  isLong: true,
  async run({ processes, gateway }) {
    // A connection to the client and one to the upstream for each stream.
    const files = 2 * STREAMS + OTHER_FILES;
    const shell = findProgram('sh') ?? '/bin/sh';
    const said = (await processes.run(shell, ['-c', 'ulimit -n; exit 0'], 5_000, { files })).trim();
    const allowed = said === 'unlimited' ? files : Number(said);
    const streams = Math.min(STREAMS, Math.floor((allowed - OTHER_FILES) / 2));
    const sample = await streamRound(processes, gateway, {
      kind: 'streams',
      concurrency: streams,
      times: 1,
      ramp_ms: RAMP_MS,
      pace: { frames: FRAMES, every: EVERY_MS, kind: 'exact' },
    });
    const { peak, ...rest } = sample;
    const after_mib = gateway.pids.reduce((sum, pid) => sum + residentBytes(pid), 0) / 2 ** 20;
    // What was asked for was not tried where the system does not allow it.
    const shown = { ...rest, after_mib, [streams === STREAMS ? 'peak' : 'fewer_peak']: peak };
    const figures: Record<string, Figure> = {};
    for (const [field, value] of Object.entries(shown)) {
      if (typeof value === 'number') figures[field] = figureOf([value]);
    }
    const limit =
      streams === STREAMS
        ? ''
        : ` A process may have ${said} files open on this machine, and each stream takes two: ${STREAMS} streams could not be tried.`;
    return [
      {
        id: 'many-streams',
        title: `${streams} streams in one process`,
        note:
          `${streams} streams of ${FRAMES} frames, one a second each, begun within ${RAMP_MS / 1000} s. The client compares every byte with ` +
          `what was sent, and the run fails if one differs or a stream is not whole.${limit}`,
        columns: [
          { field: 'streams', heading: 'whole and exact', digits: 0 },
          { field: 'peak', heading: 'at once', digits: 0 },
          { field: 'fewer_peak', heading: 'at once', digits: 0 },
          { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
          { field: 'after_mib', heading: 'MiB afterwards', digits: 0 },
        ],
        rows: [{ name: 'gateway', figures }],
      },
    ];
  },
};
