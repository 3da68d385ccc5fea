// What the console costs a replica at full load: its share in a CPU profile while browsers have the page *Now* open, and the CPU time of a
// request with and without them, one after the other in one run. `node bench/console.ts`; `--help` says the rest.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONCURRENCY, tell, warmUp } from './bench.ts';
import { cpuMicroseconds } from './cpu.ts';
import { rowsOf, type Sample } from './figures.ts';
import { ConsoleBrowser, signIn } from './load/console-browser.ts';
import { circumstances } from './machine.ts';
import { MISSED, wholeNumber } from './options.ts';
import { Processes } from './processes.ts';
import { profiled, shareUnder } from './profile.ts';
import { publishText } from './publish.ts';
import { requestRound } from './round.ts';
import { tableOf } from './section.ts';
import { startUpstream } from './subjects/direct.ts';
import { type GatewaySubject, MAIN, startGateway } from './subjects/gateway.ts';

/** Percent of a processor, in the median. */
const GOAL = 2;
/** Where functions of the console are. */
const PLACES = ['/src/console/', '/src/http/admin/'];
const FILES = 4096;
const COMMAND_MS = 5 * 60_000;

const USAGE = `node bench/console.ts [--browsers N] [--rounds N] [--seconds N] [--write]

  --browsers N  (default 20)
  --rounds N    pairs, each second one the other way round (default 3)
  --seconds N   length of a round (default 10: two samples of the figures)
  --write       also write the figures into docs/performance.md

Exit code 2 if the console has ${GOAL} % or more of the profile.
`;

interface Options {
  readonly browsers: number;
  readonly rounds: number;
  readonly seconds: number;
}

async function withBrowsers<Result>(
  { adminUrl }: GatewaySubject,
  cookies: readonly string[],
  work: () => Promise<Result>,
): Promise<Result> {
  const browsers = cookies.map((cookie) => new ConsoleBrowser(adminUrl, cookie));
  try {
    await Promise.all(browsers.map((browser) => browser.open()));
    const before = browsers.reduce((sum, { events }) => sum + events, 0);
    const result = await work();
    const events = browsers.reduce((sum, each) => sum + each.events, 0) - before;
    if (events < browsers.length) throw new Error(`${browsers.length} browsers had ${events} events`);
    return result;
  } finally {
    for (const browser of browsers) browser.close();
  }
}

/** Percent of a processor that a gateway without requests takes. */
async function alone({ pids }: GatewaySubject, seconds: number): Promise<number> {
  const used = () => pids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
  const [before, begun] = [used(), performance.now()];
  await setTimeout(seconds * 1000);
  return (used() - before) / ((performance.now() - begun) * 10);
}

async function measure(options: Options): Promise<Map<string, Sample[]>> {
  const { browsers: count, rounds, seconds } = options;
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  const processes = new Processes();
  try {
    const { port } = await startUpstream(processes, FILES);
    const ports = { upstream: port, largeUpstream: port };
    const gateway = await startGateway(processes, {
      folder: join(folder, 'gateway'),
      files: FILES,
      inside: true,
      ...ports,
    });
    const profileFile = join(folder, 'profile.json');
    const add = [MAIN, 'operators', 'add', 'bench', '--role', 'admin', '--config', gateway.configFile];
    const token = (await processes.run(process.execPath, add, COMMAND_MS)).trim();
    const cookies: string[] = [];
    while (cookies.length < count) cookies.push(await signIn(gateway.adminUrl, token));
    await warmUp(processes, gateway, seconds * 2000);
    const asked = { kind: 'closed', connections: CONCURRENCY, requests: 1, pace: null } as const;
    const round = () => requestRound(processes, gateway, { ...asked, ms: seconds * 1000 });
    const results = new Map<string, Sample[]>();
    const [without, open] = ['no browser', `${count} browsers`];
    for (let number = 1; number <= rounds; number += 1) {
      const pair: Record<string, Sample> = {};
      for (const name of number % 2 === 1 ? [without, open] : [open, without])
        pair[name] = name === without ? await round() : await withBrowsers(gateway, cookies, round);
      const [bare, busy] = [pair[without]?.['cpu_us'], pair[open]?.['cpu_us']];
      const cost = 100 * (Number(busy) / Number(bare) - 1);
      const idle = await alone(gateway, seconds);
      const share = await withBrowsers(gateway, cookies, () => alone(gateway, seconds));
      const profile = await withBrowsers(gateway, cookies, () => profiled(gateway, profileFile, round));
      const part = 100 * shareUnder(profile, PLACES);
      results.set(without, [...(results.get(without) ?? []), { ...pair[without], share: idle }]);
      results.set(open, [...(results.get(open) ?? []), { ...pair[open], part, cost, share }]);
      tell(
        `console ${number}/${rounds}  ${bare?.toFixed(1)} and ${busy?.toFixed(1)} µs: ${cost.toFixed(2)} %; in a profile ${part.toFixed(2)} %; ` +
          `without requests ${idle.toFixed(2)} and ${share.toFixed(2)} %`,
      );
    }
    return results;
  } finally {
    await processes.stopAll();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @returns the exit code */
async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      browsers: { type: 'string', default: '20' },
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '10' },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const number = (name: keyof Options) => wholeNumber(name, values[name], 100);
  const options = { browsers: number('browsers'), rounds: number('rounds'), seconds: number('seconds') };
  const rows = rowsOf(await measure(options));
  const table = tableOf({
    id: 'console',
    title: `JSON answers, ${CONCURRENCY} connections`,
    note: '',
    columns: [
      { field: 'per_second', heading: 'requests/s', digits: 0 },
      { field: 'cpu_us', heading: 'CPU µs/request', digits: 1 },
      { field: 'part', heading: 'of a profile', digits: 2, unit: ' %' },
      { field: 'cost', heading: 'more, in the same pair', digits: 2, unit: ' %' },
      { field: 'share', heading: 'of a processor, without requests', digits: 2, unit: ' %' },
    ],
    rows,
  });
  process.stdout.write(`\n${table}`);
  const command = ['node bench/console.ts', ...argv].join(' ');
  if (values.write) publishText('console', table, command, circumstances(undefined));
  return (rows.at(-1)?.figures['part']?.median ?? Number.NaN) < GOAL ? 0 : MISSED;
}

process.exitCode = await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  return 1;
});
