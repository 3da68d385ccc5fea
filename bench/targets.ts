// What the gateway is meant to cost at most, held against what was measured.
import type { Figure } from './figures.ts';
import { figureIn, markdownTable, type Section, show } from './section.ts';

interface Target {
  readonly text: string;
  readonly kind: 'at most' | 'at least';
  readonly limit: number;
  readonly digits: number;
  readonly unit: string;
  /** Section, row and field of the figure. */
  readonly at: readonly [section: string, row: string, field: string];
}

const TARGETS: readonly Target[] = [
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
    text: "CPU per stream of three frames, of nginx's",
    kind: 'at most',
    limit: 2.5,
    digits: 2,
    unit: 'x',
    at: ['brief-streams', 'nginx', 'cpu_ratio'],
  },
  {
    text: 'Words in time, of 50,000 a second in 1,000 streams',
    kind: 'at least',
    limit: 95,
    digits: 1,
    unit: ' %',
    at: ['full-rate', 'gateway', 'in_time_percent'],
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
    digits: 0,
    unit: ' MiB',
    at: ['memory-rest', 'gateway', 'rest_mib'],
  },
  {
    text: 'Resident memory with 2,000 idle streams',
    kind: 'at most',
    limit: 180,
    digits: 0,
    unit: ' MiB',
    at: ['memory-rest', 'gateway', 'streams_mib'],
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
];

export interface Verdict {
  readonly target: string;
  readonly limit: string;
  readonly measured: Figure | undefined;
  readonly met: 'yes' | 'no' | 'not measured';
}

/** By the medians; a figure that was not measured in this run is said to be so. */
export function judge(sections: readonly Section[]): Verdict[] {
  return TARGETS.map(({ text, kind, limit, unit, at }) => {
    const measured = figureIn(sections, ...at);
    const holds =
      measured !== undefined && (kind === 'at most' ? measured.median <= limit : measured.median >= limit);
    const met = measured === undefined ? 'not measured' : holds ? 'yes' : 'no';
    return { target: text, limit: `${kind} ${limit}${unit}`, measured, met };
  });
}

export function targetsTable(sections: readonly Section[]): string {
  const rows = judge(sections).map(({ target, limit, measured, met }, index) => {
    const { digits = 2, unit = '' } = TARGETS[index] ?? {};
    return [target, limit, show(measured, { digits, unit }), met];
  });
  return markdownTable(['Target', 'limit', 'measured', 'met'], rows);
}
