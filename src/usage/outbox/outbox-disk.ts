// Calls the outbox file in its thread, so that a slow or hanging disk does not block the event loop.
import { Worker } from 'node:worker_threads';
import { withDeadline } from '../../deadline.ts';
import { threadFile } from '../../package-files.ts';
import type { AbandonedUsage } from './abandoned-files.ts';
import type { OutboxFile } from './outbox-file.ts';

const ANSWER_MS = 5000;
/** Maximum pending calls. */
const MAX_CALLS = 100;
const THREAD = threadFile('usage/outbox/outbox-thread');

type Calls = Pick<OutboxFile, 'add' | 'next' | 'postpone' | 'remove' | 'setAside'> &
  Pick<OutboxFile, 'rowsOf' | 'setSync' | 'close'> & {
    readonly takeOver: (staleBefore: number, maxBytes: number) => AbandonedUsage;
  };

export interface DiskCall {
  readonly number: number;
  readonly name: keyof Calls;
  readonly args: readonly unknown[];
}

/** What the thread is started with. */
export interface OutboxThreadData {
  readonly directory: string;
  /** In shared memory: the number of the last `add` whose rows are in the file. It outlives a thread that ends before its reply. */
  readonly added: Float64Array<SharedArrayBuffer>;
}

export interface DiskReply {
  readonly number: number;
  readonly value?: unknown;
  readonly error?: unknown;
  readonly state: { readonly batches: number; readonly bytes: number };
}

export class OutboxDisk {
  readonly directory: string;
  /** Called when the thread has ended by itself, unless it ended before its first reply. */
  onEnd = () => {};
  readonly #thread: URL;
  readonly #added = new Float64Array(new SharedArrayBuffer(Float64Array.BYTES_PER_ELEMENT));
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #worker: Worker | undefined;
  #calls = 0;
  /** The backlog in the file, as of the last reply. */
  state: DiskReply['state'] = { batches: 0, bytes: 0 };

  /** @param thread the file that the thread runs */
  constructor(directory: string, thread = THREAD) {
    this.directory = directory;
    this.#thread = thread;
  }

  /** Starts the thread before its first call. It leaves the disk alone until then. */
  start(): void {
    this.#worker ??= this.#startThread();
  }

  /**
   * Calls a method of the file in its thread. Calls run in the order in which they are made.
   * @returns its result, without a deadline
   * @throws what the method throws
   */
  async call<Name extends keyof Calls>(
    name: Name,
    ...args: Parameters<Calls[Name]>
  ): Promise<ReturnType<Calls[Name]>> {
    if (this.#waiting.size >= MAX_CALLS) throw notAnswering();
    this.#worker ??= this.#startThread();
    this.#calls += 1;
    const reply = Promise.withResolvers<unknown>();
    this.#waiting.set(this.#calls, reply);
    const call: DiskCall = { number: this.#calls, name, args };
    this.#worker.postMessage(call);
    // What the method of this name returns.
    return (await reply.promise) as ReturnType<Calls[Name]>;
  }

  /** Like `call`, with a deadline. After a rejection, the call may still complete later. */
  callInTime<Name extends keyof Calls>(name: Name, ...args: Parameters<Calls[Name]>) {
    return withDeadline(this.call(name, ...args), ANSWER_MS, notAnswering);
  }

  /** Ends the thread as if the process had been killed. */
  async abandon(): Promise<void> {
    this.onEnd = () => {};
    await this.#worker?.terminate();
  }

  #startThread(): Worker {
    const workerData: OutboxThreadData = { directory: this.directory, added: this.#added };
    const worker = new Worker(this.#thread, { workerData, env: {}, execArgv: [] });
    let isServing = false;
    worker.on('message', ({ number, value, error, state }: DiskReply) => {
      isServing = true;
      const reply = this.#waiting.get(number);
      this.#waiting.delete(number);
      this.state = state;
      if (error === undefined) reply?.resolve(value);
      else reply?.reject(error);
    });
    worker.on('error', () => {});
    // The next call starts a new thread, whose first `takeOver` moves the content of the file.
    worker.on('exit', () => {
      this.#worker = undefined;
      const calls = [...this.#waiting];
      this.#waiting.clear();
      for (const [number, { resolve, reject }] of calls) {
        // To add the rows again would count them twice.
        if (number === this.#added[0]) resolve(undefined);
        else reject(new Error('the thread of the usage outbox ended'));
      }
      if (isServing) this.onEnd();
    });
    // After the listeners, because they keep the process running.
    worker.unref();
    return worker;
  }
}

function notAnswering(): Error {
  return new Error('the disk of the usage outbox does not answer');
}
