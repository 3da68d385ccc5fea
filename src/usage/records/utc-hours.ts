// Hours and days of usage: UTC always, so that no change of a clock to summer time doubles or hides one.

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** 9999-12-31T23:59:59Z. Beyond it the year has more digits. */
const LAST_MS = 253_402_300_799_999;

let known = { index: Number.NaN, text: '' };

/**
 * @param at milliseconds since 1970
 * @returns `YYYY-MM-DDTHH`; times before 1970 and beyond 9999 are the first and the last hour
 */
export function hourOf(at: number): string {
  const index = Math.floor(Math.min(Math.max(at, 0), LAST_MS) / HOUR_MS);
  if (index !== known.index) known = { index, text: new Date(index * HOUR_MS).toISOString().slice(0, 13) };
  return known.text;
}

/** @returns `YYYY-MM-DD` of a time in milliseconds since 1970 */
export function dayOf(at: number): string {
  return hourOf(at).slice(0, 10);
}

/** @returns the time that lies this many days before `at` */
export function daysBefore(at: number, days: number): number {
  return at - days * DAY_MS;
}
