// The clock of open load, a thread: wakes the generator when a request is due. Timers of the generator's own loop know whole
// milliseconds, which would send requests in bunches.
import { parentPort, workerData } from 'node:worker_threads';
import { z } from 'zod';
import { Schedule } from './schedule.ts';
import { clockMicroseconds } from './traffic.ts';

const { began, per_second, ms, told } = z
  .object({ began: z.number(), per_second: z.number(), ms: z.number(), told: z.instanceof(Int32Array) })
  .parse(workerData);
const sleeping = new Int32Array(new SharedArrayBuffer(4));
const schedule = new Schedule(began, per_second, ms);

for (let due = schedule.next(); due !== undefined; due = schedule.next()) {
  const early = due - clockMicroseconds();
  if (early > 0) Atomics.wait(sleeping, 0, 0, early / 1000);
  // Who has been told and has not looked yet will see this one, too.
  if (Atomics.exchange(told, 0, 1) === 0) parentPort?.postMessage('due');
}
parentPort?.postMessage('end');
