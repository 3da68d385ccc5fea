// What a request waits longer because of a proxy, at a fixed rate that does not wait for answers: half of what the gateway
// can do in the same run.
import { alternate, type Bench, CONCURRENCY } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { setApart } from '../processors.ts';
import { requestRound } from '../round.ts';
import { figureIn, type Section } from '../section.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

/** The generator is a new process in every round, and as long as it is being compiled it is late by itself. */
const WARM_MS = 5_000;
/** Of the table that no target looks at. */
const APART_ROUNDS = 3;

export const paced: Scenario = {
  id: 'paced',
  sections: ['paced', 'paced-apart'],
  async run(bench, known) {
    const most =
      figureIn(known, 'requests', 'gateway', 'per_second')?.median ??
      (
        await requestRound(bench.processes, bench.gateway, {
          kind: 'closed',
          connections: CONCURRENCY,
          ms: bench.seconds * 1000,
          requests: 1,
          pace: null,
        })
      )['per_second'];
    const rate = Math.floor((most ?? 0) / 2);
    const { processes, upstream, direct, nginx, gateway, bare } = bench;
    const few = [direct, nginx, gateway];
    const proxy = bare.filter(({ name }) => name === 'Node, http-proxy-3');
    const shared = await measure(bench, rate, [...few, ...proxy]);
    const apart = await setApart(
      processes,
      few.flatMap(({ pids }) => pids),
      [upstream.pid],
    );
    if (apart === undefined) return [shared];
    const rounds = Math.min(bench.rounds, APART_ROUNDS);
    const alone = await measure({ ...bench, rounds }, rate, few, apart.among);
    await apart.end();
    return [shared, alone];
  },
};

/** @param among starts the load generator where each proxy has a processor to itself */
async function measure(
  { processes, rounds, seconds }: Bench,
  per_second: number,
  subjects: readonly Subject[],
  among?: readonly string[],
): Promise<Section> {
  const ms = seconds * 1000;
  const asked = { kind: 'open', per_second, ms, warm_ms: WARM_MS, connections: CONCURRENCY } as const;
  const results = await alternate(`paced, ${per_second}/s`, subjects, rounds, (subject) =>
    requestRound(processes, subject, asked, among),
  );
  return {
    id: among === undefined ? 'paced' : 'paced-apart',
    title: `JSON answers, ${per_second} a second${among === undefined ? '' : ', proxies set apart'}`,
    note:
      among === undefined
        ? `Half of what the gateway did over ${CONCURRENCY} connections in this run, over as many, at random moments (a Poisson process, the same for everyone), ` +
          'whether or not earlier requests were answered. Latency counts from the moment at which a request was due, also when it had to wait for a connection, after ' +
          `${WARM_MS / 1000} s of the same load that are not timed. "Added" is over the upstream asked directly, within a round. ` +
          'Load generator, proxy and upstream share the processors.'
        : "The same where a proxy's event loop has a processor to itself and load generator and upstream share the others: the generator's clock wakes for every " +
          'request, and stops whoever runs on its processor. The difference between the two tables is what waits for a processor, and not for the proxy.',
    columns: [
      { field: 'added_p50_ms', heading: 'added p50 ms', digits: 2 },
      { field: 'added_p99_ms', heading: 'added p99 ms', digits: 2 },
      { field: 'p50_ms', heading: 'p50 ms', digits: 2 },
      { field: 'p99_ms', heading: 'p99 ms', digits: 2 },
      { field: 'cpu_us', heading: 'CPU µs/request', digits: 1 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
    ],
    rows: rowsOf(results, {
      gatewayIs: { cpu_ratio: 'cpu_us' },
      overDirect: { added_p50_ms: 'p50_ms', added_p99_ms: 'p99_ms' },
    }),
  };
}
