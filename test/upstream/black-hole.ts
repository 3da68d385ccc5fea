// A TCP port of the loopback that drops every SYN, as an address does behind which nothing is: a listener whose queue of
// connections is full and that never accepts one. Linux drops what does not fit into the queue.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { pause, until, within } from '../helpers/wait.ts';

// Its event loop stands still as soon as it listens, so nobody accepts.
const LISTENER = `
const { parentPort, workerData } = require('node:worker_threads');
const server = require('node:net').createServer();
server.listen({ ...workerData, backlog: 1, ipv6Only: workerData.host.includes(':') }, () => {
  parentPort.postMessage(server.address().port);
  setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 120_000));
});
`;

export class BlackHole implements AsyncDisposable {
  readonly port: number;
  readonly #worker: Worker;
  readonly #fillers: readonly Socket[];

  private constructor(port: number, worker: Worker, fillers: readonly Socket[]) {
    this.port = port;
    this.#worker = worker;
    this.#fillers = fillers;
  }

  /** @param port default: a free one */
  static async start(host = '127.0.0.1', port = 0): Promise<BlackHole> {
    const worker = new Worker(LISTENER, { eval: true, workerData: { host, port } });
    const [bound]: unknown[] = await within(once(worker, 'message'), 'the port of the black hole');
    if (typeof bound !== 'number') throw new Error('the black hole has no port');
    const fillers: Socket[] = [];
    const hole = new BlackHole(bound, worker, fillers);
    await until(async () => {
      fillers.push(connect(bound, host).on('error', () => {}));
      // The kernel answers a SYN of this machine at once, whatever the process is doing.
      await pause(20);
      return hole.waiting > 0;
    }, 'the queue to be full');
    // The one that did not fit would take the next place.
    fillers.pop()?.destroy();
    await until(() => hole.waiting === 0, 'the queue to be all that waits');
    return hole;
  }

  /** Connections of this machine whose SYN to the port is not answered. */
  get waiting(): number {
    const port = `:${this.port.toString(16).toUpperCase().padStart(4, '0')}`;
    return ['tcp', 'tcp6']
      .flatMap((table) => readFileSync(`/proc/net/${table}`, 'utf8').trim().split('\n').slice(1))
      .map((line) => line.trim().split(/\s+/))
      .filter(([, , remote, state]) => remote?.endsWith(port) === true && state === '02').length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#fillers) socket.destroy();
    await this.#worker.terminate();
  }
}
