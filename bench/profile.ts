// Where a request's microseconds go: a CPU profile of the gateway under load, summed by parts of its source, by package and by
// parts of Node, as microseconds of a request or of a chunk. `node bench/profile.ts`; `--help` says the rest.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { type Bench, CONCURRENCY, tell, warmUp, withBench } from './bench.ts';
import { figureOf, type Row } from './figures.ts';
import { circumstances } from './machine.ts';
import { publishText } from './publish.ts';
import { costOf, requestRound, streamRound } from './round.ts';
import { type Section, tableOf } from './section.ts';
import { type GatewaySubject, startGateway } from './subjects/gateway.ts';

const USAGE = `node bench/profile.ts [--seconds N] [--streams] [--files] [--write]

  --seconds N  length of the load (default 5)
  --streams    chunks of streams instead of JSON answers
  --files      each file of the source by itself, instead of folders
  --write      also write the figures into docs/performance.md
`;

const ROOT = fileURLToPath(new URL('../', import.meta.url));
/** Rows that are shown; the others are summed up. */
const MAX_ROWS = 30;
/** The profiler itself, which takes no part in what is shown. */
const MEASURING = 'the profiler';
const STREAM_PACE = { frames: 200, every: 10, kind: 'exact' } as const;

const profileFile = z.object({
  nodes: z.array(
    z.object({
      id: z.number(),
      callFrame: z.object({ functionName: z.string(), url: z.string() }),
      children: z.array(z.number()).optional(),
    }),
  ),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});

type Profile = z.infer<typeof profileFile>;

interface Frame {
  readonly functionName: string;
  readonly url: string;
}

/** The part that a function belongs to; undefined for what has no place of its own and counts for its caller. */
function partOf({ functionName, url }: Frame, byFile: boolean): string | undefined {
  if (functionName === '(garbage collector)') return 'garbage collection';
  if (functionName === '(program)' || functionName === '(root)')
    return 'native code, system calls outside of JavaScript';
  // Built in, and native: part of what called it.
  if (url === '') return undefined;
  if (url.startsWith('node:inspector')) return MEASURING;
  if (url.startsWith('node:'))
    return url
      .split('/')
      .slice(0, byFile ? 9 : 2)
      .join('/');
  // Its parser of HTTP, the only WebAssembly here.
  if (url.startsWith('wasm:')) return 'package undici';
  const path = url.replace('file://', '');
  const modules = path.lastIndexOf('/node_modules/');
  if (modules !== -1) {
    const [first = '', second = ''] = path.slice(modules + '/node_modules/'.length).split('/');
    return `package ${first.startsWith('@') ? `${first}/${second}` : first}`;
  }
  const own = path.startsWith(ROOT) ? path.slice(ROOT.length) : path;
  if (own.startsWith('bench/')) return MEASURING;
  return byFile || own.split('/').length < 3 ? own : `${own.split('/').slice(0, 2).join('/')}/`;
}

/** The node of each sample that was not idle, and its time: until the next sample. */
function* busySamples({ nodes, samples, timeDeltas }: Profile): Generator<[id: number, time: number]> {
  const idle = new Set(
    nodes.filter(({ callFrame }) => callFrame.functionName === '(idle)').map(({ id }) => id),
  );
  for (const [index, id] of samples.entries())
    if (!idle.has(id)) yield [id, Math.max(0, timeDeltas[index + 1] ?? 0)];
}

/** Share of each part in the time that was neither idle nor the profiler's, from 0 to 1. */
export function sharesOf(profile: Profile, byFile: boolean): Map<string, number> {
  const { nodes } = profile;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(nodes.flatMap(({ id, children }) => (children ?? []).map((child) => [child, id])));
  const known = new Map<number, string>();
  const partFor = (id: number): string => {
    const found = known.get(id);
    if (found !== undefined) return found;
    const node = byId.get(id);
    const parent = parents.get(id);
    const own = node === undefined ? undefined : partOf(node.callFrame, byFile);
    const part = own ?? (parent === undefined ? 'unknown' : partFor(parent));
    known.set(id, part);
    return part;
  };
  const times = new Map<string, number>();
  let whole = 0;
  for (const [id, time] of busySamples(profile)) {
    const part = partFor(id);
    if (part === MEASURING) continue;
    times.set(part, (times.get(part) ?? 0) + time);
    whole += time;
  }
  return new Map(Array.from(times, ([part, time]) => [part, time / whole]));
}

/** Share, from 0 to 1, of what functions in a file under `places` did or called, in the time that was not idle. */
export function shareUnder(profile: Profile, places: readonly string[]): number {
  const { nodes } = profile;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const inside = new Set<number>();
  const enter = (id: number, isBelow: boolean): void => {
    const node = byId.get(id);
    if (node === undefined) return;
    const isIn = isBelow || places.some((place) => node.callFrame.url.includes(place));
    if (isIn) inside.add(id);
    for (const child of node.children ?? []) enter(child, isIn);
  };
  const children = new Set(nodes.flatMap((node) => node.children ?? []));
  for (const { id } of nodes) if (!children.has(id)) enter(id, false);
  let [part, whole] = [0, 0];
  for (const [id, time] of busySamples(profile)) {
    whole += time;
    if (inside.has(id)) part += time;
  }
  return part / whole;
}

/** Profiles a gateway that was started `inside` while `work` runs. @param file where the profile is written */
export async function profiled(
  gateway: GatewaySubject,
  file: string,
  work: () => Promise<unknown>,
): Promise<Profile> {
  const { process } = gateway;
  if (process === undefined) throw new Error('the gateway is no process');
  await process.ask('profile', /inside: profiling/);
  await work();
  await process.ask(`profiled ${file}`, /inside: profiled/, 60_000);
  return profileFile.parse(JSON.parse(readFileSync(file, 'utf8')));
}

interface Options {
  readonly seconds: number;
  readonly streams: boolean;
  readonly files: boolean;
}

async function measure(bench: Bench, { seconds, streams, files }: Options): Promise<Section> {
  const gateway = await startGateway(bench.processes, {
    folder: join(bench.folder, 'profiled'),
    upstream: bench.upstream.port,
    largeUpstream: bench.largeUpstream.port,
    inside: true,
  });
  await warmUp(bench.processes, gateway);
  // Its cost without the profiler, which is what the shares are of.
  const cost = (await load(bench, gateway, streams, seconds))['cpu_us'] ?? Number.NaN;
  const file = join(bench.folder, 'profile.json');
  const profile = await profiled(gateway, file, () =>
    costOf(gateway, () => load(bench, gateway, streams, seconds)),
  );
  const shares = sharesOf(profile, files);
  await gateway.stop();
  return sectionOf(shares, cost, streams);
}

function load(bench: Bench, gateway: GatewaySubject, streams: boolean, seconds: number) {
  if (!streams) {
    const asked = { kind: 'closed', connections: CONCURRENCY, requests: 1, pace: null } as const;
    return requestRound(bench.processes, gateway, { ...asked, ms: seconds * 1000 });
  }
  const times = Math.max(1, Math.round((seconds * 1000) / (STREAM_PACE.frames * STREAM_PACE.every)));
  const asked = { kind: 'streams', concurrency: CONCURRENCY, ramp_ms: 0, pace: STREAM_PACE } as const;
  return streamRound(bench.processes, gateway, { ...asked, times });
}

function sectionOf(shares: ReadonlyMap<string, number>, cost: number, streams: boolean): Section {
  const sorted = Array.from(shares).toSorted(([, a], [, b]) => b - a);
  const rest = sorted.slice(MAX_ROWS).reduce((sum, [, share]) => sum + share, 0);
  const all: [string, number][] = [
    ...sorted.slice(0, MAX_ROWS),
    ...(rest > 0 ? [['all others', rest] satisfies [string, number]] : []),
    ['together', 1],
  ];
  const rows = all.map(
    ([name, share]): Row => ({
      name,
      figures: { us: figureOf([share * cost]), percent: figureOf([share * 100]) },
    }),
  );
  const what = streams ? 'chunk' : 'request';
  return {
    id: 'profile',
    title: `CPU time of a ${what}`,
    note: '',
    columns: [
      { field: 'us', heading: `µs/${what}`, digits: 1 },
      { field: 'percent', heading: 'share', digits: 1, unit: ' %' },
    ],
    rows,
  };
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      seconds: { type: 'string', default: '5' },
      streams: { type: 'boolean', default: false },
      files: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const seconds = Number(values.seconds);
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 600)
    throw new Error('--seconds is from 1 to 600');
  const options = { seconds, streams: values.streams, files: values.files };
  // The one that the bench starts for comparing has nothing to do here.
  const section = await withBench({ rounds: 1, seconds, peer: false, warmUpRequests: 64 }, (bench) =>
    measure(bench, options),
  );
  process.stdout.write(`\n${tableOf(section)}`);
  if (values.write) {
    const command = ['node bench/profile.ts', ...argv].join(' ');
    const name = values.streams ? 'profile-chunk' : 'profile-request';
    publishText(name, tableOf(section), command, circumstances(undefined));
  }
}

if (import.meta.main) {
  await main(process.argv.slice(2)).catch((error) => {
    tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  });
}
