// A usage report as a table, as JSON and as CSV. All numbers are exact.
import type { ExactLine, ExactSums } from '../../store/usage-record.ts';
import { exactPublicSums } from '../../usage/records/public-sums.ts';
import { type TableCell, tableOf } from '../program/table.ts';
import type { CommandIo } from '../program/terminal.ts';

interface UsageTable {
  /** The groups of the lines. */
  readonly by: readonly string[];
  /** The first and the last hour, `YYYY-MM-DDTHH`. */
  readonly from: string;
  readonly to: string;
  /** Of the costs; undefined where none is configured. */
  readonly currency: string | undefined;
  readonly lines: readonly ExactLine[];
  readonly totals: ExactSums;
  /** Of holders and teams, by their ids. */
  readonly names: ReadonlyMap<string, string>;
  /** Whether there are more lines. */
  readonly isCut: boolean;
}

type Shown = ReadonlyMap<string, bigint | string | null>;

/** Decimal places of a cost at least, where no more differ from 0. */
const COST_DIGITS = 6;
/** Lines of a piece: a few milliseconds. */
const PORTION = 500;

/** For people, with the totals in the last line. */
export function textOf(table: UsageTable, io: Pick<CommandIo, 'stdout' | 'env'>): string {
  const { by, from, to, lines, totals, currency } = table;
  if (lines.length === 0) return `No usage from ${from}:00Z to ${to}:59Z.\n`;
  const columns = columnsOf(table);
  const digits = Math.max(COST_DIGITS, ...[...lines, { sums: totals }].map(({ sums }) => costDigits(sums)));
  const cells = (groups: readonly TableCell[], sums: ExactSums): TableCell[] => {
    const shown = shownOf(sums);
    return [...groups, ...columns.map((name) => cellOf(name, shown.get(name), digits))];
  };
  const nameOf = (id: string) => (table.names.get(id) ?? id) || null;
  const rows = lines.map(({ group, sums }) => cells(group.map(nameOf), sums));
  const total = by.map((_, index) => (index === 0 ? 'TOTAL' : ''));
  const costName = currency === undefined ? 'cost' : `cost_${currency}`;
  const named = columns.map((name) => (name === 'cost' ? costName : name));
  const shown = tableOf([...by, ...named], [...rows, cells(total, totals)], io);
  return shown.map((line) => `${line}\n`).join('');
}

/** In pieces, between which a gateway does other work. Counts are numbers of any size, costs are texts. */
export function* jsonOf(table: UsageTable): Generator<string> {
  const { by, from, to, lines, totals, currency = null, isCut } = table;
  const about = { from: `${from}:00:00Z`, to: `${to}:00:00Z`, by: by.join(','), currency };
  const members = Object.entries(about).map(([name, value]) => `${jsonText(name)}: ${jsonText(value)}`);
  yield `{\n  ${members.join(',\n  ')},\n  "lines": [`;
  let separator = '\n    ';
  for (const portion of portionsOf(lines)) {
    const shown = portion.map((line) => objectText([...groupCells(table, line), ...shownOf(line.sums)]));
    yield `${separator}${shown.join(',\n    ')}`;
    separator = ',\n    ';
  }
  const end = lines.length === 0 ? ']' : '\n  ]';
  yield `${end},\n  "totals": ${objectText([...shownOf(totals)])},\n  "truncated": ${isCut}\n}\n`;
}

/** In pieces. CSV by RFC 4180, with a header and without totals, which a spreadsheet computes itself. */
export function* csvOf(table: UsageTable): Generator<string> {
  const columns = columnsOf(table);
  const { currency } = table;
  const isPriced = currency !== undefined && columns.includes('cost');
  const text = (rows: readonly (readonly string[])[]) =>
    rows.map((row) => `${row.map((field) => csvField(field, true)).join(',')}\r\n`).join('');
  yield text([[...table.by.flatMap(groupColumns), ...columns, ...(isPriced ? ['currency'] : [])]]);
  for (const portion of portionsOf(table.lines))
    yield text(
      portion.map((line) => {
        const shown = shownOf(line.sums);
        return [
          ...groupCells(table, line).map(([, value]) => value),
          ...columns.map((name) => String(shown.get(name) ?? '')),
          ...(isPriced ? [shown.get('cost') === null ? '' : currency] : []),
        ];
      }),
    );
}

function* portionsOf(lines: readonly ExactLine[]): Generator<readonly ExactLine[]> {
  for (let at = 0; at < lines.length; at += PORTION) yield lines.slice(at, at + PORTION);
}

/**
 * Escapes a CSV field.
 * @param isForSpreadsheet an apostrophe stops a spreadsheet from running it as a formula (CSV injection)
 */
export function csvField(text: string, isForSpreadsheet: boolean): string {
  const safe = isForSpreadsheet && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The cost column appears only when something had a price. */
function columnsOf({ totals }: UsageTable): readonly string[] {
  const shown = [...shownOf(totals)];
  return shown.flatMap(([name, value]) => (name === 'cost' && value === null ? [] : [name]));
}

function shownOf(sums: ExactSums): Shown {
  return new Map(Object.entries(exactPublicSums(sums)));
}

/** Teams and holders have an id and a name. */
function groupColumns(group: string): readonly string[] {
  if (group === 'team') return ['team', 'team_id'];
  return group === 'holder' ? ['holder', 'holder_name'] : [group];
}

function groupCells({ by, names }: UsageTable, { group }: ExactLine): readonly (readonly [string, string])[] {
  return by.flatMap((name, index) => {
    const id = group[index] ?? '';
    const [first = name, second] = groupColumns(name);
    const cells = name === 'team' ? [names.get(id) ?? id, id] : [id, names.get(id) ?? ''];
    return [
      [first, cells[0] ?? ''] as const,
      ...(second === undefined ? [] : [[second, cells[1] ?? ''] as const]),
    ];
  });
}

function objectText(members: readonly (readonly [string, bigint | string | null])[]): string {
  const texts = members.map(
    ([name, value]) => `${jsonText(name)}: ${typeof value === 'bigint' ? value : jsonText(value)}`,
  );
  return `{ ${texts.join(', ')} }`;
}

function jsonText(value: string | null): string {
  return JSON.stringify(value);
}

/** Decimal places of a cost without zeros at the end. */
function costDigits(sums: ExactSums): number {
  const { cost } = exactPublicSums(sums);
  return cost === null ? 0 : (cost.replace(/0+$/, '').split('.')[1]?.length ?? 0);
}

function cellOf(name: string, value: bigint | string | null | undefined, digits: number): TableCell {
  if (name !== 'cost' || typeof value !== 'string') return value ?? null;
  return { decimal: value.slice(0, value.indexOf('.') + 1 + digits) };
}
