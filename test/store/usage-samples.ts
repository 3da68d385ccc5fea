// Usage rows for tests of the store and of the outbox.
import { randomUUID } from 'node:crypto';
import {
  USAGE_SUMS,
  type UsageBatch,
  type UsageRow,
  type UsageSums,
  usageSums,
} from '../../src/store/usage-record.ts';

export const NOTHING = usageSums(() => 0);

export function row({ sums, ...key }: Partial<Omit<UsageRow, 'sums'>> & { sums?: Partial<UsageSums> } = {}) {
  return {
    hour: '2030-01-02T03',
    holderId: 'holder-1',
    prefix: '0123abcd',
    model: 'gpt',
    upstream: 'openai',
    teamId: '',
    tier: 'Lite',
    target: 'gpt-1',
    endpoint: 'chat',
    ...key,
    sums: { ...NOTHING, requests: 1, attempts: 1, ...sums },
  } satisfies UsageRow;
}

export function batch(rows: readonly UsageRow[], id: string = randomUUID()): UsageBatch {
  return { id, rows, at: new Date().toISOString() };
}

/** All sums differ, so that a test notices a mix-up. */
export function distinct(factor = 1): UsageSums {
  return usageSums((name) => (USAGE_SUMS.indexOf(name) + 1) * factor);
}
