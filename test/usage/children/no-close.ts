// Opens an outbox, writes a record down, and does nothing more: the process ends by itself.
import { openStore } from '../../../src/store/open.ts';
import { BY_HAND, open, record } from '../samples.ts';

const [path = '', directory = ''] = process.argv.slice(2);
const store = await openStore({ kind: 'sqlite', path });
const { outbox } = await open(
  { ...store.usage, addUsage: () => Promise.reject(new Error('away')) },
  directory,
  BY_HAND,
);
outbox.record(record());
await outbox.flush();
await store.close();
