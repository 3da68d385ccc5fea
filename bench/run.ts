// `npm run bench`: what the gateway costs, beside nginx as a bare proxy, the upstream asked directly, and other gateways, in
// one run on one machine. `--help` says the rest.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type Bench, type BenchOptions, tell, withBench } from './bench.ts';
import { checkRatios, describeCheck, readBaseline, writeBaseline } from './check.ts';
import { circumstances, loadBefore } from './machine.ts';
import { wholeNumber } from './options.ts';
import { isWholeRun, publishPart, publishRun, publishText } from './publish.ts';
import { merge, page, type Report, tables } from './report.ts';
import { bodies } from './scenarios/bodies.ts';
import { chunks } from './scenarios/chunks.ts';
import { coldKeys, fleetKeys } from './scenarios/cold-keys.ts';
import { coldStart } from './scenarios/cold-start.ts';
import { fullRate } from './scenarios/full-rate.ts';
import { memory } from './scenarios/memory.ts';
import { middleBodies } from './scenarios/middle-bodies.ts';
import { paced } from './scenarios/paced.ts';
import { peers } from './scenarios/peers.ts';
import type { Scenario } from './scenarios/scenario.ts';
import { streamLatency } from './scenarios/stream-latency.ts';
import { throughput } from './scenarios/throughput.ts';
import { missing, type Section, tableOf } from './section.ts';
import { BARE_NAMES } from './subjects/bare.ts';
import { nginxProgram } from './subjects/nginx.ts';
import { RUN_BLOCK } from './targets.ts';

const SCENARIOS: readonly Scenario[] = [
  throughput,
  paced,
  chunks,
  fullRate,
  streamLatency,
  memory,
  middleBodies,
  bodies,
  peers,
  coldStart,
  coldKeys,
  fleetKeys,
];
const NAMES = SCENARIOS.map(({ id, isLong }) => `${id}${isLong === true ? '*' : ''}`).join(', ');
const RESULTS = fileURLToPath(new URL('./RESULTS.md', import.meta.url));
const RESULTS_JSON = fileURLToPath(new URL('./results.json', import.meta.url));

/** The lengths of a run that counts. */
const WHOLE = { rounds: 5, seconds: 3, warmUpRequests: 200_000 };
const BUILD = fileURLToPath(new URL('../tools/build.ts', import.meta.url));
const BUILD_MS = 10 * 60_000;

const USAGE = `npm run bench -- [--peer] [--long] [--only NAMES] [--rounds N] [--seconds N] [--warm-up N] [--json] [--write]
npm run bench -- --short [--record]

  --peer        also other gateways: Portkey's from npm, LiteLLM from PyPI, One API as a Go module; installed once, under XDG_CACHE_HOME
                or ~/.cache; one that cannot be installed or started here is left out
  --long        also what takes minutes or needs Redis and PostgreSQL (marked * below)
  --only NAMES  only these, separated by commas: ${NAMES}
  --rounds N    rounds of each kind (default 5)
  --seconds N   length of a round (default 3)
  --warm-up N   requests before anything is measured (default 200000, which is what the compiler takes to settle)
  --json        figures as JSON on stdout
  --write       also write bench/RESULTS.md and bench/results.json, and the figures of docs/performance.md that are from here;
                with --only, what was written before stays, where it is of the same machine, versions, commit and lengths;
                without it, and with the default lengths or longer ones, the run is recorded in bench/runs.json, which the tables of
                targets are made of; with it, what the last recorded run could not measure is added to it, where it is of this commit

  --short       less than a minute: CPU time against a bare http-proxy-3's, and exit code 1 if the ratio is more than 25 %
                above that of bench/baseline.json
  --record      write bench/baseline.json instead

Needs Linux and nginx, which is installed where that is possible (Debian: apt-get install nginx-light).
`;

/** @returns the exit code */
async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: `${WHOLE.rounds}` },
      seconds: { type: 'string', default: `${WHOLE.seconds}` },
      'warm-up': { type: 'string', default: `${WHOLE.warmUpRequests}` },
      only: { type: 'string' },
      peer: { type: 'boolean', default: false },
      long: { type: 'boolean', default: false },
      short: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  if (process.platform !== 'linux') throw new Error('CPU time is read from /proc, which only Linux has');
  const number = (name: 'rounds' | 'seconds' | 'warm-up', max = 1_000) =>
    wholeNumber(name, values[name], max);
  const controller = new AbortController();
  let interrupted: NodeJS.Signals | undefined;
  const interrupt = (signal: NodeJS.Signals) => {
    interrupted = signal;
    controller.abort();
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  const lengths = { rounds: number('rounds'), seconds: number('seconds') };
  const warmUpRequests = number('warm-up', 10_000_000);
  const options = { ...lengths, peer: values.peer, signal: controller.signal, warmUpRequests };
  try {
    if (values.short) return await short(options, values.record);
    const scenarios = chosen(values.only, values.long);
    const load = loadBefore();
    const command = ['npm run bench --', ...argv].join(' ');
    const where = circumstances(await nginxProgram());
    const order = SCENARIOS.flatMap(({ sections: ids }) => ids);
    const reportOf = (sections: readonly Section[]): Report => {
      const measured: Report = { ...where, ...lengths, command, sections };
      return values.only === undefined ? measured : merge(earlier, measured, order);
    };
    const earlier = kept();
    // After each scenario: what is measured stays when a later one ends the run.
    const sections = await measure(options, scenarios, (done) => {
      if (values.write) write(reportOf(done));
    });
    const report = reportOf(sections);
    process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : `\n${tables(report)}`);
    if (values.write) {
      const others = sections.find(({ id }) => id === 'peers');
      if (others !== undefined && others.rows.length > 0)
        publishText('peers', `${tableOf(others)}\n${others.note}`, command, where);
      const isWhole = isWholeRun({ ...lengths, warmUpRequests }, WHOLE);
      if (values.only !== undefined && isWhole) publishPart(RUN_BLOCK, sections, where);
      else publishRun({ block: RUN_BLOCK, sections, command, load }, where, isWhole);
    }
    return 0;
  } catch (error) {
    if (interrupted === undefined) throw error;
    tell(`bench: stopped by ${interrupted}`);
    return interrupted === 'SIGINT' ? 130 : 143;
  }
}

function write(report: Report): void {
  writeFileSync(RESULTS, page(report));
  writeFileSync(RESULTS_JSON, `${JSON.stringify(report, null, 2)}\n`);
}

/** The results of the last run that was written. */
function kept(): unknown {
  try {
    return JSON.parse(readFileSync(RESULTS_JSON, 'utf8'));
  } catch {
    return undefined;
  }
}

function chosen(only: string | undefined, long: boolean): readonly Scenario[] {
  if (only === undefined) return SCENARIOS.filter(({ isLong }) => long || isLong !== true);
  return only.split(',').map((name) => {
    const scenario = SCENARIOS.find(({ id }) => id === name);
    if (scenario === undefined) throw new Error(`there is no ${name}; there are ${NAMES}`);
    return scenario;
  });
}

/** @param done called with the sections so far after each scenario */
async function measure(
  options: BenchOptions,
  scenarios: readonly Scenario[],
  done: (sections: readonly Section[]) => void,
): Promise<Section[]> {
  return withBench({ ...options, bare: BARE_NAMES }, async (bench) => {
    const sections: Section[] = [];
    // What operators start, and what starts and memory at rest are measured of.
    await bench.processes.run(process.execPath, [BUILD], BUILD_MS);
    const failed: string[] = [];
    for (const scenario of scenarios) {
      const began = performance.now();
      sections.push(...(await attempt(bench, scenario, sections, failed, options.signal)));
      tell(`${scenario.id}: ${((performance.now() - began) / 1000).toFixed(0)} s`);
      done(sections);
    }
    for (const why of failed) tell(`bench: ${why}`);
    return sections;
  });
}

/** A scenario that fails is said to have failed, and the figures of the others are not lost. */
async function attempt(
  bench: Bench,
  scenario: Scenario,
  known: readonly Section[],
  failed: string[],
  signal: AbortSignal | undefined,
): Promise<readonly Section[]> {
  try {
    return await scenario.run(bench, known);
  } catch (error) {
    if (signal?.aborted === true) throw error;
    const why = error instanceof Error ? error.message : String(error);
    tell(`${scenario.id} failed: ${why}`);
    failed.push(`${scenario.id} failed, the others did not; again with --only ${scenario.id}: ${why}`);
    process.exitCode = 1;
    return [missing(scenario.id, scenario.id, why)];
  }
}

async function short(options: Pick<BenchOptions, 'signal'>, record: boolean): Promise<number> {
  const baseline = record ? undefined : readBaseline();
  const check = await checkRatios(baseline, options);
  process.stdout.write(describeCheck(check));
  if (record) writeBaseline(check);
  return check.isWorse ? 1 : 0;
}

try {
  const code = await main(process.argv.slice(2));
  if (code !== 0) process.exitCode = code;
} catch (error) {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
