// An outbox whose file may not grow, and a store that is away at first: tells what the store got in the end, and what is left.
import { readdirSync } from 'node:fs';
import { eachTotal } from '../../../src/config/limit-table.ts';
import type { UsageBatch } from '../../../src/store/usage-record.ts';
import { until } from '../../helpers/wait.ts';
import { BY_HAND, open, record } from '../samples.ts';

const [directory = ''] = process.argv.slice(2);
const taken = new Map<string, UsageBatch>();
let isAway = true;
const store = {
  addUsage: async (batch: UsageBatch) => {
    if (isAway) throw new Error('away');
    taken.set(batch.id, batch);
    return 'written' as const;
  },
  forgetBatches: async () => 0,
  knownBatches: async () => new Set<string>(),
  usageReport: async () => [],
  keysOf: async () => ({ holderId: '', prefixes: [] }),
  usageOf: async () => eachTotal(() => 0),
  usageOfHolders: async () => new Map(),
};
const { outbox, told } = await open(store, directory, { ...BY_HAND, writeMs: 5 });
let recorded = 0;
await until(() => {
  outbox.record(record({ model: `m${recorded}` }));
  recorded += 1;
  return told.log.includes('in memory only');
}, 'a full disk');
for (let index = 0; index < 50; index += 1) {
  outbox.record(record({ model: `m${recorded}` }));
  recorded += 1;
}
await outbox.flush();
isAway = false;
const isDone = await outbox.flush();
const counted = [...taken.values()]
  .flatMap(({ rows }) => rows)
  .reduce((sum, { sums }) => sum + sums.requests, 0);
const { dropped } = told;
await outbox.close(10_000);
process.stdout.write(
  `${JSON.stringify({ recorded, counted, isDone, dropped, left: readdirSync(directory) })}\n`,
);
