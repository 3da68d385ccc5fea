// Rows of use for tests of the store and of the ledger.
import { randomUUID } from 'node:crypto';
import { USAGE_SUMS, type UsageBatch, type UsageRow, type UsageSums } from '../../src/store/usage-record.ts';

export const NOTHING: UsageSums = {
  requests: 0,
  failed: 0,
  estimated: 0,
  priced: 0,
  attempts: 0,
  prompt: 0,
  completion: 0,
  cached: 0,
  reasoning: 0,
  cost: 0,
  duration_ms: 0,
  ttft_ms: 0,
  ttft_count: 0,
};

export function row({ sums, ...key }: Partial<Omit<UsageRow, 'sums'>> & { sums?: Partial<UsageSums> } = {}) {
  return {
    hour: '2030-01-02T03',
    holderId: 'holder-1',
    prefix: '0123abcd',
    model: 'gpt',
    upstream: 'openai',
    ...key,
    sums: { ...NOTHING, requests: 1, attempts: 1, ...sums },
  } satisfies UsageRow;
}

export function batch(rows: readonly UsageRow[], id: string = randomUUID()): UsageBatch {
  return { id, rows, at: new Date().toISOString() };
}

/** All sums different, so that none is taken for another. */
export function distinct(factor = 1): UsageSums {
  const pairs = USAGE_SUMS.map((name, index): [string, number] => [name, (index + 1) * factor]);
  return { ...NOTHING, ...Object.fromEntries(pairs) };
}
