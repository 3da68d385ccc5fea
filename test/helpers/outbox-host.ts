// A thread that serves usage outboxes one after the other, with the code of `dist/`, and says when it is free again.
import { type MessagePort, parentPort } from 'node:worker_threads';

export interface OutboxTask {
  readonly port: MessagePort;
  readonly directory: string;
}

const BUILT = new URL('../../dist/usage/outbox/outbox-thread.js', import.meta.url);
const { serveOutbox }: { serveOutbox: (port: MessagePort, directory: string) => void } = await import(
  BUILT.href
);

parentPort?.on('message', ({ port, directory }: OutboxTask) => {
  serveOutbox(port, directory);
  port.once('close', () => parentPort?.postMessage('free'));
});
