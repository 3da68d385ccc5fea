// A usage row as text: in outbox files, and in lines of files (`.aside`, and `.jsonl` of the former format). It is validated when it is
// read, because a damaged disk can return anything.
import {
  countsInScope,
  USAGE_SUMS,
  type UsageKey,
  type UsageRow,
  type UsageScope,
  usageSums,
} from '../../store/usage-record.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';
import { isSane } from '../records/request-usage.ts';
import { UsageTotals } from '../records/usage-totals.ts';

/** Which of the pending rows. */
export type PendingFilter =
  | Exclude<UsageScope, { readonly kind: 'key' }>
  | { readonly kind: 'holders'; readonly ids: ReadonlySet<string> }
  | { readonly kind: 'prefixes'; readonly holderId: string; readonly prefixes: readonly string[] };

/** Whether a row is one of them. */
export function isAmong(filter: PendingFilter, { holderId, teamId, prefix, model }: UsageKey): boolean {
  switch (filter.kind) {
    case 'holder':
      return holderId === filter.id;
    case 'holders':
      return filter.ids.has(holderId);
    case 'team':
      return teamId === filter.id;
    case 'prefixes':
      return holderId === filter.holderId && filter.prefixes.includes(prefix);
    case 'model':
      return holderId === filter.holderId && countsInScope(filter, model);
  }
}

const KEYS = 5;
/** Number of sums in the first version. Later ones are appended. */
const FIRST_SUMS = 13;

/** The columns of an outbox file. An earlier version wrote no `context`, which has what it does not know, and reads the others. */
export type OutboxColumns = readonly [holder: string, cells: string, context: string | null];

/** What versions read that know only hour, holder, key, model and upstream, and the rest, both as JSON arrays. */
export function outboxColumns({
  hour,
  holderId,
  prefix,
  model,
  upstream,
  sums,
  ...then
}: UsageRow): OutboxColumns {
  const { teamId, tier, target, endpoint } = then;
  const counts = USAGE_SUMS.map((name) => sums[name]);
  return [
    holderId,
    JSON.stringify([hour, holderId, prefix, model, upstream, ...counts]),
    JSON.stringify([teamId, tier, target, endpoint]),
  ];
}

/** Both in one JSON array, the rest last. */
export function writeRow(row: UsageRow): string {
  const [, cells, context] = outboxColumns(row);
  return joinRow({ cells, context });
}

/** @param row a valid one from `writeRow` or `joinRow` */
export function splitRow(row: string): OutboxColumns {
  // Written by this file.
  const cells = JSON.parse(row) as unknown[];
  const context = Array.isArray(cells.at(-1)) ? JSON.stringify(cells.pop()) : null;
  return [String(cells[1]), JSON.stringify(cells), context];
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
  let next = 0;
  // In the order of their names.
  return { ...key, sums: usageSums(() => numbers[next++] ?? 0) };
}

/** Rows of a batch, each key once. Damaged ones are left out. */
export function readRows(cells: readonly string[]): readonly UsageRow[] {
  const totals = new UsageTotals();
  for (const text of cells) {
    const row = readRow(text);
    if (row !== undefined) totals.add(row);
  }
  return [...totals.rows()];
}

/** A row from the columns of an outbox file. */
export function joinRow({ cells, context }: Readonly<Record<string, unknown>>): string {
  return typeof context === 'string' ? `${String(cells).slice(0, -1)},${context}]` : String(cells);
}

/** @param row from `writeRow` or `joinRow` */
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
