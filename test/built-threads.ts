// The thread of the usage outbox starts from `dist/` in the system tests, as programs do: each gateway starts one, and removing the types of
// its files anew each time took half of a gateway's start. `helpers/server-desk.ts` builds `dist/` for each run.
import { syncBuiltinESMExports } from 'node:module';
import threads, { Worker, type WorkerOptions } from 'node:worker_threads';

const SOURCE = new URL('../src/usage/outbox/outbox-thread.ts', import.meta.url).href;
const BUILT = new URL('../dist/usage/outbox/outbox-thread.js', import.meta.url);

class BuiltWorker extends Worker {
  constructor(file: string | URL, options?: WorkerOptions) {
    super(String(file) === SOURCE ? BUILT : file, options);
  }
}

Object.assign(threads, { Worker: BuiltWorker });
syncBuiltinESMExports();
