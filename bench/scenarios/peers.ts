// Other gateways on the same load: what a request and a chunk cost, how many requests there are a second, how long the first word takes,
// and how much memory is resident afterwards.
import { alternate, CONCURRENCY, tell } from '../bench.ts';
import { residentBytes } from '../cpu.ts';
import { rowsOf, type Sample } from '../figures.ts';
import { requestRound, streamRound } from '../round.ts';
import { missing } from '../section.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const ID = 'peers';
const TITLE = 'Other gateways';
const EVERY_MS = 20;
/** They differ so much that more rounds say no more. */
const MAX_ROUNDS = 3;

export const peers: Scenario = {
  id: ID,
  sections: [ID],
  async run({ processes, rounds: all, seconds, direct, gateway, peers: others }) {
    if (others.length === 0) return [missing(ID, TITLE, 'without `--peer`, or none could be started')];
    const ms = seconds * 1000;
    const rounds = Math.min(all, MAX_ROUNDS);
    const pace = { frames: Math.max(10, Math.round(ms / EVERY_MS)), every: EVERY_MS, kind: 'timed' } as const;
    const measure = async (subject: Subject): Promise<Sample> => {
      const answers = await requestRound(processes, subject, {
        kind: 'closed',
        connections: CONCURRENCY,
        ms,
        requests: 1,
        pace: null,
      });
      const streams = await streamRound(processes, subject, {
        kind: 'streams',
        concurrency: CONCURRENCY,
        times: 1,
        ramp_ms: ms / 2,
        pace,
      });
      const resident = subject.pids.reduce((sum, pid) => sum + residentBytes(pid), 0);
      return {
        cpu_us: answers['cpu_us'],
        per_second: answers['per_second'],
        p50_ms: answers['p50_ms'],
        p99_ms: answers['p99_ms'],
        first_p50_ms: streams['first_p50_ms'],
        first_p99_ms: streams['first_p99_ms'],
        chunk_us: streams['cpu_us'],
        resident_mib: subject.pids.length === 0 ? undefined : resident / 2 ** 20,
      };
    };
    const subjects = [direct, gateway, ...others];
    const results = await alternate(ID, subjects, rounds, async (subject) => {
      try {
        return await measure(subject);
      } catch (error) {
        if (!others.includes(subject)) throw error;
        tell(`bench: a round is left out: ${error instanceof Error ? error.message : String(error)}`);
        return {};
      }
    });
    return [
      {
        id: ID,
        title: TITLE,
        note:
          `JSON answers over ${CONCURRENCY} connections, and ${CONCURRENCY} streams of a word in ${EVERY_MS} ms that begin one after the other, with what they cost to begin. ` +
          'The gateway has everything on. **portkey** checks no key and counts nothing. **litellm** is as it comes; **key and limits** has a master key, and limits of ' +
          'requests and tokens a minute, which is what it does without a database. **one api** always checks a key, counts its quota and logs each request. ' +
          '"Gateway does" and "gateway uses" compare with the row.',
        columns: [
          { field: 'cpu_us', heading: 'CPU µs/request', digits: 1 },
          { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
          { field: 'per_second', heading: 'requests/s', digits: 0 },
          { field: 'throughput_ratio', heading: 'gateway does', digits: 1, unit: 'x' },
          { field: 'p50_ms', heading: 'p50 ms', digits: 1 },
          { field: 'p99_ms', heading: 'p99 ms', digits: 1 },
          { field: 'added_first_p50_ms', heading: 'added first word p50 ms', digits: 2 },
          { field: 'added_first_p99_ms', heading: 'p99', digits: 2 },
          { field: 'chunk_us', heading: 'CPU µs/chunk', digits: 1 },
          { field: 'chunk_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
          { field: 'resident_mib', heading: 'resident MiB', digits: 0 },
        ],
        rows: rowsOf(results, {
          gatewayIs: { cpu_ratio: 'cpu_us', throughput_ratio: 'per_second', chunk_ratio: 'chunk_us' },
          overDirect: { added_first_p50_ms: 'first_p50_ms', added_first_p99_ms: 'first_p99_ms' },
        }),
      },
    ];
  },
};
