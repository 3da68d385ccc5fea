// What small requests wait beside large bodies of requests and of answers. What large bodies cost is in growth.ts.
import { alternate, type Bench, CONCURRENCY } from '../bench.ts';
import { rowsOf, type Sample } from '../figures.ts';
import { requestRound, startLoad } from '../round.ts';
import type { Section } from '../section.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const MIB = 20;
const LARGE_BYTES = MIB * 2 ** 20;
/** No target looks at them. */
const ANSWERS_ROUNDS = 3;
const SMALL_PER_SECOND = 200;
/** Between two large bodies. */
const PAUSE_MS = 200;

export const bodies: Scenario = {
  id: 'bodies',
  sections: ['beside-20', 'beside-answers-20'],
  run: async (bench) => [
    await beside(bench, 'bodies'),
    await beside({ ...bench, rounds: Math.min(bench.rounds, ANSWERS_ROUNDS) }, 'answers'),
  ],
};

/** What is large: the bodies of requests, or those of answers. */
type Large = 'bodies' | 'answers';

async function beside(bench: Bench, large: Large): Promise<Section> {
  const { rounds, nginx, gateway } = bench;
  const results = await alternate(`beside ${large} of ${MIB} MiB`, [nginx, gateway], rounds, (subject) =>
    smallBeside(bench, subject, large),
  );
  return {
    id: large === 'bodies' ? `beside-${MIB}` : `beside-answers-${MIB}`,
    title: `Small requests beside ${large} of ${MIB} MiB`,
    note:
      `${SMALL_PER_SECOND} small requests a second at random moments: alone, while ${large} of ${MIB} MiB pass through the same process, ` +
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

async function smallBeside({ processes, seconds }: Bench, subject: Subject, large: Large): Promise<Sample> {
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
    const size = large === 'bodies' ? { bytes: LARGE_BYTES } : { answer_bytes: LARGE_BYTES };
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
