// The threads of usage outboxes in the system tests. Each gateway needs one, and its start takes more than half of the time in which
// a gateway starts and stops. So a thread whose outbox was closed serves the next one. One that is terminated, or fails, ends as in production.
import { EventEmitter, once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import threads, { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { OutboxThreadData } from '../../src/usage/outbox/outbox-disk.ts';
import type { OutboxTask } from './outbox-host.ts';

const SOURCE = new URL('../../src/usage/outbox/outbox-thread.ts', import.meta.url).href;
const HOST = new URL('./outbox-host.ts', import.meta.url);

/** Hosts without an outbox. */
const free: Worker[] = [];

/** What `OutboxDisk` uses of a `Worker`. */
class OutboxThread extends EventEmitter {
  readonly #host = free.pop() ?? new Worker(HOST, { env: {}, execArgv: [] });
  readonly #port: MessagePort;
  #isOver = false;

  constructor(data: OutboxThreadData) {
    super();
    const { port1, port2 } = new MessageChannel();
    this.#port = port1.on('message', (reply) => void this.emit('message', reply));
    // The last reply comes before the close of its port, and a host that failed is never free.
    Promise.all([once(port1, 'close'), once(this.#host, 'message')]).then(
      () => this.#leave(),
      () => {},
    );
    this.#host
      .on('error', (error) => void this.emit('error', error))
      .on('exit', (code) => void this.emit('exit', code));
    const task: OutboxTask = { port: port2, data };
    this.#host.postMessage(task, [port2]);
  }

  postMessage(call: unknown): void {
    this.#port.postMessage(call);
  }

  unref(): void {
    this.#port.unref();
    this.#host.unref();
  }

  async terminate(): Promise<number> {
    // Afterwards the host is another's.
    if (this.#isOver) return 0;
    this.#isOver = true;
    return await this.#host.terminate();
  }

  /** To `OutboxDisk` the thread has ended. */
  #leave(): void {
    // A host that is being terminated serves no other outbox, and its end is awaited.
    if (this.#isOver) return;
    this.#isOver = true;
    for (const event of ['message', 'error', 'exit']) this.#host.removeAllListeners(event);
    this.#host.unref();
    free.push(this.#host);
    this.emit('exit', 0);
  }
}

Object.assign(threads, {
  Worker: new Proxy(Worker, {
    construct: (target, words, caller) =>
      String(words[0]) === SOURCE
        ? new OutboxThread(words[1].workerData)
        : Reflect.construct(target, words, caller),
  }),
});
syncBuiltinESMExports();
