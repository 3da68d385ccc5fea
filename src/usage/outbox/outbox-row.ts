// A usage row as text: in outbox files, and in lines of files (`.aside`, and `.jsonl` of the former format). It is validated when it is
// read, because a damaged disk can return anything.
import { USAGE_SUMS, type UsageRow, usageSums } from '../../store/usage-record.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';
import { isSane } from '../records/request-usage.ts';

const KEYS = 5;
/** Position of the holder, by which outbox files are indexed. */
export const HOLDER_CELL = 1;
/** Number of sums in the first version. Later ones are appended. */
const FIRST_SUMS = 13;

/** @returns a JSON array */
export function writeRow({ hour, holderId, prefix, model, upstream, sums }: UsageRow): string {
  return JSON.stringify([hour, holderId, prefix, model, upstream, ...USAGE_SUMS.map((name) => sums[name])]);
}

/** Sums that the version that wrote it did not have are 0. @returns undefined when it is not valid */
export function readRow(text: string): UsageRow | undefined {
  const cells = parse(text);
  if (!Array.isArray(cells)) return undefined;
  const [hour, holderId, prefix, model, upstream] = cells;
  const numbers = cells.slice(KEYS);
  const key = { hour, holderId, prefix, model, upstream };
  if (!Object.values(key).every((value) => typeof value === 'string') || !isSane(key)) return undefined;
  if (numbers.length < FIRST_SUMS || numbers.length > USAGE_SUMS.length || !numbers.every(isCount))
    return undefined;
  return { ...key, sums: usageSums((name) => numbers[USAGE_SUMS.indexOf(name)] ?? 0) };
}

/** @param row from `writeRow` */
export function writeLine(row: string): string {
  return `{"v":1,"rows":[${row}]}\n`;
}

/** @returns the rows of a line, for `readRow`; for an invalid line the line itself, which `readRow` rejects */
export function readLine(line: string): readonly string[] {
  const rows = memberOf(parse(line), 'rows');
  return Array.isArray(rows) ? rows.map((row) => JSON.stringify(row)) : [line];
}

function isCount(value: unknown): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}
