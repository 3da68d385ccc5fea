// A thread that serves usage outboxes one after the other, with the code of `dist/`, and says when it is free again.
import { type MessagePort, parentPort } from 'node:worker_threads';
import type { OutboxThreadData } from '../../src/usage/outbox/outbox-disk.ts';

export interface OutboxTask {
  readonly port: MessagePort;
  readonly data: OutboxThreadData;
}

const BUILT = new URL('../../dist/usage/outbox/outbox-thread.js', import.meta.url);
const { serveOutbox }: { serveOutbox: (port: MessagePort, data: OutboxThreadData) => void } = await import(
  BUILT.href
);

parentPort?.on('message', ({ port, data }: OutboxTask) => {
  serveOutbox(port, data);
  port.once('close', () => parentPort?.postMessage('free'));
});
