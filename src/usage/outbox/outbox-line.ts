// The form of the spool: one line of JSON for what was recorded between two writes. A line is read as strictly as if anybody
// could have written it, because a disk that was full can.
import { USAGE_SUMS, type UsageRow, usageSums } from '../../store/usage-record.ts';
import { isSane } from '../records/request-usage.ts';

const VERSION = 1;
const KEYS = 5;

/** @returns one line with its line feed */
export function writeLine(rows: Iterable<UsageRow>): string {
  const written = Array.from(rows, ({ hour, holderId, prefix, model, upstream, sums }) => [
    hour,
    holderId,
    prefix,
    model,
    upstream,
    ...USAGE_SUMS.map((name) => sums[name]),
  ]);
  return `${JSON.stringify({ v: VERSION, rows: written })}\n`;
}

/** @returns undefined when the line is not what `writeLine` writes */
export function readLine(line: string): readonly UsageRow[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('v' in value) || !('rows' in value)) return undefined;
  if (value.v !== VERSION || !Array.isArray(value.rows)) return undefined;
  const rows: UsageRow[] = [];
  for (const written of value.rows) {
    const row = Array.isArray(written) ? readRow(written) : undefined;
    if (row === undefined) return undefined;
    rows.push(row);
  }
  return rows;
}

function readRow(written: readonly unknown[]): UsageRow | undefined {
  const [hour, holderId, prefix, model, upstream] = written.slice(0, KEYS).map(textOf);
  const numbers = written.slice(KEYS).map(countOf);
  if (hour === undefined || holderId === undefined || prefix === undefined) return undefined;
  if (model === undefined || upstream === undefined) return undefined;
  if (numbers.length !== USAGE_SUMS.length || numbers.includes(undefined)) return undefined;
  const sums = usageSums((name) => numbers[USAGE_SUMS.indexOf(name)] ?? 0);
  const row: UsageRow = { hour, holderId, prefix, model, upstream, sums };
  return isSane(row) ? row : undefined;
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function countOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
