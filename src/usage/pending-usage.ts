// Reads usage of a holder, team or key from the store together with the rows that the store may not have yet, each row exactly once: rows
// in memory, in the file, and in batches whose outcome is unknown.
//
// This process sends no batch during the read. The store may have committed a batch without an answer, or one of another process;
// their ids are checked before and after the read, because the commit may happen in between.
import { withDeadline } from '../deadline.ts';
import { GatewayError, wrapError } from '../errors.ts';
import type { CountingStore } from '../store/store.ts';
import type { UsageRow } from '../store/usage-record.ts';
import type { BatchSender } from './outbox/batch-sender.ts';
import type { OutboxDisk } from './outbox/outbox-disk.ts';
import type { PendingFilter } from './outbox/outbox-row.ts';

const ATTEMPTS = 8;

export interface PendingUsage<T> {
  readonly stored: T;
  readonly pending: readonly UsageRow[];
}

interface PendingRead<T> {
  readonly store: Pick<CountingStore, 'knownBatches'>;
  readonly disk: Pick<OutboxDisk, 'call'>;
  readonly sender: Pick<BatchSender, 'isUncertain' | 'glance' | 'hold'>;
  readonly filter: PendingFilter;
  /** Reads the store. */
  readonly ask: () => Promise<T>;
  /** Those of the rows that the file does not have yet. Evaluate the result after a later call of the file has returned. */
  readonly unwritten: () => () => readonly UsageRow[];
  /** Deadline in milliseconds: a large backlog takes long to read, and a partial sum would be wrong. */
  readonly readMs: number;
}

/** @throws what `ask` throws; GatewayError `store_unavailable` when it takes longer than `readMs` */
export async function readPending<T>(read: PendingRead<T>): Promise<PendingUsage<T>> {
  const { sender, readMs } = read;
  const late = () => new GatewayError('store_unavailable', 'The usage cannot be read in time at the moment.');
  let isOver = false;
  const attempts = async () => {
    for (let attempt = 1; attempt <= ATTEMPTS && !isOver; attempt += 1) {
      // A silent store must not block the sender.
      const once = () => withDeadline(readOnce(read), readMs, late);
      // Usually nothing is being sent. Only a repeated read makes the next batch wait.
      const found = attempt === 1 ? await sender.glance(once) : await sender.hold(once);
      if (found !== undefined) return found;
    }
    throw new GatewayError('store_unavailable');
  };
  return withDeadline(attempts(), readMs, late).finally(() => {
    isOver = true;
  });
}

/** @returns undefined when a batch of unknown outcome was committed meanwhile */
async function readOnce<T>(read: PendingRead<T>): Promise<PendingUsage<T> | undefined> {
  const { store, disk, sender, filter, ask } = read;
  const unwritten = read.unwritten();
  const batches = await disk.call('rowsOf', filter).catch((error: unknown) => {
    throw wrapError(error, 'store_unavailable');
  });
  const pending = [...unwritten()];
  const uncertain = batches.filter((batch) => sender.isUncertain(batch)).map(({ id }) => id);
  const known = async () => (uncertain.length === 0 ? new Set<string>() : store.knownBatches(uncertain));
  const before = await known();
  const stored = await ask();
  const after = await known();
  for (const { id, rows } of batches) if (!after.has(id)) pending.push(...rows);
  return after.size === before.size ? { stored, pending } : undefined;
}
