// The thread of the outbox file: runs the calls of `OutboxDisk` one after the other.
import { parentPort, workerData } from 'node:worker_threads';
import { takeOver } from './abandoned-files.ts';
import type { DiskCall, DiskReply } from './outbox-disk.ts';
import { OutboxFile } from './outbox-file.ts';

const file = new OutboxFile(String(workerData));

parentPort?.on('message', ({ number, name, args }: DiskCall) => {
  let result: Pick<DiskReply, 'value' | 'error'>;
  try {
    const method = name === 'takeOver' ? takeOver.bind(undefined, file) : file[name];
    result = { value: Reflect.apply(method, file, args) };
  } catch (error) {
    result = { error };
  }
  const reply: DiskReply = { number, ...result, state: file.state };
  parentPort?.postMessage(reply);
  if (name === 'close') parentPort?.close();
});
