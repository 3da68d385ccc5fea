// Sums as reports show them: names of the API, costs in the unit of the prices, averages instead of sums of times.
import type { ExactSums, UsageSums } from '../../store/usage-record.ts';

const BILLION = 1e9;
const DECIMALS = 9;

/** The columns of `/admin/usage`. `cost` is null without a price. */
export function publicSums(sums: UsageSums) {
  return named(sums, hasCost(sums) ? sums.cost / BILLION : null, (sum, count) =>
    count === 0 ? null : Math.round(sum / count),
  );
}

/** The same columns, exact: the cost is a decimal text with nine places. */
export function exactPublicSums(sums: ExactSums) {
  return named(sums, hasCost(sums) ? exactAmount(sums.cost) : null, (sum, count) =>
    count === 0n ? null : (2n * sum + count) / (2n * count),
  );
}

/** @param billionths of the unit */
export function exactAmount(billionths: bigint): string {
  const digits = String(billionths).padStart(DECIMALS + 1, '0');
  return `${digits.slice(0, -DECIMALS)}.${digits.slice(-DECIMALS)}`;
}

/** An earlier attempt may have cost something although the request itself had no price. */
function hasCost({ priced, cost }: Readonly<Record<'priced' | 'cost', number | bigint>>): boolean {
  return priced > 0 || cost > 0;
}

/** @param average in whole milliseconds; null when there was none */
function named<Count, Cost>(
  sums: Readonly<Record<keyof UsageSums, Count>>,
  cost: Cost,
  average: (sum: Count, count: Count) => Count | null,
) {
  return {
    requests: sums.requests,
    failed: sums.failed,
    estimated: sums.estimated,
    prompt_tokens: sums.prompt,
    cached_tokens: sums.cached,
    completion_tokens: sums.completion,
    reasoning_tokens: sums.reasoning,
    cost,
    average_duration_ms: average(sums.duration_ms, sums.requests),
    average_ttft_ms: average(sums.ttft_ms, sums.ttft_count),
  };
}
