// Which tables a report reads: months where it covers them as a whole, days, and hours. It reads nothing itself.

/** What a report covers, and what the store has. */
export interface PeriodRequest {
  /** The first and the last hour, `YYYY-MM-DDTHH`. */
  readonly from: string;
  readonly to: string;
  /** The finest time that the lines tell apart. */
  readonly finest: 'hour' | 'day' | 'month';
  /** Whether hours have what the report is about: a first day may then begin at any hour. */
  readonly hasHours: boolean;
  /** Days with usage that is in hours alone. */
  readonly backlog: ReadonlySet<string>;
}

/** Each hour of the period is in exactly one of them. */
export interface Periods {
  readonly months: readonly string[];
  readonly days: readonly string[];
  /** The first and the last hour of each. */
  readonly hours: readonly (readonly [string, string])[];
}

export function periodsOf({ from, to, finest, hasHours, backlog }: PeriodRequest): Periods {
  const [months, days]: [string[], string[]] = [[], []];
  const hours: (readonly [string, string])[] = [];
  if (finest === 'hour') return { months, days, hours: from <= to ? [[from, to]] : [] };
  const late = [...backlog];
  for (let month = from.slice(0, 7); month <= to.slice(0, 7); month = nextMonth(month)) {
    const inMonth = daysOf(month);
    const isWhole = from <= `${month}-01T00` && to >= `${inMonth.at(-1)}T23`;
    if (isWhole && finest === 'month' && !late.some((day) => day.startsWith(month))) {
      months.push(month);
      continue;
    }
    for (const day of inMonth) {
      const [begin, end] = [`${day}T00`, `${day}T23`];
      if (end < from || begin > to) continue;
      if (backlog.has(day) || (hasHours && begin < from))
        hours.push([begin < from && hasHours ? from : begin, end]);
      else days.push(day);
    }
  }
  return { months, days, hours };
}

/** The days of a month, `YYYY-MM-DD`. */
export function daysOf(month: string): readonly string[] {
  const [year = 0, number = 0] = month.split('-').map(Number);
  const last = new Date(Date.UTC(year, number, 0)).getUTCDate();
  return Array.from({ length: last }, (_, index) => `${month}-${String(index + 1).padStart(2, '0')}`);
}

/** @param month `YYYY-MM` */
export function nextMonth(month: string): string {
  const [year = 0, number = 0] = month.split('-').map(Number);
  const [next, nextNumber] = number === 12 ? [year + 1, 1] : [year, number + 1];
  return `${next}-${String(nextNumber).padStart(2, '0')}`;
}
