// A usage report as a table, as JSON and as CSV.
import type { UsageLine, UsageSums } from '../store/usage-record.ts';
import { publicSums } from '../usage/records/public-sums.ts';

export interface UsageTable {
  /** The group of the lines. */
  readonly by: string;
  /** The first and the last hour, `YYYY-MM-DDTHH`. */
  readonly from: string;
  readonly to: string;
  readonly lines: readonly UsageLine[];
  readonly totals: UsageSums;
}

/** Heads that do not follow from the name. */
const HEADS: ReadonlyMap<string, string> = new Map([
  ['average_duration_ms', 'AVG MS'],
  ['average_ttft_ms', 'TTFT MS'],
]);
const COST_DIGITS = 6;

/** The cost column appears only when something had a price. */
function columnsOf({ totals }: UsageTable): readonly string[] {
  return Object.keys(publicSums(totals));
}

function shownOf(sums: UsageSums): ReadonlyMap<string, number | null> {
  return new Map(Object.entries(publicSums(sums)));
}

export function tableOf(table: UsageTable): string {
  if (table.lines.length === 0) return `No usage since ${table.from}:00Z.\n`;
  const columns = columnsOf(table);
  const cells = (group: string, sums: UsageSums) => {
    const shown = shownOf(sums);
    return [group, ...columns.map((name) => cellOf(name, shown.get(name)))];
  };
  const rows = [
    [
      table.by.toUpperCase(),
      ...columns.map((name) => HEADS.get(name) ?? name.replace(/_tokens$/, '').toUpperCase()),
    ],
    ...table.lines.map(({ group, sums }) => cells(visible(group[0] ?? '') || '-', sums)),
    cells('TOTAL', table.totals),
  ];
  const widths = rows[0]?.map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0))) ?? [];
  return rows
    .map((row) =>
      row
        .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
        .join('  '),
    )
    .map((line) => `${line}\n`)
    .join('');
}

export function jsonOf({ by, from, to, lines, totals }: UsageTable): string {
  const report = {
    from: `${from}:00:00Z`,
    to: `${to}:00:00Z`,
    by,
    lines: lines.map(({ group, sums }) => ({ [by]: group[0] ?? '', ...publicSums(sums) })),
    totals: publicSums(totals),
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}

/** CSV by RFC 4180, with a header and without totals, which a spreadsheet computes itself. */
export function csvOf(table: UsageTable): string {
  const columns = columnsOf(table);
  const rows = table.lines.map(({ group, sums }) => {
    const shown = shownOf(sums);
    return [group[0] ?? '', ...columns.map((name) => plain(name, shown.get(name)))];
  });
  return [[table.by, ...columns], ...rows].map((row) => `${row.map(field).join(',')}\r\n`).join('');
}

function cellOf(name: string, value: number | null | undefined): string {
  if (value === null || value === undefined) return name === 'cost' ? (0).toFixed(COST_DIGITS) : '-';
  return name === 'cost' ? value.toFixed(COST_DIGITS) : String(value);
}

function plain(name: string, value: number | null | undefined): string {
  // Avoids exponent notation of small costs.
  if (name === 'cost') return (value ?? 0).toFixed(9);
  return value === null || value === undefined ? '' : String(value);
}

/** Escapes a CSV field. An apostrophe stops a spreadsheet from running it as a formula (CSV injection). */
function field(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Escapes control and direction characters for the terminal: model names may come from clients. */
function visible(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = character.codePointAt(0)?.toString(16) ?? '';
    return `\\u{${code}}`;
  });
}
