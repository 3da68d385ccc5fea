// A part of the results: a table with its figures and a word on what they are. Shown in Markdown that also reads well in a
// terminal.
import type { Figure, Row } from './figures.ts';

export interface Column {
  readonly field: string;
  readonly heading: string;
  readonly digits: number;
  /** Written behind every figure of it. */
  readonly unit?: string;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  /** What was done, and how to read it. */
  readonly note: string;
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
}

/** A section that could not be measured here, and why. */
export function missing(id: string, title: string, why: string): Section {
  return { id, title, note: `Not measured: ${why}`, columns: [], rows: [] };
}

/** The figure of a row and a field; undefined where it was not measured. */
export function figureIn(
  sections: readonly Section[],
  id: string,
  row: string,
  field: string,
): Figure | undefined {
  return sections.find((each) => each.id === id)?.rows.find((each) => each.name === row)?.figures[field];
}

export function tableOf({ title, columns, rows }: Section): string {
  if (rows.length === 0) return '';
  const shown = columns.filter(({ field }) => rows.some(({ figures }) => figures[field] !== undefined));
  const cells = rows.map(({ name, figures }) => [
    name,
    ...shown.map((column) => show(figures[column.field], column)),
  ]);
  return markdownTable([title, ...shown.map(({ heading }) => heading)], cells);
}

/** A table whose first column is text and whose other columns are figures. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, i) => Math.max(3, ...[head, ...rows].map((row) => (row[i] ?? '').length)));
  const line = (row: readonly string[]) =>
    `| ${widths.map((width, i) => (i === 0 ? (row[i] ?? '').padEnd(width) : (row[i] ?? '').padStart(width))).join(' | ')} |\n`;
  const rule = widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`));
  return line(head) + line(rule) + rows.map(line).join('');
}

/** The median, and the spread where there was more than one round. */
export function show(
  figure: Figure | undefined,
  { digits, unit = '' }: Pick<Column, 'digits' | 'unit'>,
): string {
  if (figure === undefined) return '';
  const text = (value: number) => value.toFixed(digits);
  const spread = figure.min === figure.max ? '' : ` (${text(figure.min)}–${text(figure.max)})`;
  return `${text(figure.median)}${unit}${spread}`;
}
