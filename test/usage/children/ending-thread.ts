// The thread of an outbox file that ends once, at the moment that a file beside its directory names: in a call, at a step of it.
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';

const path = `${workerData.directory}.moment`;
const moment = existsSync(path) ? readFileSync(path, 'utf8') : undefined;
let call = '';

function at(step: string): void {
  if (moment !== `${call} ${step}`) return;
  rmSync(path);
  process.exit();
}

const { exec } = DatabaseSync.prototype;
DatabaseSync.prototype.exec = function (sql) {
  if (sql === 'commit') at('before the commit');
  exec.call(this, sql);
};
if (parentPort !== null) {
  const { postMessage } = parentPort;
  parentPort.postMessage = (reply: unknown) => {
    at('before the reply');
    postMessage.call(parentPort, reply);
    at('after the reply');
  };
  const port = parentPort;
  const { on } = port;
  Object.defineProperty(port, 'on', {
    value: (event: string, listen: (message: unknown) => void) =>
      on.call(port, event, (message: { readonly name: string }) => {
        call = message.name;
        at('before it');
        listen(message);
      }),
  });
}

await import('../../../src/usage/outbox/outbox-thread.ts');
