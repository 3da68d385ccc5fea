// What a history measures: how long dead keys lived on, and when requests were answered 503, by what was away at the time.
import type { History } from './operation.ts';
import { livesOf, SETTLE_MS, Weather } from './timeline.ts';

export interface Measures {
  readonly operations: Readonly<Record<string, number>>;
  /** Situation → how long after its end a key was still accepted there, the longest, in milliseconds, and how many requests. */
  readonly lags: ReadonlyMap<
    string,
    { readonly longest: number; readonly accepted: number; readonly requests: number }
  >;
  /** Situation → how many requests with 503, of how many. */
  readonly unavailable: ReadonlyMap<string, { readonly count: number; readonly requests: number }>;
}

export function measure(history: History): Measures {
  const lives = livesOf(history.operations);
  const weather = new Weather(history);
  const operations: Record<string, number> = {};
  const lags = new Map<string, { longest: number; accepted: number; requests: number }>();
  const unavailable = new Map<string, { count: number; requests: number }>();
  for (const each of history.operations) {
    const outcome =
      each.kind === 'issue'
        ? each.key === undefined
          ? 'unknown'
          : 'issued'
        : each.kind === 'revoke'
          ? each.outcome
          : each.answer;
    const name = `${each.kind} ${outcome}`;
    operations[name] = (operations[name] ?? 0) + 1;
    if (each.kind !== 'call') continue;
    const { replica, invokedAt, completedAt, answer } = each;
    const now = situation(weather, replica, invokedAt, completedAt);
    const rejected = entryOf(unavailable, now, () => ({ count: 0, requests: 0 }));
    rejected.requests += 1;
    if (answer === 'unavailable') rejected.count += 1;
    const life = lives.get(each.key);
    if (life === undefined || invokedAt <= life.endedBy) continue;
    const since = entryOf(lags, situation(weather, replica, life.endAskedAt, completedAt), () => ({
      longest: 0,
      accepted: 0,
      requests: 0,
    }));
    since.requests += 1;
    if (answer !== 'accepted') continue;
    since.accepted += 1;
    since.longest = Math.max(since.longest, invokedAt - life.endedBy);
  }
  return { operations, lags, unavailable };
}

/** What was or had just been away: `well` when nothing was. */
function situation(weather: Weather, replica: number, from: number, to: number): string {
  const subjects = new Set(
    weather.around(replica, from, to, undefined, SETTLE_MS).map(({ subject }) => subject),
  );
  if (subjects.size === 0) return 'well';
  const parts = [
    subjects.has('store') ? 'store' : undefined,
    subjects.has('redis') || subjects.has('cable') ? 'Redis' : undefined,
  ].filter((part) => part !== undefined);
  return parts.length > 0 ? `${parts.join(' and ')} away` : 'forgotten, paused, new or stalled';
}

function entryOf<T>(map: Map<string, T>, name: string, make: () => T): T {
  const entry = map.get(name) ?? make();
  map.set(name, entry);
  return entry;
}

/** For a person, one line per situation. */
export function describeMeasures({ operations, lags, unavailable }: Measures): string {
  const total = Object.values(operations).reduce((sum, count) => sum + count, 0);
  return [
    `${total} operations: ${Object.entries(operations)
      .sort()
      .map(([name, count]) => `${name} ${count}`)
      .join(', ')}`,
    ...Array.from(
      lags,
      ([name, { longest, accepted, requests }]) =>
        `dead keys, ${name}: ${accepted} of ${requests} calls accepted, the last ${Math.round(longest)} ms after the end`,
    ).sort(),
    ...Array.from(
      unavailable,
      ([name, { count, requests }]) => `503, ${name}: ${count} of ${requests} calls`,
    ).sort(),
  ].join('\n');
}
