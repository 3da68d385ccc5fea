// The period of a usage report from its options, and whether the store still has it in the detail that is asked for.
import { dayStart, readMoment } from '../../config/schema/units.ts';
import { daysOf } from '../../store/usage-period.ts';
import type { UsageKept } from '../../store/usage-record.ts';
import { dayOf, hourOf } from '../../usage/records/utc-hours.ts';
import { readTime, UsageError } from '../program/arguments.ts';
import { type Given, text } from '../program/command.ts';

export const PERIOD_OPTIONS = {
  since: text('TIME', 'the beginning, such as 36h, 7d or 2030-01-31; the default is 7d', ['month']),
  until: text('DAY', 'the last day, which is included', ['month']),
  month: text('MONTH', 'a calendar month, such as 2030-01'),
} as const;

/** The first hour, `YYYY-MM-DDTHH`, and the last day, `YYYY-MM-DD`; without one all that follows. */
interface ReportPeriod {
  readonly from: string;
  readonly to: string | undefined;
}

const DEFAULT_SINCE = '7d';

/** @param now milliseconds since 1970 @throws UsageError */
export function readPeriod(
  { since, until, month: named }: Given<typeof PERIOD_OPTIONS>,
  now: number,
): ReportPeriod {
  if (named !== undefined) {
    const month = readMonth(named);
    if (month > dayOf(now).slice(0, 7)) throw new UsageError(`--month ${month} is in the future`);
    return { from: `${month}-01T00`, to: daysOf(month).at(-1) };
  }
  if (until !== undefined && since === undefined) throw new UsageError('--until needs --since');
  const from = sinceOf(since ?? DEFAULT_SINCE, now);
  if (from > hourOf(now)) throw new UsageError('--since is in the future');
  if (until === undefined) return { from, to: undefined };
  const to = lastDayOf(until, now);
  if (to < from.slice(0, 10))
    throw new UsageError(`--until ${to} is before --since, which begins on ${from.slice(0, 10)}`);
  return { from, to };
}

/** @returns `YYYY-MM` @throws UsageError */
export function readMonth(given: string): string {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(given) && given >= '1970') return given;
  throw new UsageError('a month is a year and a number, such as 2030-01');
}

/**
 * The period that the store can report.
 * @param hasHours whether hours have all that the report is about; otherwise its first day is whole
 * @throws Error that says what is kept
 */
export function keptPeriod(
  { from, to }: ReportPeriod,
  by: readonly string[],
  hasHours: boolean,
  kept: UsageKept,
): ReportPeriod {
  const [first, last] = [from.slice(0, 10), to ?? '9999-12-31'];
  if (by.includes('hour')) {
    if (first >= kept.hours) return { from, to };
    throw new Error(`usage by the hour is kept from ${kept.hours} on: begin there, or use day or month`);
  }
  const isFirstOfMonth = first.endsWith('-01') && from.endsWith('T00');
  const isLastOfMonth = daysOf(last.slice(0, 7)).at(-1) === last;
  // The first day that is read from days; whole months need none.
  const needsDays =
    by.includes('day') || !isFirstOfMonth ? first : isLastOfMonth ? undefined : `${last.slice(0, 7)}-01`;
  if (needsDays !== undefined && needsDays < kept.days)
    throw new Error(
      `usage by the day is kept from ${kept.days} on: begin there, or use whole months without the group day`,
    );
  return { from: hasHours && first >= kept.hours ? from : `${first}T00`, to };
}

/** @throws UsageError */
function sinceOf(given: string, now: number): string {
  return hourOf(Date.parse(readTime(given.replace(HOUR, '$1:00Z'), '--since', now, -1)));
}

/** @throws UsageError for the end of an hour that is not that of its day: reports end with a day */
function lastDayOf(given: string, now: number): string {
  const day = given.slice(0, 10);
  if (isDay(given)) return day;
  const isEnd = given.slice(10, 13) === 'T23' || day === dayOf(now);
  if (isEnd && isDay(day) && (HOUR.test(given) || readMoment(given) !== undefined)) return day;
  throw new UsageError('--until is the last day of the report, such as 2030-01-31');
}

function isDay(text: string): boolean {
  return (dayStart(text) ?? -1) >= 0;
}

/** As reports by the hour print it. */
const HOUR = /^(\d{4}-\d\d-\d\dT\d\d)$/;
