// A usage row as text: in outbox files, and in lines of files (`.aside`, and `.jsonl` of the former format). It is validated when it is
// read, because a damaged disk can return anything.
import {
  countsInScope,
  USAGE_SUMS,
  type UsageRow,
  type UsageScope,
  usageSums,
} from '../../store/usage-record.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';
import { isSane } from '../records/request-usage.ts';

/** Which of the pending rows. */
export type PendingFilter =
  | Exclude<UsageScope, { readonly kind: 'key' }>
  | { readonly kind: 'prefixes'; readonly prefixes: readonly string[] };

/** Whether a row is one of them. */
export function isAmong(filter: PendingFilter, { holderId, teamId, prefix, model }: UsageRow): boolean {
  switch (filter.kind) {
    case 'holder':
      return holderId === filter.id;
    case 'team':
      return teamId === filter.id;
    case 'prefixes':
      return filter.prefixes.includes(prefix);
    case 'model':
      return holderId === filter.holderId && countsInScope(filter, model);
  }
}

const KEYS = 5;
/** Number of sums in the first version. Later ones are appended. */
const FIRST_SUMS = 13;

/**
 * What versions read that know only hour, holder, key, model and upstream, and after it an array of the rest: the outbox file has the two
 * apart.
 * @returns a JSON array
 */
export function writeRow({ hour, holderId, prefix, model, upstream, sums, ...then }: UsageRow): string {
  const { teamId, tier, target, endpoint } = then;
  const counts = USAGE_SUMS.map((name) => sums[name]);
  return JSON.stringify([
    hour,
    holderId,
    prefix,
    model,
    upstream,
    ...counts,
    [teamId, tier, target, endpoint],
  ]);
}

/** Sums and texts that the version that wrote it did not have are 0 and empty. @returns undefined when it is not valid */
export function readRow(text: string): UsageRow | undefined {
  const cells = parse(text);
  if (!Array.isArray(cells)) return undefined;
  const then: unknown = Array.isArray(cells.at(-1)) ? cells.pop() : ['', '', '', ''];
  const [hour, holderId, prefix, model, upstream] = cells;
  const [teamId, tier, target, endpoint, ...others] = Array.isArray(then) ? then : [];
  const numbers = cells.slice(KEYS);
  const key = { hour, holderId, prefix, model, upstream, teamId, tier, target, endpoint };
  const isText = Object.values(key).every((value) => typeof value === 'string');
  if (!isText || others.length > 0 || !isSane(key)) return undefined;
  if (numbers.length < FIRST_SUMS || numbers.length > USAGE_SUMS.length || !numbers.every(isCount))
    return undefined;
  return { ...key, sums: usageSums((name) => numbers[USAGE_SUMS.indexOf(name)] ?? 0) };
}

/** A row from the two columns of an outbox file. An earlier version wrote no `context`. */
export function joinRow({ cells, context }: Readonly<Record<string, unknown>>): string {
  return typeof context === 'string' ? `${String(cells).slice(0, -1)},${context}]` : String(cells);
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
