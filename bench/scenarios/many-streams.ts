// 10,000 streams at once through one process, every byte compared.
import type { Bench } from '../bench.ts';
import { residentBytes } from '../cpu.ts';
import { type Figure, figureOf } from '../figures.ts';
import { findProgram } from '../processes.ts';
import { streamRound } from '../round.ts';
import type { Section } from '../section.ts';

/**
 * Files that a gateway keeps for what are no streams: by itself it takes as many clients as half of its files, less 256 (see
 * `listen.max_connections`), and the bench asks it for its health meanwhile.
 */
const OTHER_FILES = 2 * 256 + 88;

export interface ManyStreams {
  readonly streams: number;
  /** Of each stream. */
  readonly frames: number;
  /** Milliseconds between two frames of a stream. */
  readonly every: number;
  /** Milliseconds within which all begin: fewer than a stream lasts, so that the last begins before the first has ended. */
  readonly ramp: number;
}

/** With time to spare on a slow machine. */
export const MANY_STREAMS: ManyStreams = { streams: 10_000, frames: 45, every: 1_000, ramp: 20_000 };

/**
 * As many of the streams as the system allows, and it is said when that is fewer.
 * @throws Error if a stream is not whole, or a byte differs
 */
export async function streamsAtOnce(
  { processes, gateway }: Pick<Bench, 'processes' | 'gateway'>,
  asked: ManyStreams,
): Promise<Section> {
  const { frames, every, ramp } = asked;
  // A connection to the client and one to the upstream for each stream.
  const files = 2 * asked.streams + OTHER_FILES;
  const shell = findProgram('sh') ?? '/bin/sh';
  const said = (await processes.run(shell, ['-c', 'ulimit -n; exit 0'], 5_000, { files })).trim();
  const allowed = said === 'unlimited' ? files : Number(said);
  const streams = Math.min(asked.streams, Math.floor((allowed - OTHER_FILES) / 2));
  const sample = await streamRound(processes, gateway, {
    kind: 'streams',
    concurrency: streams,
    times: 1,
    ramp_ms: ramp,
    pace: { frames, every, kind: 'exact' },
  });
  const { peak, ...rest } = sample;
  const after_mib = gateway.pids.reduce((sum, pid) => sum + residentBytes(pid), 0) / 2 ** 20;
  // What was asked for was not tried where the system does not allow it.
  const shown = { ...rest, after_mib, [streams === asked.streams ? 'peak' : 'fewer_peak']: peak };
  const figures: Record<string, Figure> = {};
  for (const [field, value] of Object.entries(shown)) {
    if (typeof value === 'number') figures[field] = figureOf([value]);
  }
  const limit =
    streams === asked.streams
      ? ''
      : ` A process may have ${said} files open on this machine, and each stream takes two: ${asked.streams} streams could not be tried.`;
  return {
    id: 'many-streams',
    title: `${streams} streams in one process`,
    note:
      `${streams} streams of ${frames} frames, one every ${every / 1000} s each, begun within ${ramp / 1000} s. The client compares every byte with ` +
      `what was sent, and the run fails if one differs or a stream is not whole.${limit}`,
    columns: [
      { field: 'streams', heading: 'whole and exact', digits: 0 },
      { field: 'peak', heading: 'at once', digits: 0 },
      { field: 'fewer_peak', heading: 'at once', digits: 0 },
      { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
      { field: 'after_mib', heading: 'MiB afterwards', digits: 0 },
    ],
    rows: [{ name: 'gateway', figures }],
  };
}
