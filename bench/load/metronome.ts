// The clock of open load, a thread: tells the generator each moment at which a request is due. Timers of the generator's own
// loop know whole milliseconds, which would send requests in bunches.
import { parentPort, workerData } from 'node:worker_threads';
import { z } from 'zod';
import { clockMicroseconds } from './traffic.ts';

const { per_second, ms } = z.object({ per_second: z.number(), ms: z.number() }).parse(workerData);
const sleeping = new Int32Array(new SharedArrayBuffer(4));

/** The same moments in every run (a linear congruential generator, constants of Numerical Recipes): everyone gets the same load. */
let state = 1;
function random(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return (state + 1) / 2 ** 32;
}

const began = clockMicroseconds();
for (let due = began; ; ) {
  // Exponential gaps: arrivals that know nothing of each other.
  due += (-Math.log(random()) * 1e6) / per_second;
  if (due > began + ms * 1000) break;
  const early = due - clockMicroseconds();
  if (early > 0) Atomics.wait(sleeping, 0, 0, early / 1000);
  parentPort?.postMessage(due);
}
parentPort?.postMessage('end');
