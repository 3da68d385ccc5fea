// A ledger whose files may not grow, and a store that is away at first: tells what the store got in the end, and what a
// process would have found in the spool.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { eachTotal } from '../../../src/config/limit-table.ts';
import type { UsageBatch } from '../../../src/store/usage-record.ts';
import { readLine } from '../../../src/usage/outbox/outbox-line.ts';
import { until } from '../../helpers/wait.ts';
import { BY_HAND, open, record, segments } from '../samples.ts';

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
  usageOf: async () => eachTotal(() => 0),
};
const { ledger, told } = await open(store, directory, { ...BY_HAND, writeMs: 5 });
let recorded = 0;
await until(() => {
  ledger.record(record({ model: `m${recorded}` }));
  recorded += 1;
  return told.log.includes('in memory alone');
}, 'a full disk');
for (let index = 0; index < 50; index += 1) {
  ledger.record(record({ model: `m${recorded}` }));
  recorded += 1;
}
await ledger.flush();
const torn = segments(directory)
  .map((name) => readFileSync(join(directory, name), 'utf8'))
  .filter(
    (text) =>
      text !== '' &&
      (!text.endsWith('\n') ||
        text
          .split('\n')
          .slice(0, -1)
          .some((line) => readLine(line) === undefined)),
  );
isAway = false;
const isDone = await ledger.flush();
const counted = [...taken.values()]
  .flatMap(({ rows }) => rows)
  .reduce((sum, { sums }) => sum + sums.requests, 0);
const { dropped } = told;
process.stdout.write(
  `${JSON.stringify({ recorded, counted, isDone, dropped, torn: torn.length, left: segments(directory) })}\n`,
);
await ledger.close(1000);
