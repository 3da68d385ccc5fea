// What the gateway is meant to cost at most, held against what was measured.
import type { Figure } from './figures.ts';
import { markdownTable, show } from './section.ts';

/** Where a figure is. */
export type At = readonly [section: string, row: string, field: string];

interface Limit {
  readonly kind: 'at most' | 'at least';
  readonly limit: number;
  readonly digits: number;
  readonly unit: string;
  readonly at: At;
}

export interface Target extends Limit {
  readonly text: string;
  /** Every round has to meet it. Default: the median. */
  readonly everyRound?: boolean;
  /** Meets the target, too. */
  readonly or?: Limit;
}

/** The block of docs/performance.md whose command measures what other sections than those of `bench/run.ts` have. */
const OTHER_BLOCKS: ReadonlySet<string> = new Set([
  'overload',
  'replicas',
  'workers',
  'keys',
  'many-streams',
]);
export const RUN_BLOCK = 'targets';

export const TARGETS: readonly Target[] = [
  {
    text: "CPU per JSON answer, 64 connections, of nginx's",
    kind: 'at most',
    limit: 3,
    digits: 2,
    unit: 'x',
    at: ['requests', 'nginx', 'cpu_ratio'],
  },
  {
    text: "CPU per JSON answer, 64 connections, of http-proxy-3's",
    kind: 'at most',
    limit: 0.6,
    digits: 2,
    unit: 'x',
    at: ['requests', 'Node, http-proxy-3', 'cpu_ratio'],
  },
  {
    text: "CPU per JSON answer at half of saturation, of nginx's",
    kind: 'at most',
    limit: 3,
    digits: 2,
    unit: 'x',
    at: ['paced', 'nginx', 'cpu_ratio'],
  },
  {
    text: "CPU per streamed chunk, of nginx's",
    kind: 'at most',
    limit: 2,
    digits: 2,
    unit: 'x',
    at: ['chunks', 'nginx', 'cpu_ratio'],
  },
  {
    text: "CPU to begin and end a stream (three frames), of nginx's",
    kind: 'at most',
    limit: 2.5,
    digits: 2,
    unit: 'x',
    at: ['brief-streams', 'nginx', 'cpu_ratio'],
  },
  {
    text: "Words in time, of 50,000 a second in 1,000 streams; or CPU per word, of nginx's",
    kind: 'at least',
    limit: 95,
    digits: 1,
    unit: ' %',
    at: ['full-rate', 'gateway', 'in_time_percent'],
    or: { kind: 'at most', limit: 1.5, digits: 2, unit: 'x', at: ['full-rate', 'nginx', 'cpu_ratio'] },
  },
  {
    text: "CPU per request with 4 to 256 KiB, the dearest kind, of nginx's",
    kind: 'at most',
    limit: 2.5,
    digits: 2,
    unit: 'x',
    at: ['middle-bodies', 'worst of all', 'of_nginx'],
  },
  {
    text: "Throughput of JSON answers, of Portkey's on the same Node",
    kind: 'at least',
    limit: 15,
    digits: 1,
    unit: 'x',
    at: ['peers', 'portkey', 'throughput_ratio'],
  },
  {
    text: 'Added p50 at half of saturation',
    kind: 'at most',
    limit: 0.5,
    digits: 2,
    unit: ' ms',
    at: ['paced', 'gateway', 'added_p50_ms'],
  },
  {
    text: 'Added p99 at half of saturation',
    kind: 'at most',
    limit: 3,
    digits: 2,
    unit: ' ms',
    at: ['paced', 'gateway', 'added_p99_ms'],
  },
  {
    text: 'Added p99 of the first word, 1,000 streams',
    kind: 'at most',
    limit: 3,
    digits: 2,
    unit: ' ms',
    at: ['streams-1000', 'gateway', 'added_first_p99_ms'],
  },
  {
    text: 'Memory of an idle stream, with 2,000',
    kind: 'at most',
    limit: 60,
    digits: 1,
    unit: ' KiB',
    at: ['memory', 'gateway', 'kib_per_stream'],
  },
  {
    text: 'Resident memory at rest',
    kind: 'at most',
    limit: 120,
    digits: 1,
    unit: ' MB',
    at: ['memory-rest', 'gateway', 'rest_mb'],
  },
  {
    text: 'Resident memory with 2,000 idle streams',
    kind: 'at most',
    limit: 180,
    digits: 1,
    unit: ' MB',
    at: ['memory-rest', 'gateway', 'streams_mb'],
  },
  {
    text: 'Streams at once in one process, byte for byte',
    kind: 'at least',
    limit: 10_000,
    digits: 0,
    unit: '',
    at: ['many-streams', 'gateway', 'peak'],
  },
  {
    text: 'p99 of small requests beside bodies of 20 MiB with pauses, of their p99 alone',
    kind: 'at most',
    limit: 2,
    digits: 2,
    unit: 'x',
    at: ['beside-20', 'gateway', 'p99_ratio'],
  },
  {
    text: 'p99 of small requests beside bodies of 20 MiB without pauses, of their p99 alone',
    kind: 'at most',
    limit: 2,
    digits: 2,
    unit: 'x',
    at: ['beside-20', 'gateway', 'endless_ratio'],
  },
  {
    text: '504 cold keys on three replicas with an empty Redis, until the last answer',
    kind: 'at most',
    limit: 15_000,
    digits: 0,
    unit: ' ms',
    at: ['fleet-keys', 'clients of the SDK, all at once', 'ms'],
  },
  {
    text: 'Clients of the SDK that gave up meanwhile',
    kind: 'at most',
    limit: 0,
    digits: 0,
    unit: '',
    at: ['fleet-keys', 'clients of the SDK, all at once', 'gave_up'],
  },
  {
    text: 'First answer after `npm start`',
    kind: 'at most',
    limit: 350,
    digits: 0,
    unit: ' ms',
    at: ['cold-start', 'npm start', 'answered_ms'],
  },
  {
    text: 'Answers in time at three times saturation, of the peak, kept connections, every run',
    kind: 'at least',
    limit: 95,
    digits: 1,
    unit: ' %',
    at: ['overload', 'kept connections', 'share'],
    everyRound: true,
  },
  {
    text: 'Answers in time at three times saturation, of the peak, a new connection for each request, every run',
    kind: 'at least',
    limit: 95,
    digits: 1,
    unit: ' %',
    at: ['overload', 'a new connection for each request', 'share'],
    everyRound: true,
  },
  {
    text: 'CPU per request of a replica with Redis and PostgreSQL, of one process without',
    kind: 'at most',
    limit: 1.15,
    digits: 2,
    unit: 'x',
    at: ['replicas', '1 replica', 'of_one'],
  },
  {
    text: 'Commands of Redis for a request, three replicas',
    kind: 'at most',
    limit: 6,
    digits: 2,
    unit: '',
    at: ['replicas', '3 replicas', 'commands'],
  },
  {
    text: 'CPU of Redis for a request, three replicas',
    kind: 'at most',
    limit: 12,
    digits: 1,
    unit: ' µs',
    at: ['replicas', '3 replicas', 'redis_us'],
  },
  {
    text: 'Throughput of two workers, of one process',
    kind: 'at least',
    limit: 1.8,
    digits: 2,
    unit: 'x',
    at: ['workers', 'two workers', 'of_one'],
  },
  {
    text: 'CPU of the second use of a key, of a hot one',
    kind: 'at most',
    limit: 1.2,
    digits: 2,
    unit: 'x',
    at: ['keys', 'many keys', 'second_of_hot'],
  },
];

export interface Verdict {
  readonly text: string;
  readonly limit: string;
  /** Empty where it was not measured. */
  readonly measured: string;
  readonly met: 'yes' | 'no' | 'not measured';
}

/** The block whose command measures a target. */
export function blockOf({ at: [section] }: Target): string {
  return OTHER_BLOCKS.has(section) ? section : RUN_BLOCK;
}

/** @param find the figure, where it was measured */
export function judge(target: Target, find: (at: At) => Figure | undefined): Verdict {
  const limits = target.or === undefined ? [target] : [target, target.or];
  const found = limits.flatMap((limit) => {
    const figure = find(limit.at);
    return figure === undefined ? [] : [{ limit, figure }];
  });
  const isMet = found.some(({ limit, figure }) => holds(limit, figure, target.everyRound === true));
  return {
    text: target.text,
    limit: limits.map(({ kind, limit, unit }) => `${kind} ${limit}${unit}`).join('; or '),
    measured: found.map(({ limit, figure }) => show(figure, limit)).join('; '),
    met: isMet ? 'yes' : found.length < limits.length ? 'not measured' : 'no',
  };
}

function holds({ kind, limit }: Limit, { median, min, max }: Figure, everyRound: boolean): boolean {
  return kind === 'at most' ? (everyRound ? max : median) <= limit : (everyRound ? min : median) >= limit;
}

/** The targets that `bench/run.ts` measures. */
export function targetsTable(find: (at: At) => Figure | undefined): string {
  const rows = TARGETS.filter((target) => blockOf(target) === RUN_BLOCK).map((target) => {
    const { text, limit, measured, met } = judge(target, find);
    return [text, limit, measured, met];
  });
  return markdownTable(['Target', 'limit', 'measured', 'met'], rows);
}
