// What one holder used and the store may not have yet, together with what the store has: each row exactly once, wherever it is
// (memory, file, a batch that was sent and whose outcome is unknown).
//
// While the store is read no batch of this process is sent. The store may have a batch that was sent without an answer, or that
// another process has left: it is asked by its id, before and after, because such a batch may be committed in between.
import { withDeadline } from '../deadline.ts';
import { GatewayError, wrapError } from '../errors.ts';
import type { UsageStore } from '../store/store.ts';
import type { UsageRow } from '../store/usage-record.ts';
import type { BatchSender } from './outbox/batch-sender.ts';
import type { OutboxDisk } from './outbox/outbox-disk.ts';

const ATTEMPTS = 8;

export interface PendingUsage<T> {
  readonly stored: T;
  readonly pending: readonly UsageRow[];
}

export interface PendingRead<T> {
  readonly store: Pick<UsageStore, 'knownBatches'>;
  readonly disk: Pick<OutboxDisk, 'call'>;
  readonly sender: Pick<BatchSender, 'isUncertain' | 'glance' | 'hold'>;
  readonly holderId: string;
  /** Reads the store. */
  readonly ask: () => Promise<T>;
  /** The holder's rows that the file does not have at the moment of the call. To be evaluated when a later call of the file has returned. */
  readonly unwritten: () => () => readonly UsageRow[];
  /** A large backlog may take longer to read than a request waits. A partial sum would be wrong, so there is none then. */
  readonly readMs: number;
}

/** @throws what `ask` throws; GatewayError `store_unavailable` when it takes longer than `readMs` */
export async function readPending<T>(read: PendingRead<T>): Promise<PendingUsage<T>> {
  const { sender, readMs } = read;
  const late = () =>
    new GatewayError('store_unavailable', 'What was used cannot be read in time at the moment.');
  let isOver = false;
  const attempts = async () => {
    for (let attempt = 1; attempt <= ATTEMPTS && !isOver; attempt += 1) {
      // A store that never answers must not hold up the sender for ever.
      const once = () => withDeadline(readOnce(read), readMs, late);
      // Mostly nothing is being sent. Only a read that was disturbed makes the next batch wait for it.
      const found = attempt === 1 ? await sender.glance(once) : await sender.hold(once);
      if (found !== undefined) return found;
    }
    throw new GatewayError('store_unavailable');
  };
  return withDeadline(attempts(), readMs, late).finally(() => {
    isOver = true;
  });
}

/** @returns undefined where a batch of unknown outcome was committed meanwhile */
async function readOnce<T>(read: PendingRead<T>): Promise<PendingUsage<T> | undefined> {
  const { store, disk, sender, holderId, ask } = read;
  const unwritten = read.unwritten();
  const batches = await disk.call('rowsOf', holderId).catch((error: unknown) => {
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
