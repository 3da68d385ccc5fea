// Values of options, with precise usage errors.
import { readDuration, readMoment } from '../../config/schema/units.ts';
import { nearest } from '../../config/source/nearest.ts';

/** A usage error: the command exits with 2. Messages quote no values, which may be keys. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/**
 * @param what name of the value, for the message: `tier`
 * @returns `given` as one of `choices`
 * @throws UsageError
 */
export function oneOf<Choice extends string>(
  given: string,
  choices: readonly Choice[],
  what: string,
): Choice {
  const found = choices.find((choice) => choice === given);
  if (found !== undefined) return found;
  throw new UsageError(`unknown ${what}: it is one of ${choices.join(', ')}${didYouMean(given, choices)}`);
}

/**
 * A time after or before now: a duration, such as `90d`, a day, such as `2030-01-31`, which begins at midnight UTC, or a time by RFC 3339,
 * as commands print it.
 * @param direction 1 for a duration after now, -1 before
 * @returns RFC 3339, UTC
 * @throws UsageError
 */
export function readTime(text: string, option: string, now: number, direction: 1 | -1): string {
  const moment = readMoment(text);
  if (moment !== undefined) return new Date(moment).toISOString();
  const duration = readDuration(text);
  if (duration.ok && duration.value > 0) {
    const at = now + direction * duration.value;
    // Times are compared as text, which needs years of four digits.
    if (at < FIRST_TIME || at > LAST_TIME)
      throw new UsageError(`${option} is a time beyond the years 0000 to 9999: give a shorter duration`);
    return new Date(at).toISOString();
  }
  if (/^\d{4}-\d\d-\d\d$/.test(text)) throw new UsageError(`${option} is a day that does not exist`);
  throw new UsageError(`${option} ${TIME_FORM}`);
}

/** For the end of a sentence. */
export const TIME_FORM =
  'is a duration, such as 36h or 90d, a day, such as 2030-01-31, or a time, such as 2030-01-31T12:00:00Z';

const FIRST_TIME = Date.parse('0000-01-01T00:00:00Z');
const LAST_TIME = Date.parse('9999-12-31T23:59:59.999Z');

/** Reads a whole number in digits, from 1. The function throws UsageError. */
export function countUpTo(max: number, option: string): (given: string) => number {
  return (given) => {
    const count = /^\d{1,9}$/.test(given) ? Number(given) : 0;
    if (count >= 1 && count <= max) return count;
    throw new UsageError(`${option} is a whole number from 1 to ${max}`);
  };
}

/** ` (did you mean X?)`, or empty when no candidate is near. */
export function didYouMean(given: string, candidates: Iterable<string>): string {
  const near = nearest(given, candidates);
  return near === undefined ? '' : ` (did you mean ${near}?)`;
}
