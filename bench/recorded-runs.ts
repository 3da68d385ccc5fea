// The runs that were recorded: a figure that holds in one run alone is no result. For each, the targets and what the references cost in the
// same run. It measures nothing.
import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { figureIn, markdownTable, type Section } from './section.ts';
import { judge } from './targets.ts';

const FILE = new URL('./runs.json', import.meta.url);
/** A target holds when it was met in so many runs. */
export const RUNS_NEEDED = 3;
/** Columns of the table. */
const MAX_SHOWN = 6;

const REFERENCES = [
  [
    'CPU µs per JSON answer',
    'requests',
    'cpu_us',
    ['nginx', 'Node, sockets', 'Node, server', 'Node, http-proxy-3', 'gateway'],
  ],
  [
    'JSON answers a second',
    'requests',
    'per_second',
    ['direct', 'nginx', 'Node, sockets', 'Node, server', 'Node, http-proxy-3', 'gateway'],
  ],
  [
    'CPU µs per chunk',
    'chunks',
    'cpu_us',
    ['nginx', 'Node, sockets', 'Node, server', 'Node, http-proxy-3', 'gateway'],
  ],
] as const;

const run = z.object({
  date: z.string(),
  machine: z.string(),
  versions: z.string(),
  commit: z.string(),
  command: z.string(),
  /** Load of the machine before the run. */
  load: z.number(),
  /** Medians. */
  targets: z.array(
    z.object({
      target: z.string(),
      limit: z.string(),
      measured: z.number().nullable(),
      met: z.enum(['yes', 'no', 'not measured']),
    }),
  ),
  references: z.array(z.object({ name: z.string(), measured: z.number().nullable() })),
});

export type RecordedRun = z.infer<typeof run>;

/** @throws Error if the file is none */
export function readRuns(): RecordedRun[] {
  return z.array(run).parse(JSON.parse(readFileSync(FILE, 'utf8')));
}

export function addRun(
  report: Pick<RecordedRun, 'date' | 'machine' | 'versions' | 'commit' | 'command'> & {
    readonly sections: readonly Section[];
  },
  load: number,
): RecordedRun[] {
  const { sections, date, machine, versions, commit, command } = report;
  const references = REFERENCES.flatMap(([what, section, field, rows]) =>
    rows.map((row) => ({
      name: `${what}, ${row}`,
      measured: figureIn(sections, section, row, field)?.median ?? null,
    })),
  );
  const targets = judge(sections).map(({ measured, ...each }) => ({
    ...each,
    measured: measured?.median ?? null,
  }));
  const added = { date, machine, versions, commit, command, load, targets, references };
  const all = [...readRuns(), added];
  writeFileSync(FILE, `${JSON.stringify(all, null, 2)}\n`);
  return all;
}

/** Of the last runs: a column for each, and in how many of all runs that measured it a target was met. */
export function runsTable(runs: readonly RecordedRun[]): string {
  const shown = runs.slice(-MAX_SHOWN);
  const latest = runs.at(-1);
  if (latest === undefined) return 'No run has been recorded.\n';
  const number = (value: number | null | undefined) =>
    value === null || value === undefined ? '' : `${Number(value.toPrecision(3))}`;
  const targets = latest.targets.map(({ target, limit }) => {
    const of = ({ targets: all }: RecordedRun) => all.find((each) => each.target === target);
    const measured = runs.map(of).filter((each) => each !== undefined && each.met !== 'not measured');
    const met = measured.filter((each) => each?.met === 'yes').length;
    return [
      target,
      limit,
      ...shown.map((each) => number(of(each)?.measured)),
      `${met} of ${measured.length}`,
    ];
  });
  const references = latest.references.map(({ name }) => [
    name,
    '',
    ...shown.map(({ references: all }) => number(all.find((each) => each.name === name)?.measured)),
    '',
  ]);
  const heads = shown.map(({ date }) => date.slice(0, 16).replace('T', ' '));
  const table = markdownTable(['Run', 'limit', ...heads, 'met'], [...targets, ...references]);
  const where = shown.map(
    ({ date, machine, versions, commit, load, command }) =>
      `- ${date}: ${machine}; ${versions}; commit ${commit}; load before it ${load}; \`${command}\`\n`,
  );
  return `${table}\n${where.join('')}`;
}
