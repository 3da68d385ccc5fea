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

export interface DiskReply {
  readonly number: number;
  readonly value?: unknown;
  readonly error?: unknown;
  readonly state: { readonly batches: number; readonly bytes: number };
}

export class OutboxDisk {
  readonly directory: string;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #worker: Worker | undefined;
  #calls = 0;
  /** The backlog in the file, as of the last reply. */
  state: DiskReply['state'] = { batches: 0, bytes: 0 };

  constructor(directory: string) {
    this.directory = directory;
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
    await this.#worker?.terminate();
  }

  #startThread(): Worker {
    const worker = new Worker(THREAD, { workerData: this.directory, env: {}, execArgv: [] });
    worker.on('message', ({ number, value, error, state }: DiskReply) => {
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
      for (const { reject } of this.#waiting.values())
        reject(new Error('the thread of the usage outbox ended'));
      this.#waiting.clear();
    });
    // After the listeners, because they keep the process running.
    worker.unref();
    return worker;
  }
}

function notAnswering(): Error {
  return new Error('the disk of the usage outbox does not answer');
}
