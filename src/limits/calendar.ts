// UTC days and months as running numbers, and how long they still last. Leap seconds and daylight saving do not exist here.

export const DAY_MS = 86_400_000;

/** Days since 1970 began. */
export function dayNumberOf(wallMs: number): number {
  return Math.floor(wallMs / DAY_MS);
}

export function dayLeftMs(wallMs: number): number {
  return (dayNumberOf(wallMs) + 1) * DAY_MS - wallMs;
}

/** The month that was asked for last, since nearly all questions are about one. */
let cached = { month: 0, start: 0, end: 0 };

function monthAt(wallMs: number): typeof cached {
  if (wallMs < cached.start || wallMs >= cached.end) {
    const date = new Date(wallMs);
    const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
    cached = { month: year * 12 + month, start: Date.UTC(year, month), end: Date.UTC(year, month + 1) };
  }
  return cached;
}

/** Months since the year 0 began: year times 12 plus month, January being 0. */
export function monthOf(wallMs: number): number {
  return monthAt(wallMs).month;
}

export function monthLeftMs(wallMs: number): number {
  return monthAt(wallMs).end - wallMs;
}
