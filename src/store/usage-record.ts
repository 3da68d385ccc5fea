// What the store keeps of use: sums by hour, holder, key, model and upstream. What a request adds to them is usage/'s.
import type { TotalLimit } from '../config/limit-table.ts';
import type { Tier } from '../config/schema/config-schema.ts';

/** The columns that are summed, by their names in the table. */
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

/** The sums, each made from its name. */
export function usageSums(of: (name: keyof UsageSums) => number): UsageSums {
  return {
    requests: of('requests'),
    failed: of('failed'),
    estimated: of('estimated'),
    priced: of('priced'),
    attempts: of('attempts'),
    prompt: of('prompt'),
    completion: of('completion'),
    cached: of('cached'),
    reasoning: of('reasoning'),
    cost: of('cost'),
    duration_ms: of('duration_ms'),
    ttft_ms: of('ttft_ms'),
    ttft_count: of('ttft_count'),
  };
}

/** Adds one by one, as `usageSums` makes them: a loop over names costs several times as much, for every request. */
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
}

/** What is added to one row of the table. All numbers are whole, from 0 to 2^53 - 1. */
export interface UsageRow extends UsageKey {
  readonly sums: UsageSums;
}

/** Rows that are added together, once, however often they are sent. */
export interface UsageBatch {
  /** Unique in the fleet and for all time. The same id has the same rows. */
  readonly id: string;
  /** No two have the same key. */
  readonly rows: readonly UsageRow[];
  /** When it is sent. RFC 3339, UTC. */
  readonly at: string;
}

const USAGE_DIMENSIONS = ['hour', 'day', 'model', 'upstream', 'key', 'tier'] as const;
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number];

export interface UsageQuery {
  readonly holderId?: string;
  /** Holders who are in this tier now. */
  readonly tier?: Tier;
  /** The first hour, `YYYY-MM-DDTHH` or the beginning of one: `YYYY-MM-DD` is a day from its first hour on. */
  readonly from: string;
  /** One line for each combination of these, in their order; none of them: one line, also when there is no use. */
  readonly by: readonly UsageDimension[];
  /** Most lines, from 1. */
  readonly limit: number;
}

export interface UsageLine {
  /** In the order of `by`. A holder that the store does not know has the tier ``. */
  readonly group: readonly string[];
  /** Sums beyond 2^53 - 1 stop there. */
  readonly sums: UsageSums;
}

/** What a holder has used in the present UTC day and month, for each limit over one of them. */
export type HolderTotals = Readonly<Record<TotalLimit['name'], number>>;

/** The hours of a window of totals begin with this. @param day `YYYY-MM-DD` */
export function windowPrefix({ window }: TotalLimit, day: string): string {
  return window === 'day' ? day : day.slice(0, 7);
}

/** What a row of the usage table adds to a limit. */
export function totalAmount({ counts }: TotalLimit, { requests, prompt, completion }: UsageSums): number {
  return counts === 'tokens' ? prompt + completion : requests;
}
