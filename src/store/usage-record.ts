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

/** Sums of any size. */
export type ExactSums = Readonly<Record<keyof UsageSums, bigint>>;

/** Makes the sums from their names, in their order. It is written out as `addSums` is: a report of a year makes a million. */
export function usageSums<Sum>(of: (name: keyof UsageSums) => Sum): Readonly<Record<keyof UsageSums, Sum>> {
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

/** What became of a batch. */
export type AddedUsage = 'written' | 'known' | 'late';

export const USAGE_DIMENSIONS = [
  'hour',
  'day',
  'month',
  'holder',
  'team',
  'key',
  'tier',
  'model',
  'target',
  'upstream',
  'endpoint',
] as const;
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number];

/** What `usage_hours` does not have: usage by the hour cannot be told apart by it. */
export const HOURLESS_DIMENSIONS: ReadonlySet<UsageGroup> = new Set(['team', 'tier', 'target', 'endpoint']);

/** Followed by the name of a label of holders, or else of their teams. */
export const LABEL_DIMENSION = 'label:';
export type UsageGroup = UsageDimension | `${typeof LABEL_DIMENSION}${string}`;

export interface UsageQuery {
  readonly holderId?: string;
  /** Of the holder at that time, as `tier`. */
  readonly teamId?: string;
  readonly tier?: Tier;
  readonly model?: string;
  /** Of the holder, or else of its team, now; a value that ends with `*` is a beginning. */
  readonly labels?: Readonly<Record<string, string>>;
  /**
   * The first hour, `YYYY-MM-DDTHH` or a prefix of it: `YYYY-MM-DD` starts with the first hour of the day. With a filter or a group that
   * hours do not have, the first day counts as a whole.
   */
  readonly from: string;
  /** The last day, `YYYY-MM-DD`. Default: all that follows. */
  readonly to?: string;
  /** One line for each combination of these, in their order. Without any there is one line, even without usage. */
  readonly by: readonly UsageGroup[];
  /** Maximum number of lines, from 1. */
  readonly limit: number;
}

interface Line<Sums> {
  /** In the order of `by`: ids of holders and teams, empty where there is none or it is unknown. */
  readonly group: readonly string[];
  readonly sums: Sums;
}

export type ExactLine = Line<ExactSums>;

/** Its sums are capped at 2^53 - 1. */
export type UsageLine = Line<UsageSums>;

/** Whose usage counts against a limit. */
export type UsageScope =
  | { readonly kind: 'holder'; readonly id: string }
  | { readonly kind: 'team'; readonly id: string }
  /** A key with those it was rotated from and into: `KeySummary.lineage`. */
  | { readonly kind: 'key'; readonly lineage: string }
  | ModelScope;

/** A holder with an entry of `models`: `modelScope` makes it. */
interface ModelScope {
  readonly kind: 'model';
  readonly holderId: string;
  /** A name or a pattern. */
  readonly model: string;
  /** Other entries that precede a pattern for some of its names. Default: none. */
  readonly except?: readonly string[];
}

/** @param entries of `models` */
export function modelScope(holderId: string, model: string, entries: readonly string[]): ModelScope {
  return { kind: 'model', holderId, model, except: entries.filter((other) => precedes(other, model)) };
}

/** Whether an entry precedes a pattern for some of its names, as `NameTable` finds entries. */
function precedes(other: string, pattern: string): boolean {
  const [beginning, end] = patternParts(pattern) ?? [];
  if (beginning === undefined || end === undefined || other === pattern) return false;
  const [first, last] = patternParts(other) ?? [];
  if (first === undefined || last === undefined) return countsFor(pattern, other);
  const isFirst = other.length > pattern.length || (other.length === pattern.length && other < pattern);
  const canBegin = first.startsWith(beginning) || beginning.startsWith(first);
  return isFirst && canBegin && (last.endsWith(end) || end.endsWith(last));
}

/** Whether usage that is booked under a name counts for an entry of `models` that no other one precedes. */
export function countsInScope({ model: entry, except = [] }: ModelScope, model: string): boolean {
  return countsFor(entry, model) && !except.some((other) => countsFor(other, model));
}

/** The beginning and the end of the names that a pattern stands for; undefined for an exact name. */
export function patternParts(entry: string): readonly [beginning: string, end: string] | undefined {
  const star = entry.indexOf('*');
  return star === -1 ? undefined : [entry.slice(0, star), entry.slice(star + 1)];
}

/** Whether usage that is booked under a name counts for an entry of `models`: its own, or that of a name that its pattern stands for. */
export function countsFor(entry: string, model: string): boolean {
  const [beginning, end] = patternParts(entry) ?? [];
  if (beginning === undefined || end === undefined || model === entry) return model === entry;
  return model.length > beginning.length + end.length && model.startsWith(beginning) && model.endsWith(end);
}

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

export interface MonthEvent {
  readonly what: 'closed' | 'reopened';
  /** RFC 3339, UTC. */
  readonly at: string;
  readonly actor: string | null;
  readonly reason: string | null;
  /** Of a reopening: the digest that the month had. */
  readonly digest: string | null;
}

export interface UsageMonth {
  /** `YYYY-MM` */
  readonly month: string;
  /** RFC 3339, UTC; null while it is open. */
  readonly closedAt: string | null;
  /** SHA-256 of its rows, in hexadecimal; null while it is open, and until the closing is complete. */
  readonly digest: string | null;
  readonly events: readonly MonthEvent[];
  /** Usage of this month that arrived after it was closed, and is booked in a later one. */
  readonly late: { readonly requests: number; readonly cost: bigint };
}

/** A row of a month; its texts are in the order of `MONTH_TEXTS`. */
export interface MonthRow {
  readonly texts: readonly string[];
  readonly sums: ExactSums;
}

/** What a row of days and months is about, besides its time: columns of the tables, in the order of the rows of a month. */
export const MONTH_TEXTS = [
  'holder_id',
  'prefix',
  'model',
  'upstream',
  'team_id',
  'tier',
  'target',
  'endpoint',
] as const;

/** From which day on the store has usage by the hour and by the day, `YYYY-MM-DD`; empty: all. */
export interface UsageKept {
  readonly hours: string;
  readonly days: string;
}
