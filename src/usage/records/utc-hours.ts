// Hours and days of usage. They are in UTC, so that daylight saving time neither repeats nor skips an hour.

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** 9999-12-31T23:59:59Z. Later years have more digits. */
const LAST_MS = 253_402_300_799_999;

let known = { index: Number.NaN, text: '' };

/** @param at milliseconds since 1970 @returns `YYYY-MM-DDTHH`, limited to the years 1970 to 9999 */
export function hourOf(at: number): string {
  const index = Math.floor(Math.min(Math.max(at, 0), LAST_MS) / HOUR_MS);
  if (index !== known.index) known = { index, text: new Date(index * HOUR_MS).toISOString().slice(0, 13) };
  return known.text;
}

/** @returns `YYYY-MM-DD` of a time in milliseconds since 1970 */
export function dayOf(at: number): string {
  return hourOf(at).slice(0, 10);
}

/** @returns the time this many days before `at` */
export function daysBefore(at: number, days: number): number {
  return at - days * DAY_MS;
}
