// From the rounds of the proxy bench to figures and text: medians, spreads, ratios within a round, and the page that is
// kept. It measures nothing.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpus, release, totalmem } from 'node:os';
import { CONCURRENCY, PACED_PER_SECOND, type RequestRound, type StreamRound } from './load.ts';
import { FRAME_EVERY_MS, FRAMES } from './traffic.ts';

/** The median of the rounds, with the least and the greatest of them. */
export interface Figure {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export interface Row {
  readonly name: string;
  readonly figures: Readonly<Record<string, Figure>>;
}

export interface Report {
  readonly full_load: readonly Row[];
  readonly paced: readonly Row[];
  readonly streams: readonly Row[];
}

/** What the page says about the run, beside its figures. */
export interface Circumstances {
  readonly versions: string;
  readonly rounds: number;
  readonly seconds: number;
}

/** Rounds by subject, in the order in which they ran: the ratios compare rounds of the same index. */
export type Rounds<Round> = ReadonlyMap<string, readonly Round[]>;

export function makeReport(
  fullLoad: Rounds<RequestRound>,
  paced: Rounds<RequestRound>,
  streams: Rounds<StreamRound>,
): Report {
  const fields = ['per_second', 'cpu_us', 'p50_ms', 'p99_ms'] as const;
  return {
    full_load: rows(fullLoad, fields),
    paced: rows(paced, fields),
    streams: rows(streams, ['cpu_us', 'pieces_per_chunk']),
  };
}

function rows<Round extends { readonly cpu_us: number | undefined }>(
  all: Rounds<Round>,
  fields: readonly (keyof Round & string)[],
): Row[] {
  const gateway = all.get('gateway') ?? [];
  return Array.from(all, ([name, rounds]) => {
    const figures: Record<string, Figure> = {};
    for (const field of fields) {
      const values = rounds.map((round) => round[field]).filter((value) => typeof value === 'number');
      if (values.length > 0) figures[field] = figureOf(values);
    }
    const ratios = gateway.flatMap(({ cpu_us }, index) => {
      const other = rounds[index]?.cpu_us;
      return cpu_us === undefined || other === undefined ? [] : [cpu_us / other];
    });
    if (name !== 'gateway' && ratios.length > 0) figures['gateway_ratio'] = figureOf(ratios);
    return { name, figures };
  });
}

function figureOf(values: readonly number[]): Figure {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return {
    median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2,
    min: at(0),
    max: at(sorted.length - 1),
  };
}

const REQUEST_COLUMNS = [
  ['per_second', 'requests/s', 0],
  ['cpu_us', 'CPU µs/request', 1],
  ['gateway_ratio', 'gateway is', 2],
  ['p50_ms', 'p50 ms', 2],
  ['p99_ms', 'p99 ms', 2],
] as const;

const STREAM_COLUMNS = [
  ['cpu_us', 'CPU µs/chunk', 1],
  ['gateway_ratio', 'gateway is', 2],
  ['pieces_per_chunk', 'pieces/chunk', 2],
] as const;

/** All tables, in Markdown that also reads well in a terminal. */
export function tables(report: Report): string {
  return [
    table('Requests, full load', report.full_load, REQUEST_COLUMNS),
    table('Requests, paced', report.paced, REQUEST_COLUMNS),
    table('Streams', report.streams, STREAM_COLUMNS),
  ].join('\n');
}

function table(
  title: string,
  all: readonly Row[],
  columns: readonly (readonly [field: string, heading: string, digits: number])[],
): string {
  const cells = [[title, ...columns.map(([, heading]) => heading)]];
  for (const { name, figures } of all) {
    const shown = columns.map(([field, , digits]) => show(figures[field], digits, field === 'gateway_ratio'));
    cells.push([name, ...shown]);
  }
  const widths = (cells[0] ?? []).map((_, i) => Math.max(...cells.map((row) => (row[i] ?? '').length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |\n`;
  const rule = widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`));
  const [head = [], ...rest] = cells;
  return line(head) + line(rule) + rest.map(line).join('');
}

function show(figure: Figure | undefined, digits: number, isRatio: boolean): string {
  if (figure === undefined) return '';
  const text = (value: number) => value.toFixed(digits);
  return `${text(figure.median)}${isRatio ? 'x' : ''} (${text(figure.min)}-${text(figure.max)})`;
}

/** How it was measured, for whoever reads the figures later. */
export function page(report: Report, { versions, rounds, seconds }: Circumstances): string {
  return `# What the gateway costs beside a bare proxy

Written by \`npm run bench -- --write bench/RESULTS.md\`. Figures of different machines do not compare; the ratios mostly do.

- Machine: ${describeMachine()}
- Versions: ${versions}
- Commit: ${describeCommit()}

${tables(report)}
Medians of ${rounds} rounds of ${seconds} s, with the least and the greatest in brackets. "gateway is" is the CPU time of the gateway
divided by that of the row, within a round: the rounds of all rows alternate, so that a slow moment of the machine hits all.

**Requests.** wrk keeps ${CONCURRENCY} connections busy with a chat completion of about 500 bytes, answered with about 600. The gateway
checks the key (known after the first request), rewrites the model both ways, writes its access log to a file and counts its
metrics. nginx is one worker with kept connections on both sides and passes bytes on; its second row also writes an access log.
CPU time is user and system time of the proxy's process, all threads, from before a round to after it.

**Full load** asks for as much as can be had. Requests a second and latencies are for information: load generator, proxy and
upstream share the machine's processors. It favours whoever is faster, whose event loop finds more to do in a turn and whose
peers are awake; nginx too costs more a request when it has fewer of them. **Paced** sends about ${PACED_PER_SECOND} a second to each.

**Streams.** ${CONCURRENCY} streams at once, each of ${FRAMES} frames, one every ${FRAME_EVERY_MS} ms and each written alone; the client compares every
byte with what was sent. The gateway also asks for usage and hides it. "pieces/chunk" near 1 says that chunks arrived one by one.
`;
}

function describeMachine(): string {
  const processors = cpus();
  const model = processors[0]?.model.trim() ?? 'unknown processor';
  return `${model}, ${processors.length} processors, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`;
}

/** @param nginx path of the program, like `wrk` */
export function describeVersions(nginx: string, wrk: string): string {
  // Both say it on the way to something else, one on stdout and one on stderr.
  const said = (program: string): string => {
    const { stdout, stderr } = spawnSync(program, ['-v'], { encoding: 'utf8', timeout: 10_000 });
    return /\d+\.\d+\.\d+/.exec(stdout + stderr)?.[0] ?? 'of unknown version';
  };
  return `Node ${process.versions.node}, nginx ${said(nginx)}, wrk ${said(wrk)}`;
}

function describeCommit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  try {
    const changed = git('status', '--porcelain', '--', '../src', '../package-lock.json') !== '';
    return `${git('rev-parse', '--short=12', 'HEAD')}${changed ? ' with changes' : ''}`;
  } catch {
    return 'unknown (no git repository)';
  }
}
