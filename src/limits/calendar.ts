// UTC days and months as running numbers, and when they end. Leap seconds and daylight saving do not exist here.

export const DAY_MS = 86_400_000;

/** A UTC date by the windows of the table of limits. */
export interface UtcDate {
  /** Days since 1970. */
  readonly day: number;
  /** Year times 12 plus month; January is 0. */
  readonly month: number;
  /** Milliseconds since 1970. */
  readonly ends: { readonly day: number; readonly month: number };
}

/** Both clocks at one moment: minute windows follow the monotonic one, days and months the wall clock. */
export interface Moment {
  /** Monotonic milliseconds. */
  readonly now: number;
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  readonly date: UtcDate;
}

/** The date of the last call: nearly all calls are about the same day. */
let cached = dateOf(0);

/** Two calls within one day return the same object, so that most comparisons end at identity. */
export function utcDateAt(wallMs: number): UtcDate {
  if (wallMs < cached.ends.day - DAY_MS || wallMs >= cached.ends.day)
    cached = dateOf(Math.floor(wallMs / DAY_MS));
  return cached;
}

function dateOf(day: number): UtcDate {
  const date = new Date(day * DAY_MS);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  return {
    day,
    month: year * 12 + month,
    ends: { day: (day + 1) * DAY_MS, month: Date.UTC(year, month + 1) },
  };
}
