// The runs that were recorded: a figure that holds in one run alone is no result. A run is that of one command, of its default lengths or
// longer; it has the figures of the targets, and those of the references in the same run. It measures nothing.
import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import type { Figure } from './figures.ts';
import type { Circumstances } from './machine.ts';
import { figureIn, markdownTable, type Section } from './section.ts';
import { type At, blockOf, judge, RUN_BLOCK, TARGETS } from './targets.ts';

const FILE = new URL('./runs.json', import.meta.url);
/** Of each command. */
const MAX_SHOWN = 6;

const PROXIES = ['nginx', 'Node, sockets', 'Node, server', 'Node, http-proxy-3', 'gateway'];
const REFERENCES = [
  { text: 'CPU µs per JSON answer', section: 'requests', field: 'cpu_us', rows: PROXIES },
  { text: 'JSON answers a second', section: 'requests', field: 'per_second', rows: ['direct', ...PROXIES] },
  { text: 'CPU µs per chunk', section: 'chunks', field: 'cpu_us', rows: PROXIES },
  { text: 'CPU µs per stream of three frames', section: 'brief-streams', field: 'cpu_us', rows: PROXIES },
].flatMap(({ text, section, field, rows }) =>
  rows.map((row) => ({ text: `${text}, ${row}`, at: [section, row, field] as const })),
);

const run = z.object({
  /** The block of docs/performance.md that names the command. */
  block: z.string(),
  date: z.string(),
  machine: z.string(),
  versions: z.string(),
  commit: z.string(),
  command: z.string(),
  /** Load of the machine before the run. */
  load: z.number(),
  /** By section, row and field. */
  figures: z.record(z.string(), z.object({ median: z.number(), min: z.number(), max: z.number() })),
});

export type RecordedRun = z.infer<typeof run>;

/** @throws Error if the file is none */
export function readRuns(): RecordedRun[] {
  return z.array(run).parse(JSON.parse(readFileSync(FILE, 'utf8')));
}

export function writeRuns(runs: readonly RecordedRun[]): void {
  writeFileSync(FILE, `${JSON.stringify(runs, null, 2)}\n`);
}

export function addRun(
  runs: readonly RecordedRun[],
  {
    block,
    command,
    load,
    sections,
  }: Pick<RecordedRun, 'block' | 'command' | 'load'> & {
    readonly sections: readonly Section[];
  },
  { date, machine, versions, commit }: Circumstances,
): RecordedRun[] {
  const figures = figuresOf(sections);
  return [...runs, { block, date, machine, versions, commit, command, load, figures }];
}

/**
 * Adds figures to the last run of a command that it could not measure: what it has stays.
 * @returns undefined where that run is of another commit or machine
 */
export function completeRun(
  runs: readonly RecordedRun[],
  block: string,
  sections: readonly Section[],
  { machine, versions, commit }: Circumstances,
): RecordedRun[] | undefined {
  const index = runs.findLastIndex((each) => each.block === block);
  const last = runs[index];
  if (last === undefined) return undefined;
  if (last.machine !== machine || last.versions !== versions || last.commit !== commit) return undefined;
  return runs.with(index, { ...last, figures: { ...figuresOf(sections), ...last.figures } });
}

/** The figures that targets and references need. */
function figuresOf(sections: readonly Section[]): Record<string, Figure> {
  const limits = TARGETS.flatMap(({ at, or }) => (or === undefined ? [at] : [at, or.at]));
  const figures: Record<string, Figure> = {};
  for (const at of [...limits, ...REFERENCES.map((reference) => reference.at)]) {
    const figure = figureIn(sections, ...at);
    if (figure !== undefined) figures[nameOf(at)] = figure;
  }
  return figures;
}

function nameOf(at: At): string {
  return at.join('/');
}

const findIn = (each: RecordedRun | undefined) => (at: At) => each?.figures[nameOf(at)];

/** Each target with what the last run of its command measured, and in how many of all runs that measured it it was met. */
export function targetsOfRuns(runs: readonly RecordedRun[]): string {
  const rows = TARGETS.map((target) => {
    const block = blockOf(target);
    const all = runs.filter((each) => each.block === block).map((each) => judge(target, findIn(each)));
    const { text, limit, measured, met } = all.at(-1) ?? judge(target, () => undefined);
    const measuring = all.filter((each) => each.met !== 'not measured');
    const count = measuring.filter((each) => each.met === 'yes').length;
    const where = block === RUN_BLOCK ? `\`${target.at[0]}\` of RESULTS.md` : `block \`${block}\``;
    return [text, limit, measured, met, `${count} of ${measuring.length}`, where];
  });
  return markdownTable(['Target', 'limit', 'measured', 'met', 'in runs', 'figure'], rows);
}

/** The references in the last runs, and which runs there are of all commands. */
export function runsTable(runs: readonly RecordedRun[]): string {
  if (runs.length === 0) return 'No run has been recorded.\n';
  const measuring = runs.filter(({ block }) => block === RUN_BLOCK).slice(-MAX_SHOWN);
  const number = (figure: Figure | undefined) =>
    figure === undefined ? '' : `${Number(figure.median.toPrecision(3))}`;
  const references = REFERENCES.map(({ text, at }) => [
    text,
    ...measuring.map((each) => number(findIn(each)(at))),
  ]);
  const heads = measuring.map(({ date }) => date.slice(0, 16).replace('T', ' '));
  const table = measuring.length === 0 ? '' : `${markdownTable(['References', ...heads], references)}\n`;
  const shown = runs.filter((each) =>
    runs
      .filter(({ block }) => block === each.block)
      .slice(-MAX_SHOWN)
      .includes(each),
  );
  const origins = shown.map(({ block, date, commit, load, command, machine, versions }) => [
    date,
    block,
    commit,
    `${load}`,
    `${machine}; ${versions}`,
    `\`${command}\``,
  ]);
  const origin = markdownTable(
    ['Run', 'block', 'commit', 'load before it', 'machine and versions', 'command'],
    origins,
  );
  return `${table}${origin}`;
}
