// Ranges of holders, each with a batch of its own: rows of neighbours are near each other in the store too, so a batch changes few of its
// pages.
import type { OutboxColumns } from './outbox-row.ts';

/** Rows of a write for each range. */
const RANGE_ROWS = 60;
export const MAX_RANGES = 8;

/** Holders before `end`, or without it all, that are not in the range before it. */
export interface HolderRange {
  readonly end: string | undefined;
  /** Of its open batch; empty while there is none. */
  id: string;
}

/** Ranges with about as many of these rows each, one for few rows. @param rows sorted by holder */
export function rangesOf(rows: readonly OutboxColumns[], maximum: number): readonly HolderRange[] {
  const count = Math.min(Math.floor(rows.length / RANGE_ROWS), maximum);
  const ends = Array.from({ length: Math.max(count - 1, 0) }, (_, index) => {
    const [end = ''] = rows[Math.floor(((index + 1) * rows.length) / count)] ?? [];
    return end;
  });
  return [...new Set(ends), undefined].map((end) => ({ end, id: '' }));
}

/** Whether a row is before the end of a range; false without a row. */
export function isBefore([holder]: OutboxColumns = ['', '', null], end: string | undefined): boolean {
  return end === undefined || holder < end;
}
