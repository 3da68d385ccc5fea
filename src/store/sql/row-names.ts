// Records and their rows: `isLive: true` of a record is `is_live: 1` in its row.
import type { Columns } from '../schema/tables.ts';

const columns = new Map<string, string>();
const fields = new Map<string, string>();

/** The row of a record, or of a part of one. */
export function rowOf<Row extends object>(record: Row): Columns<Row> {
  const cells = Object.entries(record).map(([field, value]) => {
    const column = columns.get(field) ?? field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    columns.set(field, column);
    return [column, typeof value === 'boolean' ? Number(value) : value];
  });
  // The type is this loop over the names, as the compiler would do it.
  return Object.fromEntries(cells) as Columns<Row>;
}

/** The inverse of `rowOf`. */
export function recordFrom<Row extends object>(row: Columns<Row>): Row {
  const members = Object.entries(row).map(([column, value]) => {
    const field = fields.get(column) ?? column.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
    fields.set(column, field);
    return [field, column.startsWith('is_') ? value === 1 : value];
  });
  return Object.fromEntries(members) as Row;
}
