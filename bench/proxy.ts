// What the gateway costs: CPU time of a request and of a streamed chunk, next to nginx as a bare reverse proxy, in the same
// run on the same machine. `npm run bench`; `--help` says the rest. Everything is on loopback, and stopped at the end.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  checkAnswer,
  type RequestRound,
  requestRound,
  type StreamRound,
  streamRound,
  writeWrkScript,
} from './load.ts';
import { findProgram, Processes } from './processes.ts';
import { describeVersions, makeReport, page, type Report, tables } from './report.ts';
import { type Subject, startGateway, startNginx, startUpstream } from './servers.ts';

const USAGE = `node bench/proxy.ts [--rounds N] [--seconds N] [--short] [--json] [--write FILE]

  --rounds N    rounds of each kind (default 5)
  --seconds N   length of a round (default 4)
  --short       about 20 seconds in all: 2 rounds of 1 second
  --json        figures as JSON on stdout
  --write FILE  also write them to FILE, in Markdown, with machine, versions and method

Needs Linux, nginx and wrk: apt-get install nginx-light wrk
(other systems: package nginx or nginx-core, and wrk from its package or https://github.com/wg/wrk).
`;

interface Options {
  readonly rounds: number;
  /** Of the kinds of load that are slower to run: paced requests and streams. */
  readonly paced_rounds: number;
  readonly warm_ups: number;
  readonly seconds: number;
  readonly json: boolean;
  readonly write: string | undefined;
  readonly nginx: string;
  readonly wrk: string;
}

/** The options; undefined, after saying why, when there is nothing to run. */
function readOptions(argv: string[]): Options | undefined {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      short: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      write: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return undefined;
  }
  if (process.platform !== 'linux') throw new Error('CPU time is read from /proc, which only Linux has');
  const nginx = findProgram('nginx');
  const wrk = findProgram('wrk');
  if (nginx === undefined || wrk === undefined) {
    const missing = [nginx ?? 'nginx', wrk ?? 'wrk'].filter((name) => !name.includes('/'));
    throw new Error(
      `${missing.join(' and ')} ${missing.length === 1 ? 'is' : 'are'} not installed. On Debian and Ubuntu: ` +
        'apt-get install nginx-light wrk. Elsewhere: nginx from its package, wrk from its package or https://github.com/wg/wrk',
    );
  }
  const number = (text: string | undefined, otherwise: number): number => {
    const value = Number(text ?? otherwise);
    if (Number.isInteger(value) && value >= 1 && value <= 1_000) return value;
    throw new Error('--rounds and --seconds are whole numbers from 1 to 1000');
  };
  const rounds = number(values.rounds, values.short ? 2 : 5);
  return {
    rounds,
    warm_ups: values.short ? 1 : 3,
    paced_rounds: values.short ? Math.ceil(rounds / 2) : rounds,
    seconds: number(values.seconds, values.short ? 1 : 4),
    json: values.json,
    write: values.write,
    nginx,
    wrk,
  };
}

/** Progress goes to stderr: stdout is for the figures. */
function tell(text: string): void {
  process.stderr.write(`${text}\n`);
}

async function measure(processes: Processes, folder: string, options: Options): Promise<Report> {
  const { rounds, paced_rounds, seconds, wrk } = options;
  const upstream = await startUpstream(processes);
  const nginx = await startNginx(processes, options.nginx, join(folder, 'nginx'), upstream.port);
  const gateway = await startGateway(processes, join(folder, 'gateway'), upstream.port);
  const subjects: readonly Subject[] = [upstream, ...nginx, gateway];
  const full = writeWrkScript(folder, gateway.key, 'full');
  const paced = writeWrkScript(folder, gateway.key, 'paced');
  const requests = (script: string) => (subject: Subject) =>
    requestRound(processes, wrk, script, subject, seconds);
  const streams = (subject: Subject) => streamRound(processes, subject, gateway.key, seconds);

  for (const subject of subjects) await checkAnswer(subject, gateway.key);
  tell('Every answer is right. Warming up.');
  // The compiler takes tens of thousands of requests to settle.
  for (let i = 0; i < options.warm_ups; i++) await requests(full)(gateway);
  const atFull = await alternate('full load', subjects, rounds, requests(full));
  const atPace = await alternate('paced', [...nginx, gateway], paced_rounds, requests(paced));
  await streams(gateway);
  const inStreams = await alternate('streams', [nginx[0], gateway], paced_rounds, streams);
  return makeReport(atFull, atPace, inStreams);
}

/** Every subject in every round, each second round backwards, so that what drifts does not favour the last. */
async function alternate<Round extends RequestRound | StreamRound>(
  what: string,
  subjects: readonly Subject[],
  rounds: number,
  run: (subject: Subject) => Promise<Round>,
): Promise<Map<string, Round[]>> {
  const all = new Map<string, Round[]>(subjects.map(({ name }) => [name, []]));
  for (let round = 1; round <= rounds; round++) {
    for (const subject of round % 2 === 1 ? subjects : subjects.toReversed()) {
      const result = await run(subject);
      all.get(subject.name)?.push(result);
      const cost = result.cpu_us === undefined ? '' : `${result.cpu_us.toFixed(1)} µs`;
      tell(`${what.padEnd(10)}${round}/${rounds}  ${subject.name.padEnd(18)}${cost}`);
    }
  }
  return all;
}

/** @returns the exit code */
async function main(argv: string[]): Promise<number> {
  const processes = new Processes();
  let folder: string | undefined;
  let interrupted: NodeJS.Signals | undefined;
  const interrupt = (signal: NodeJS.Signals) => {
    interrupted = signal;
    // What waits for one of them fails, and so leads to the end below.
    void processes.stopAll();
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  try {
    const options = readOptions(argv);
    if (options === undefined) return 0;
    folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
    const report = await measure(processes, folder, options);
    process.stdout.write(options.json ? `${JSON.stringify(report, null, 2)}\n` : `\n${tables(report)}`);
    if (options.write !== undefined) {
      const versions = describeVersions(options.nginx, options.wrk);
      writeFileSync(options.write, page(report, { ...options, versions }));
    }
    return 0;
  } catch (error) {
    if (interrupted === undefined) {
      tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
      return 1;
    }
    tell(`bench: stopped by ${interrupted}`);
    return interrupted === 'SIGINT' ? 130 : 143;
  } finally {
    await processes.stopAll();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main(process.argv.slice(2));
