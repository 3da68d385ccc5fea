// How cost grows: with the size of bodies, with the rate of chunks, with the number of streams, with the memory for young objects. `node bench/growth.ts`;
// `--help` says the rest.
import { parseArgs } from 'node:util';
import { alternate, type Bench, CONCURRENCY, tell, warmUp, withBench } from './bench.ts';
import { type Row, rowsOf, type Sample } from './figures.ts';
import { circumstances } from './machine.ts';
import { wholeNumber } from './options.ts';
import { publishText } from './publish.ts';
import { requestRound, streamRound } from './round.ts';
import { newGateway, ofNewGateway, resident } from './scenarios/memory.ts';
import { type Section, tableOf } from './section.ts';
import { LAUNCHER } from './subjects/gateway.ts';
import { nginxProgram } from './subjects/nginx.ts';
import type { SubjectName } from './subjects/subject.ts';

const USAGE = `node bench/growth.ts [--rounds N] [--seconds N] [--only NAMES] [--write]

  --rounds N    rounds of each kind (default 2)
  --seconds N   length of a round (default 2)
  --only NAMES  only these, separated by commas: bodies, chunks, streams, young
  --write       also write the figures into docs/performance.md
`;

const KIB = 2 ** 10;
const PROXY: SubjectName = 'Node, http-proxy-3';
const SIZES = [1, 16, 256, 1024, 20 * 1024];
const EVERY_MS = [5, 20, 100];
const STREAMS = [64, 2_000];
/** Of many streams, one frame each in so many milliseconds. */
const SLOW_MS = 500;
/** Of V8, `--max-semi-space-size`: the memory for young objects is up to three times as large. */
const SEMI_SPACES_MIB = [1, 4, 16];
const YOUNG_WARM_UP = 50_000;

/** Rows of the proxies for one step, under a name that says which step it is. */
function named(rows: readonly Row[], step: string): Row[] {
  return rows.map((row) => ({ ...row, name: `${step}, ${row.name}` }));
}

async function bodies(bench: Bench): Promise<Section> {
  const { processes, rounds, seconds, nginx, gateway, bare } = bench;
  const rows: Row[] = [];
  for (const kib of SIZES) {
    const results = await alternate(`${kib} KiB`, [nginx, ...bare, gateway], rounds, async (subject) => {
      const asked = { kind: 'closed', connections: 4, ms: seconds * 1000, requests: 10, pace: null } as const;
      const sample = await requestRound(processes, subject, { ...asked, bytes: kib * KIB });
      return { cpu_us: sample['cpu_us'], per_second: sample['per_second'] };
    });
    rows.push(...named(rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }), `${kib} KiB`));
  }
  return {
    id: 'growth-bodies',
    title: 'Body of the request',
    note: '',
    columns: [
      { field: 'cpu_us', heading: 'CPU µs/request', digits: 0 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
      { field: 'per_second', heading: 'requests/s over 4 connections', digits: 0 },
    ],
    rows,
  };
}

async function chunks(bench: Bench): Promise<Section> {
  const { processes, rounds, seconds, nginx, gateway, bare } = bench;
  const rows: Row[] = [];
  for (const every of EVERY_MS) {
    const pace = {
      frames: Math.max(10, Math.round((seconds * 1000) / every)),
      every,
      kind: 'exact',
    } as const;
    const asked = { kind: 'streams', concurrency: CONCURRENCY, times: 1, ramp_ms: 0, pace } as const;
    const results = await alternate(
      `every ${every} ms`,
      [nginx, ...bare, gateway],
      rounds,
      async (subject) => {
        const { cpu_us, pieces_per_chunk } = await streamRound(processes, subject, asked);
        return { cpu_us, pieces_per_chunk };
      },
    );
    const step = `${Math.round((CONCURRENCY * 1000) / every)} chunks/s`;
    rows.push(...named(rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }), step));
  }
  return {
    id: 'growth-chunks',
    title: `${CONCURRENCY} streams`,
    note: '',
    columns: [
      { field: 'cpu_us', heading: 'CPU µs/chunk', digits: 1 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
      { field: 'pieces_per_chunk', heading: 'pieces/chunk', digits: 2 },
    ],
    rows,
  };
}

async function streams(bench: Bench): Promise<Section> {
  const { processes, rounds, seconds, nginx, gateway, bare } = bench;
  const rows: Row[] = [];
  for (const concurrency of STREAMS) {
    const frames = Math.max(12, Math.round((seconds * 1000) / SLOW_MS));
    const pace = { frames, every: SLOW_MS, kind: 'exact' } as const;
    const asked = { kind: 'streams', concurrency, times: 1, ramp_ms: 1_000, pace } as const;
    const results = await alternate(
      `${concurrency} streams`,
      [nginx, ...bare, gateway],
      rounds,
      async (subject) => {
        const { cpu_us, peak } = await streamRound(processes, subject, asked);
        const memory = subject === gateway ? await ofNewGateway(bench, concurrency) : {};
        return { cpu_us, peak, ...memory };
      },
    );
    rows.push(...named(rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }), `${concurrency} streams`));
  }
  return {
    id: 'growth-streams',
    title: `One frame in ${SLOW_MS} ms each`,
    note: '',
    columns: [
      { field: 'cpu_us', heading: 'CPU µs/chunk, with the beginning of streams', digits: 1 },
      { field: 'cpu_ratio', heading: 'gateway uses', digits: 2, unit: 'x' },
      { field: 'peak', heading: 'at once', digits: 0 },
      { field: 'kib_per_stream', heading: 'KiB/idle stream', digits: 1 },
      { field: 'after_mib', heading: 'resident MiB', digits: 0 },
    ],
    rows,
  };
}

async function young(bench: Bench): Promise<Section> {
  const { processes, rounds, seconds } = bench;
  const results = new Map<string, Sample[]>(SEMI_SPACES_MIB.map((mib) => [`${mib} MiB`, []]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const mib of round % 2 === 1 ? SEMI_SPACES_MIB : SEMI_SPACES_MIB.toReversed()) {
      const flags = [`--max-semi-space-size=${mib}`];
      const gateway = await newGateway(bench, { program: LAUNCHER, flags });
      await warmUp(processes, gateway, YOUNG_WARM_UP);
      const asked = { kind: 'closed', connections: CONCURRENCY, ms: seconds * 1000, requests: 1 } as const;
      const { cpu_us } = await requestRound(processes, gateway, { ...asked, pace: null });
      const pace = { frames: 50, every: 0, kind: 'exact' } as const;
      const streamed = await requestRound(processes, gateway, { ...asked, pace });
      await gateway.stop();
      const sample = { cpu_us, stream_us: streamed['cpu_us'], ...(await resident(bench, flags)) };
      results.get(`${mib} MiB`)?.push(sample);
      tell(`young ${round}/${rounds}  ${mib} MiB  ${JSON.stringify(sample)}`);
    }
  }
  return {
    id: 'growth-young',
    title: '`--max-semi-space-size`',
    note: '',
    columns: [
      { field: 'cpu_us', heading: 'CPU µs/request', digits: 1 },
      { field: 'stream_us', heading: 'CPU µs/stream of 50 chunks', digits: 0 },
      { field: 'rest_mb', heading: 'MB at rest', digits: 0 },
      { field: 'streams_mb', heading: 'MB with 2,000 idle streams', digits: 0 },
    ],
    rows: rowsOf(results),
  };
}

const PARTS = { bodies, chunks, streams, young };

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: '2' },
      seconds: { type: 'string', default: '2' },
      only: { type: 'string', default: Object.keys(PARTS).join() },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const number = (name: 'rounds' | 'seconds') => wholeNumber(name, values[name], 1_000);
  const asked = new Set(values.only.split(','));
  const parts = Object.entries(PARTS).filter(([name]) => asked.has(name));
  if (parts.length !== asked.size) throw new Error(`there are ${Object.keys(PARTS).join(', ')}`);
  const lengths = { rounds: number('rounds'), seconds: number('seconds') };
  // That part starts gateways of its own.
  const common = values.only === 'young' ? { warmUpRequests: 64 } : { bare: [PROXY] };
  await withBench({ ...lengths, peer: false, ...common }, async (bench) => {
    for (const [, measure] of parts) {
      const section = await measure(bench);
      process.stdout.write(`\n${tableOf(section)}`);
      if (!values.write) continue;
      const command = ['node bench/growth.ts', ...argv].join(' ');
      publishText(section.id, tableOf(section), command, circumstances(await nginxProgram()));
    }
  });
}

await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
});
