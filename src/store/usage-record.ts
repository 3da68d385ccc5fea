// Usage in the store: sums by time, holder, key, model, upstream, and what the holder and the attempt were then. usage/ makes the rows
// of requests.
import type { TotalLimit } from '../config/limit-table.ts';
import type { Tier } from '../config/schema/config-schema.ts';

/** The columns that are summed, by their names in the table. A new one goes to the end: outbox files have the sums in this order. */
export const USAGE_SUMS = [
  'requests',
  'failed',
  /** Requests whose tokens are estimated. */
  'estimated',
  /** Requests whose model had a price. */
  'priced',
  /** Requests to upstreams. */
  'attempts',
  'prompt',
  'completion',
  /** Part of `prompt`. */
  'cached',
  /** Part of `completion`. */
  'reasoning',
  /** In billionths of the unit of the configured prices. */
  'cost',
  'duration_ms',
  'ttft_ms',
  /** Requests that had a first token. */
  'ttft_count',
] as const;

export type UsageSums = Readonly<Record<(typeof USAGE_SUMS)[number], number>>;

/** Makes the sums from their names. */
export function usageSums(of: (name: keyof UsageSums) => number): UsageSums {
  return Object.fromEntries(USAGE_SUMS.map((name) => [name, of(name)])) as UsageSums;
}

/** It is written out because a loop over names is several times slower, and it runs for every request. */
export function addSums(to: { -readonly [Name in keyof UsageSums]: number }, more: UsageSums): void {
  to.requests = sumOf(to.requests, more.requests);
  to.failed = sumOf(to.failed, more.failed);
  to.estimated = sumOf(to.estimated, more.estimated);
  to.priced = sumOf(to.priced, more.priced);
  to.attempts = sumOf(to.attempts, more.attempts);
  to.prompt = sumOf(to.prompt, more.prompt);
  to.completion = sumOf(to.completion, more.completion);
  to.cached = sumOf(to.cached, more.cached);
  to.reasoning = sumOf(to.reasoning, more.reasoning);
  to.cost = sumOf(to.cost, more.cost);
  to.duration_ms = sumOf(to.duration_ms, more.duration_ms);
  to.ttft_ms = sumOf(to.ttft_ms, more.ttft_ms);
  to.ttft_count = sumOf(to.ttft_count, more.ttft_count);
}

function sumOf(a: number, b: number): number {
  return Math.min(a + b, Number.MAX_SAFE_INTEGER);
}

export interface UsageKey {
  /** `YYYY-MM-DDTHH`, UTC. */
  readonly hour: string;
  readonly holderId: string;
  readonly prefix: string;
  /** The public name. */
  readonly model: string;
  readonly upstream: string;
  /** Team of the holder at that time; empty without one. */
  readonly teamId: string;
  /** Tier of the holder at that time; empty where an earlier version wrote the row: the store takes tier and team of the present. */
  readonly tier: string;
  /** The upstream's name of the model; empty where an earlier version wrote the row, like `endpoint`. */
  readonly target: string;
  readonly endpoint: string;
}

/** An addition to one row of the table. All numbers are whole, from 0 to 2^53 - 1. */
export interface UsageRow extends UsageKey {
  readonly sums: UsageSums;
}

/** Rows that are added together, exactly once: sending a batch again has no effect. */
export interface UsageBatch {
  /** Unique in the fleet and for all time. The same id has the same rows. */
  readonly id: string;
  /** Their keys are unique. */
  readonly rows: readonly UsageRow[];
  /** Time of sending, RFC 3339, UTC. */
  readonly at: string;
}

const USAGE_DIMENSIONS = ['hour', 'day', 'model', 'upstream', 'key', 'tier'] as const;
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number];

export interface UsageQuery {
  readonly holderId?: string;
  /** Holders who are in this tier now. */
  readonly tier?: Tier;
  /** The first hour, `YYYY-MM-DDTHH` or a prefix of it: `YYYY-MM-DD` starts with the first hour of the day. */
  readonly from: string;
  /** One line for each combination of these, in their order. Without any there is one line, even without usage. */
  readonly by: readonly UsageDimension[];
  /** Maximum number of lines, from 1. */
  readonly limit: number;
}

export interface UsageLine {
  /** In the order of `by`. A holder that the store does not know has the tier ``. */
  readonly group: readonly string[];
  /** Capped at 2^53 - 1. */
  readonly sums: UsageSums;
}

/** Whose usage counts against a limit. */
export type UsageScope =
  | { readonly kind: 'holder'; readonly id: string }
  | { readonly kind: 'team'; readonly id: string }
  /** A key with those it was rotated from and into: `KeySummary.lineage`. */
  | { readonly kind: 'key'; readonly lineage: string }
  | { readonly kind: 'model'; readonly holderId: string; readonly model: string };

/** Usage in the current UTC day or month, for each limit over one of them. */
export type HolderTotals = Readonly<Record<TotalLimit['name'], number>>;

/** The prefix of all hours in the window of a limit. @param day `YYYY-MM-DD` */
export function windowPrefix({ window }: TotalLimit, day: string): string {
  return window === 'day' ? day : day.slice(0, 7);
}

/** The amount that a row of the usage table adds to a limit. */
export function totalAmount(
  { counts }: TotalLimit,
  { requests, prompt, completion, cost }: UsageSums,
): number {
  if (counts === 'cost') return cost;
  return counts === 'tokens' ? prompt + completion : requests;
}
