// The table of tier limits, the source for configuration, limiters, the Redis script, response headers, pages and docs. A new limit
// over a known window is one more row.

export interface LimitRow {
  /** Configuration field, metric label, and name in reports. */
  readonly name: string;
  /** Counting window; `concurrent` counts requests in flight. Days and calendar months are in UTC. */
  readonly window: 'minute' | 'day' | 'month' | 'concurrent';
  /**
   * Requests and tokens have response headers (`x-ratelimit-limit-requests`); requests in flight and cost have none. Cost is in
   * billionths of the unit of the configured prices.
   */
  readonly counts: 'requests' | 'tokens' | 'running' | 'cost';
  /** Description of the configuration field. Limits of cost have none: the configuration says them as budgets. */
  readonly about: string;
}

const ROWS = [
  { name: 'requests_per_minute', window: 'minute', counts: 'requests', about: 'Requests in a minute.' },
  {
    name: 'tokens_per_minute',
    window: 'minute',
    counts: 'tokens',
    about: 'Tokens, of input and output, in a minute.',
  },
  { name: 'requests_per_day', window: 'day', counts: 'requests', about: 'Requests in a day (UTC).' },
  { name: 'tokens_per_day', window: 'day', counts: 'tokens', about: 'Tokens in a day (UTC).' },
  { name: 'tokens_per_month', window: 'month', counts: 'tokens', about: 'Tokens in a calendar month (UTC).' },
  { name: 'concurrency', window: 'concurrent', counts: 'running', about: 'Requests under way at once.' },
  { name: 'cost_per_day', window: 'day', counts: 'cost', about: '' },
  { name: 'cost_per_month', window: 'month', counts: 'cost', about: '' },
] as const satisfies readonly LimitRow[];

const NOUNS = {
  requests: ['request', 'requests'],
  tokens: ['token', 'tokens'],
  running: ['request', 'requests'],
  cost: ['budget', 'budget'],
} as const;
/** As in `500 requests a day`, and as in error messages. */
const PHRASES = {
  minute: ['a minute', 'per minute'],
  day: ['a day', 'per day'],
  month: ['a month', 'per month'],
  concurrent: ['at a time', 'at once'],
} as const;

/** The table in the order of docs and reports, each row with its index, singular and plural. */
export const LIMITS = ROWS.map((row, index) => {
  const [noun, nouns] = NOUNS[row.counts];
  const [phrase, rate] = PHRASES[row.window];
  return { ...row, index, one: `${noun} ${phrase}`, many: `${nouns} ${phrase}`, rate: `${nouns} ${rate}` };
});

export type Limit = (typeof LIMITS)[number];
export type LimitName = Limit['name'];

/** A limit that is a field of a tier. Those of cost are said as budgets. */
export type PlainLimit = Exclude<Limit, { readonly counts: 'cost' }>;

export const PLAIN_LIMITS = LIMITS.filter((limit): limit is PlainLimit => limit.counts !== 'cost');

/** A limit that outlives processes: its counter starts from the sums in the usage store. */
export type TotalLimit = Extract<Limit, { readonly window: 'day' | 'month' }>;

export const TOTAL_LIMITS = LIMITS.filter(isTotal);

/** The limits of a tier; an absent limit is unlimited. */
export type TierLimits = { readonly [Name in LimitName]?: number };

export function isTotal(limit: Limit): limit is TotalLimit {
  return limit.window === 'day' || limit.window === 'month';
}

/** A record with a value for each limit. */
export function eachLimit<Value>(of: (limit: Limit) => Value): Record<LimitName, Value> {
  return recordOf(LIMITS, of);
}

/** A record with a value for each limit that is a field of a tier. */
export function eachPlainLimit<Value>(of: (limit: PlainLimit) => Value): Record<PlainLimit['name'], Value> {
  return recordOf(PLAIN_LIMITS, of);
}

/** A record with a value for each limit that has totals. */
export function eachTotal<Value>(of: (limit: TotalLimit) => Value): Record<TotalLimit['name'], Value> {
  return recordOf(TOTAL_LIMITS, of);
}

function recordOf<Each extends Limit, Value>(limits: readonly Each[], of: (limit: Each) => Value) {
  return Object.fromEntries(limits.map((limit) => [limit.name, of(limit)])) as Record<Each['name'], Value>;
}

/** Some of the limits of a tier. */
export function pickLimits(limits: TierLimits, isPicked: (limit: Limit) => boolean): TierLimits {
  const picked: { -readonly [Name in LimitName]?: number } = {};
  for (const limit of LIMITS) {
    const max = limits[limit.name];
    if (max !== undefined && isPicked(limit)) picked[limit.name] = max;
  }
  return picked;
}

/** The limits of a tier as text: `500 requests a day`. Budgets are not part of it. */
export function limitTexts(limits: TierLimits, format: (max: number) => string = String) {
  return PLAIN_LIMITS.flatMap(({ name, one, many }) => {
    const max = limits[name];
    return max === undefined ? [] : [{ max: format(max), text: max === 1 ? one : many }];
  });
}
