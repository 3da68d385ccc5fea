// The thread of the outbox file: runs the calls of `OutboxDisk` one after the other.
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { takeOver } from './abandoned-files.ts';
import type { DiskCall, DiskReply } from './outbox-disk.ts';
import { OutboxFile } from './outbox-file.ts';

/** Runs the calls that come from the port, until one of them closes the file; the port closes with it. */
export function serveOutbox(port: MessagePort, directory: string): void {
  const file = new OutboxFile(directory);
  port.on('message', ({ number, name, args }: DiskCall) => {
    let result: Pick<DiskReply, 'value' | 'error'>;
    try {
      const method = name === 'takeOver' ? takeOver.bind(undefined, file) : file[name];
      result = { value: Reflect.apply(method, file, args) };
    } catch (error) {
      result = { error };
    }
    const reply: DiskReply = { number, ...result, state: file.state };
    port.postMessage(reply);
    if (name === 'close') port.close();
  });
}

if (parentPort !== null && typeof workerData === 'string') serveOutbox(parentPort, workerData);
