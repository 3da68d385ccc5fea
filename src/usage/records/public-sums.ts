// Sums as people and programs read them: names of the API, costs in the unit of the prices, averages instead of sums of times.
import type { UsageSums } from '../../store/usage-record.ts';

const BILLION = 1e9;

export interface PublicSums {
  readonly requests: number;
  readonly failed: number;
  readonly estimated: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens: number;
  /** Absent where no request had a price. */
  readonly cost?: number;
  /** Of a request, in whole milliseconds; null where there was none. */
  readonly average_duration_ms: number | null;
  readonly average_ttft_ms: number | null;
}

export function publicSums(sums: UsageSums): PublicSums {
  return {
    requests: sums.requests,
    failed: sums.failed,
    estimated: sums.estimated,
    prompt_tokens: sums.prompt,
    cached_tokens: sums.cached,
    completion_tokens: sums.completion,
    reasoning_tokens: sums.reasoning,
    ...(hasCost(sums) && { cost: sums.cost / BILLION }),
    average_duration_ms: average(sums.duration_ms, sums.requests),
    average_ttft_ms: average(sums.ttft_ms, sums.ttft_count),
  };
}

/** An earlier attempt may have cost something where the request itself had no price. */
export function hasCost({ priced, cost }: UsageSums): boolean {
  return priced > 0 || cost > 0;
}

function average(sum: number, count: number): number | null {
  return count === 0 ? null : Math.round(sum / count);
}
