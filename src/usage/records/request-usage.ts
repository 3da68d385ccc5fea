// The usage record of a request, and the rows that it adds to the totals of its hour.
import type { Tier } from '../../config/schema/config-schema.ts';
import { type UsageKey, type UsageRow, usageSums } from '../../store/usage-record.ts';
import { eachTokenPart, MAX_TOKENS, TOKEN_PARTS, type Tokens } from '../../wire/token-usage.ts';
import { hourOf } from './utc-hours.ts';

/** Usage of an earlier attempt. It counts tokens for its upstream, and no request. */
export interface AttemptUsage {
  readonly upstream: string;
  /** The upstream's name of the model. */
  readonly target: string;
  readonly usage: Tokens;
  /** Billionths, from `costOf`. */
  readonly costNanos?: number | undefined;
}

/** A request that reached an upstream, with any outcome. */
export interface UsageRecord {
  /** Time of its end, in milliseconds since 1970. It counts in that hour, in UTC. */
  readonly at: number;
  readonly holderId: string;
  readonly prefix: string;
  /** Of the holder, at this time. */
  readonly tier: Tier;
  readonly teamId: string | null;
  /** Such as `chat`. */
  readonly endpoint: string;
  /** The public name that was asked for. */
  readonly model: string;
  /** Its name or pattern in the configuration. Default: the same. */
  readonly entry?: string | undefined;
  /** The last upstream, and its name of the model. */
  readonly upstream: string;
  readonly target: string;
  /** Requests to upstreams. */
  readonly attempts: number;
  /** `ok`, or a code of the error table. */
  readonly outcome: string;
  /** Undefined when nothing is known and nothing is charged. */
  readonly usage: Tokens | undefined;
  readonly isEstimated: boolean;
  readonly durationMs: number;
  readonly ttftMs: number | undefined;
  /** Billionths, from `costOf`; undefined when the model has no price. */
  readonly costNanos?: number | undefined;
  readonly extra?: readonly AttemptUsage[] | undefined;
  /** Only tokens of a request that continues. Its own record counts it when it ends. Default false. */
  readonly isPart?: boolean | undefined;
}

const MAX_TEXT = {
  holderId: 64,
  prefix: 16,
  upstream: 128,
  model: 256,
  teamId: 64,
  tier: 16,
  target: 256,
  endpoint: 64,
} as const satisfies Record<Exclude<keyof UsageKey, 'hour'>, number>;
/** Fast path: nothing to replace in most texts. */
const PLAIN = /^[\x20-\x7e]*$/;
const UNSAFE = /[\p{Cc}\p{Cs}]/gu;

/** The rows of a record: one for the request, and one for each earlier attempt with usage. */
export function rowsOf(record: UsageRecord): readonly UsageRow[] {
  const { outcome, usage, costNanos, ttftMs, extra = [] } = record;
  const key = {
    hour: hourOf(Number.isFinite(record.at) ? record.at : Date.now()),
    holderId: text(record.holderId, MAX_TEXT.holderId),
    prefix: text(record.prefix, MAX_TEXT.prefix),
    model: text(record.model, MAX_TEXT.model),
    upstream: text(record.upstream, MAX_TEXT.upstream),
    teamId: text(record.teamId ?? '', MAX_TEXT.teamId),
    tier: record.tier,
    target: text(record.target, MAX_TEXT.target),
    endpoint: text(record.endpoint, MAX_TEXT.endpoint),
  };
  if (record.isPart === true) return [{ ...key, sums: { ...NONE, ...tokenSums(usage, costNanos) } }];
  const request: UsageRow = {
    ...key,
    sums: {
      ...tokenSums(usage, costNanos),
      requests: 1,
      // A client that disconnects is not a failure.
      failed: outcome === 'ok' || outcome === 'client_closed' ? 0 : 1,
      estimated: record.isEstimated && usage !== undefined ? 1 : 0,
      priced: costNanos === undefined ? 0 : 1,
      attempts: whole(record.attempts, MAX_TOKENS),
      duration_ms: whole(record.durationMs, MAX_TOKENS),
      ttft_ms: whole(ttftMs ?? 0, MAX_TOKENS),
      ttft_count: ttftMs === undefined ? 0 : 1,
    },
  };
  if (extra.length === 0) return [request];
  const earlier = extra.map(
    (attempt): UsageRow => ({
      ...key,
      upstream: text(attempt.upstream, MAX_TEXT.upstream),
      target: text(attempt.target, MAX_TEXT.target),
      sums: { ...NONE, ...tokenSums(attempt.usage, attempt.costNanos) },
    }),
  );
  return [request, ...earlier];
}

const TEXTS = Object.entries(MAX_TEXT) as readonly [keyof typeof MAX_TEXT, number][];

/** Whether a row from a file is valid for the store: `rowsOf` could have made its texts. */
export function isSane({ hour, ...texts }: UsageKey): boolean {
  return (
    /^\d{4}-\d\d-\d\dT\d\d$/.test(hour) &&
    TEXTS.every(([name, length]) => texts[name] === text(texts[name], length))
  );
}

const NONE = usageSums(() => 0);

function tokenSums(usage: Tokens | undefined, costNanos: number | undefined) {
  const prompt = whole(usage?.prompt ?? 0, MAX_TOKENS);
  const completion = whole(usage?.completion ?? 0, MAX_TOKENS);
  return {
    ...eachTokenPart((part) =>
      whole(usage?.[part] ?? 0, TOKEN_PARTS[part].of === 'prompt' ? prompt : completion),
    ),
    prompt,
    completion,
    cost: whole(costNanos ?? 0, Number.MAX_SAFE_INTEGER),
  };
}

/** A whole number from 0 to `max`; 0 for NaN. */
function whole(value: number, max: number): number {
  return value > 0 ? Math.min(Math.round(value), max) : 0;
}

/** PostgreSQL accepts neither NUL nor lone surrogates, and index entries have a maximum length. */
function text(value: string, length: number): string {
  const short = value.length > length ? value.slice(0, length) : value;
  return PLAIN.test(short) ? short : short.replaceAll(UNSAFE, '\ufffd');
}
