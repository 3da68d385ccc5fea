// Where the figures of a command go: its blocks of docs/performance.md, and, of a run that is long enough, the recorded runs and the table
// of targets that is made of them.
import { tell } from './bench.ts';
import { fillBlocks } from './blocks.ts';
import { type Circumstances, describe } from './machine.ts';
import {
  addRun,
  completeRun,
  type RecordedRun,
  readRuns,
  runsTable,
  targetsOfRuns,
  writeRuns,
} from './recorded-runs.ts';
import { type Section, tableOf } from './section.ts';

export interface Published {
  /** The block that names the command, by which runs of it are found. */
  readonly block: string;
  readonly sections: readonly Section[];
  /** That repeats the run. */
  readonly command: string;
  /** Before the run. */
  readonly load: number;
}

/** Fills a block with text, and with a line on where its figures are from. */
export function publishText(block: string, text: string, command: string, where: Circumstances): void {
  fillBlocks({ [block]: `${text.trimEnd()}\n\nFrom \`${command}\`: ${describe(where)}.` });
}

/** Fills the block of a section that targets look at, and records the run. @param isWhole as of `publishRun` */
export function publishSection(
  section: Section,
  { command, load }: Pick<Published, 'command' | 'load'>,
  where: Circumstances,
  isWhole: boolean,
): void {
  publishText(section.id, tableOf(section), command, where);
  publishRun({ block: section.id, sections: [section], command, load }, where, isWhole);
}

/** @param isWhole whether it has the default lengths or longer ones: otherwise it says too little of the targets */
export function publishRun(run: Published, where: Circumstances, isWhole: boolean): void {
  if (!isWhole) {
    tell('bench: the run is not recorded, and the table of targets stays: it is shorter than the default');
    return;
  }
  publishRuns(addRun(readRuns(), run, where));
}

/** The same with what a whole run, of this commit and machine, could not measure. */
export function publishPart(block: string, sections: readonly Section[], where: Circumstances): void {
  const runs = completeRun(readRuns(), block, sections, where);
  if (runs === undefined)
    tell('bench: nothing is recorded: there is no whole run of this commit and machine');
  else publishRuns(runs);
}

function publishRuns(runs: readonly RecordedRun[]): void {
  writeRuns(runs);
  fillBlocks({ targets: targetsOfRuns(runs), runs: runsTable(runs) });
}

/** Whether each length is that of a whole run, or longer. */
export function isWholeRun(
  lengths: Readonly<Record<string, number>>,
  whole: Readonly<Record<string, number>>,
): boolean {
  return Object.entries(whole).every(([name, least]) => (lengths[name] ?? 0) >= least);
}
