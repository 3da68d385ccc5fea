// The thread of the outbox file: runs the calls of `OutboxDisk` one after the other.
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { takeOver } from './abandoned-files.ts';
import type { DiskCall, DiskReply, OutboxThreadData } from './outbox-disk.ts';
import { OutboxFile } from './outbox-file.ts';

/** Runs the calls that come from the port, until one of them closes the file; the port closes with it. */
export function serveOutbox(port: MessagePort, { directory, added }: OutboxThreadData): void {
  const file = new OutboxFile(directory);
  let state: DiskReply['state'] = { batches: 0, bytes: 0 };
  port.on('message', ({ number, name, args }: DiskCall) => {
    file.onAdded = () => {
      added[0] = number;
    };
    let result: Pick<DiskReply, 'value' | 'error'>;
    try {
      const method = name === 'takeOver' ? takeOver.bind(undefined, file) : file[name];
      result = { value: Reflect.apply(method, file, args) };
    } catch (error) {
      result = { error };
    }
    try {
      state = file.state;
    } catch {
      // The file cannot be read: the call has its result all the same.
    }
    const reply: DiskReply = { number, ...result, state };
    port.postMessage(reply);
    if (name === 'close') port.close();
  });
}

if (parentPort !== null && isThreadData(workerData)) serveOutbox(parentPort, workerData);

function isThreadData(data: unknown): data is OutboxThreadData {
  return typeof data === 'object' && data !== null && 'added' in data;
}
