// Sums as reports show them: names of the API, costs in the unit of the prices, averages instead of sums of times.
import type { UsageSums } from '../../store/usage-record.ts';

const BILLION = 1e9;

/** The columns of a report, in their order: of `/admin/usage`, and of the command `usage`. `cost` is absent without a price. */
export function publicSums(sums: UsageSums) {
  return {
    requests: sums.requests,
    failed: sums.failed,
    estimated: sums.estimated,
    prompt_tokens: sums.prompt,
    cached_tokens: sums.cached,
    completion_tokens: sums.completion,
    reasoning_tokens: sums.reasoning,
    // An earlier attempt may have cost something although the request itself had no price.
    ...((sums.priced > 0 || sums.cost > 0) && { cost: sums.cost / BILLION }),
    average_duration_ms: average(sums.duration_ms, sums.requests),
    average_ttft_ms: average(sums.ttft_ms, sums.ttft_count),
  };
}

/** In whole milliseconds; null when there was none. */
function average(sum: number, count: number): number | null {
  return count === 0 ? null : Math.round(sum / count);
}
