// The check of every change: CPU time of a request and of a streamed chunk as a multiple of a bare http-proxy-3's in the same
// run, compared with the recorded ratios. CPU time, because wall time says little on a shared machine. A fixed number of
// requests, so that the compiler is as far as it was when the baseline was recorded. Not nginx: JavaScript beside C differs by a
// factor of two between processors.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { alternate, type Bench, withBench } from './bench.ts';
import { type Figure, figureOf, rowsOf } from './figures.ts';
import { circumstances } from './machine.ts';
import { requestRound, streamRound } from './round.ts';
import { markdownTable, show } from './section.ts';
import type { SubjectName } from './subjects/subject.ts';

const FILE = fileURLToPath(new URL('./baseline.json', import.meta.url));
/** What a ratio may be above the recorded one. */
export const TOLERANCE = 0.25;

const ROUNDS = 3;
/** When a ratio is above its limit, it is measured again, so many times; the best of them counts: noise only adds. */
const REPEATS = 3;
const WARM_UP_REQUESTS = 15_000;
const REQUESTS = { kind: 'closed', connections: 64, ms: 0, requests: 2_500, pace: null } as const;
const STREAMS = {
  kind: 'streams',
  concurrency: 64,
  times: 1,
  ramp_ms: 0,
  pace: { frames: 80, every: 10, kind: 'exact' },
} as const;

const REFERENCE: SubjectName = 'Node, http-proxy-3';

const KINDS = ['request', 'chunk'] as const;
type Kind = (typeof KINDS)[number];

const baselineFile = z.object({
  /** CPU time of the gateway as a multiple of http-proxy-3's. */
  request: z.number().positive(),
  chunk: z.number().positive(),
  recorded: z.object({ machine: z.string(), versions: z.string(), commit: z.string(), date: z.string() }),
});

export type Baseline = z.infer<typeof baselineFile>;

/** @throws Error if the file is missing or is none */
export function readBaseline(): Baseline {
  return baselineFile.parse(JSON.parse(readFileSync(FILE, 'utf8')));
}

export interface Checked {
  readonly kind: Kind;
  readonly measured: Figure;
  /** The recorded ratio; undefined where nothing was to be compared. */
  readonly recorded: number | undefined;
  readonly isWorse: boolean;
}

export interface Check {
  readonly ratios: readonly Checked[];
  readonly isWorse: boolean;
  readonly baseline: Baseline;
}

/** Whether a ratio is worse than the recorded one by more than is allowed. */
export function isWorse(measured: number, recorded: number): boolean {
  return measured > recorded * (1 + TOLERANCE);
}

/** @param baseline undefined: measure only */
export async function checkRatios(
  baseline: Baseline | undefined,
  { signal }: { readonly signal?: AbortSignal } = {},
): Promise<Check> {
  const options = {
    rounds: ROUNDS,
    seconds: 1,
    peer: false,
    bare: [REFERENCE],
    warmUpRequests: WARM_UP_REQUESTS,
  };
  const ratios = await withBench({ ...options, ...(signal && { signal }) }, async (bench) => {
    const checked: Checked[] = [];
    // What the warm-up left to do, compiling and the ledger's writing, is not the next round's.
    await requestRound(bench.processes, bench.gateway, REQUESTS);
    for (const kind of KINDS) checked.push(await checkOne(bench, kind, baseline?.[kind]));
    return checked;
  });
  const measured = new Map(ratios.map((each) => [each.kind, each.measured.median]));
  const round = (kind: Kind) => Number((measured.get(kind) ?? Number.NaN).toFixed(3));
  const recorded = circumstances(undefined);
  return {
    ratios,
    isWorse: ratios.some((each) => each.isWorse),
    baseline: { request: round('request'), chunk: round('chunk'), recorded },
  };
}

async function checkOne(bench: Bench, kind: Kind, recorded: number | undefined): Promise<Checked> {
  let best: Figure | undefined;
  for (let attempt = 0; attempt <= REPEATS; attempt += 1) {
    const measured = await ratioOf(bench, kind);
    if (best === undefined || measured.median < best.median) best = measured;
    if (recorded === undefined || !isWorse(best.median, recorded)) break;
  }
  const measured = best ?? figureOf([]);
  return { kind, measured, recorded, isWorse: recorded !== undefined && isWorse(measured.median, recorded) };
}

async function ratioOf({ processes, rounds, gateway, bare }: Bench, kind: Kind): Promise<Figure> {
  const results = await alternate(`${kind}s`, [...bare, gateway], rounds, (subject) =>
    kind === 'request'
      ? requestRound(processes, subject, REQUESTS)
      : streamRound(processes, subject, STREAMS),
  );
  const row = rowsOf(results, { gatewayIs: { cpu_ratio: 'cpu_us' } }).find(({ name }) => name === REFERENCE);
  const ratio = row?.figures['cpu_ratio'];
  if (ratio === undefined) throw new Error('CPU time is not shown here');
  return ratio;
}

export function describeCheck({ ratios }: Check): string {
  const rows = ratios.map(({ kind, measured, recorded, isWorse: isBad }) => [
    `CPU per ${kind}`,
    show(measured, { digits: 2, unit: 'x' }),
    recorded === undefined ? '' : `${recorded.toFixed(2)}x`,
    recorded === undefined ? '' : `${(recorded * (1 + TOLERANCE)).toFixed(2)}x`,
    recorded === undefined ? '' : isBad ? 'worse' : 'ok',
  ]);
  return markdownTable(["Of http-proxy-3's", 'measured', 'recorded', 'at most', ''], rows);
}

export function writeBaseline({ baseline }: Check): void {
  writeFileSync(FILE, `${JSON.stringify(baseline, null, 2)}\n`);
}
