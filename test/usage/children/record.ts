// Records use for ever, and tells of each record when it was made. SIGTERM ends it as a drain does.
import { writeSync } from 'node:fs';
import { openStore } from '../../../src/store/open.ts';
import { OUTBOX_LIMITS } from '../../../src/usage/outbox/outbox-limits.ts';
import { open, record } from '../samples.ts';

const [path = '', directory = '', holderId = ''] = process.argv.slice(2);
const store = await openStore({ kind: 'sqlite', path });
const { outbox } = await open(store.usage, directory, { ...OUTBOX_LIMITS, scanMs: 500 });
let count = 0;
const timer = setInterval(() => {
  outbox.record(record({ holderId, model: `m${count % 5}` }));
  count += 1;
  writeSync(1, `${Math.round(performance.now())}\n`);
}, 2);
process.on('SIGTERM', async () => {
  clearInterval(timer);
  await outbox.close(30_000);
  await store.close();
});
