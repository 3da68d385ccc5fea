// As much as can be had over 64 connections: JSON answers, and streams that are hardly more than their beginning and their end; with what
// each costs in CPU time.
import { alternate, CONCURRENCY } from '../bench.ts';
import { rowsOf } from '../figures.ts';
import { requestRound } from '../round.ts';
import type { Column } from '../section.ts';
import type { Scenario } from './scenario.ts';

const FRAMES = 3;

const columns = (what: string): Column[] => [
  { field: 'per_second', heading: `${what}s/s`, digits: 0 },
  { field: 'throughput_ratio', heading: 'gateway does', digits: 2, unit: 'x' },
  { field: 'cpu_us', heading: `CPU µs/${what}`, digits: 1 },
  { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
  { field: 'p50_ms', heading: 'p50 ms', digits: 2 },
  { field: 'p99_ms', heading: 'p99 ms', digits: 2 },
];
const COMPARISONS = { gatewayIs: { throughput_ratio: 'per_second', cpu_ratio: 'cpu_us' } };

export const throughput: Scenario = {
  id: 'throughput',
  sections: ['requests', 'brief-streams'],
  async run({ processes, rounds, seconds, direct, nginx, nginxLogged, gateway, bare }) {
    const common = { kind: 'closed', connections: CONCURRENCY, ms: seconds * 1000, requests: 1 } as const;
    const subjects = [direct, nginx, nginxLogged, gateway, ...bare];
    const answers = await alternate('requests', subjects, rounds, (subject) =>
      requestRound(processes, subject, { ...common, pace: null }),
    );
    // A line of a log for each stream says no more than one for each request.
    const unlogged = subjects.filter((subject) => subject !== nginxLogged);
    const streams = await alternate('brief streams', unlogged, rounds, (subject) =>
      requestRound(processes, subject, { ...common, pace: { frames: FRAMES, every: 0, kind: 'exact' } }),
    );
    return [
      {
        id: 'requests',
        title: `JSON answers, ${CONCURRENCY} connections`,
        note:
          'Each connection asks again as soon as it is answered: a chat completion with the header block that the official SDK sends and a body of about 500 bytes, ' +
          'answered with the headers that api.openai.com sends and about 1,000 bytes. ' +
          'Load generator, proxy and upstream share the processors, so that requests a second are for comparing within the table.',
        columns: columns('request'),
        rows: rowsOf(answers, COMPARISONS),
      },
      {
        id: 'brief-streams',
        title: `Streams of ${FRAMES} frames, ${CONCURRENCY} connections`,
        note: 'A role, a word and a finish reason: what it costs to begin and to end a stream.',
        columns: columns('stream'),
        rows: rowsOf(streams, COMPARISONS),
      },
    ];
  },
};
