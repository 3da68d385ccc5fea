// What a request waits longer because of a proxy, at a fixed rate that does not wait for answers: half of what the gateway
// can do in the same run.
import { alternate, CONCURRENCY } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { setApart } from '../processors.ts';
import { requestRound } from '../round.ts';
import { figureIn } from '../section.ts';
import type { Scenario } from './scenario.ts';

/** The generator is a new process in every round, and as long as it is being compiled it is late by itself. */
const WARM_MS = 8_000;

export const paced: Scenario = {
  id: 'paced',
  sections: ['paced'],
  async run({ processes, rounds, seconds, upstream, direct, nginx, nginxLogged, gateway }, known) {
    const ms = seconds * 1000;
    const most =
      figureIn(known, 'requests', 'gateway', 'per_second')?.median ??
      (
        await requestRound(processes, gateway, {
          kind: 'closed',
          connections: CONCURRENCY,
          ms,
          requests: 1,
          pace: null,
        })
      )['per_second'];
    const per_second = Math.floor((most ?? 0) / 2);
    const subjects = [direct, nginx, nginxLogged, gateway];
    const apart = await setApart(
      processes,
      [...new Set(subjects.flatMap(({ pids }) => pids))],
      [upstream.pid],
    );
    const asked = { kind: 'open', per_second, ms, warm_ms: WARM_MS, connections: CONCURRENCY } as const;
    const results = await alternate(`paced, ${per_second}/s`, subjects, rounds, (subject) =>
      requestRound(processes, subject, asked, apart?.among),
    );
    await apart?.end();
    return [
      {
        id: 'paced',
        title: `JSON answers, ${per_second} a second`,
        note:
          `Half of what the gateway did over ${CONCURRENCY} connections in this run, over as many, at random moments (a Poisson process, the same for everyone), ` +
          'whether or not earlier requests were answered. Latency counts from the moment at which a request was due, also when it had to wait for a connection, after ' +
          `${WARM_MS / 1000} s of the same load that are not timed. "Added" is over the upstream asked directly, within a round. ` +
          (apart === undefined
            ? 'Load generator, proxy and upstream share the processors.'
            : "A proxy's event loop has a processor to itself; load generator and upstream share the others."),
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
      },
    ];
  },
};
