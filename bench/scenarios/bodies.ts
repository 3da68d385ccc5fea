// Large bodies of requests and of answers: what they cost, and what small requests wait beside them.
import { alternate, type Bench, CONCURRENCY } from '../bench.ts';
import { rowsOf, type Sample } from '../figures.ts';
import { requestRound, startLoad } from '../round.ts';
import type { Section } from '../section.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const MIB = 2 ** 20;
const SMALL_PER_SECOND = 200;
/** Between two large bodies. */
const PAUSE_MS = 200;

export const bodies: Scenario = {
  id: 'bodies',
  sections: ['bodies-1', 'bodies-20', 'beside-1', 'beside-20', 'beside-answers-20'],
  run: async (bench) => [
    await alone(bench, 1),
    await alone(bench, 20),
    await beside(bench, 1, 'bodies'),
    await beside(bench, 20, 'bodies'),
    await beside(bench, 20, 'answers'),
  ],
};

async function alone(bench: Bench, mib: number): Promise<Section> {
  const { processes, rounds, seconds, nginx, gateway } = bench;
  const results = await alternate(`${mib} MiB`, [nginx, gateway], rounds, async (subject) => {
    const asked = { kind: 'closed', connections: 1, ms: seconds * 1000, requests: 3, pace: null } as const;
    const { per_second, cpu_us } = await requestRound(processes, subject, { ...asked, bytes: mib * MIB });
    return {
      mib_per_second: (per_second ?? 0) * mib,
      cpu_ms: (cpu_us ?? Number.NaN) / 1000,
      cpu_us_per_mib: (cpu_us ?? Number.NaN) / mib,
    };
  });
  return {
    id: `bodies-${mib}`,
    title: `Bodies of ${mib} MiB`,
    note: `One after the other over one connection, each of ${mib} MiB; nginx passes them on as they come.`,
    columns: [
      { field: 'mib_per_second', heading: 'MiB/s', digits: 0 },
      { field: 'cpu_ms', heading: 'CPU ms/body', digits: 2 },
      { field: 'cpu_us_per_mib', heading: 'CPU µs/MiB', digits: 0 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
    ],
    rows: rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_ms' } }),
  };
}

/** What is large: the bodies of requests, or those of answers. */
type Large = 'bodies' | 'answers';

async function beside(bench: Bench, mib: number, large: Large): Promise<Section> {
  const { rounds, nginx, gateway } = bench;
  const results = await alternate(`beside ${large} of ${mib} MiB`, [nginx, gateway], rounds, (subject) =>
    smallBeside(bench, subject, mib, large),
  );
  return {
    id: large === 'bodies' ? `beside-${mib}` : `beside-answers-${mib}`,
    title: `Small requests beside ${large} of ${mib} MiB`,
    note:
      `${SMALL_PER_SECOND} small requests a second at random moments: alone, while ${large} of ${mib} MiB pass through the same process, ` +
      `${large === 'bodies' ? 'to' : 'from'} an upstream of their own, with ${PAUSE_MS} ms between two of them, and while they pass without pauses. ` +
      `Who sends and who takes the large ${large} uses the processors too, which is what the row of nginx shows.`,
    columns: [
      { field: 'alone_p99_ms', heading: 'p99 alone ms', digits: 2 },
      { field: 'beside_p99_ms', heading: 'p99 beside ms', digits: 2 },
      { field: 'p99_ratio', heading: 'beside/alone', digits: 2, unit: 'x' },
      { field: 'endless_p99_ms', heading: 'p99 without pauses ms', digits: 2 },
      { field: 'endless_ratio', heading: 'without pauses/alone', digits: 2, unit: 'x' },
      { field: 'alone_p50_ms', heading: 'p50 alone ms', digits: 2 },
      { field: 'beside_p50_ms', heading: 'p50 beside ms', digits: 2 },
      { field: 'endless_p50_ms', heading: 'p50 without pauses ms', digits: 2 },
    ],
    rows: rowsOf(results),
  };
}

async function smallBeside(
  { processes, seconds }: Bench,
  subject: Subject,
  mib: number,
  large: Large,
): Promise<Sample> {
  const small = {
    kind: 'open',
    per_second: SMALL_PER_SECOND,
    ms: seconds * 1000,
    warm_ms: 1_000,
    connections: CONCURRENCY,
  } as const;
  const alone = await requestRound(processes, subject, small);
  const besides = async (pause: { readonly pause_ms?: number }): Promise<Sample> => {
    const endless = { kind: 'closed', connections: 1, ms: 3_600_000, requests: 1, pace: null } as const;
    const size = large === 'bodies' ? { bytes: mib * MIB } : { answer_bytes: mib * MIB };
    const load = await startLoad(processes, subject, { ...endless, ...pause, ...size }, /began/);
    const sample = await requestRound(processes, subject, small);
    await load.stop();
    return sample;
  };
  const paused = await besides({ pause_ms: PAUSE_MS });
  const endless = await besides({});
  const ratio = (sample: Sample) => (sample['p99_ms'] ?? Number.NaN) / (alone['p99_ms'] ?? Number.NaN);
  return {
    alone_p50_ms: alone['p50_ms'],
    alone_p99_ms: alone['p99_ms'],
    beside_p50_ms: paused['p50_ms'],
    beside_p99_ms: paused['p99_ms'],
    p99_ratio: ratio(paused),
    endless_p50_ms: endless['p50_ms'],
    endless_p99_ms: endless['p99_ms'],
    endless_ratio: ratio(endless),
  };
}
