// A process whose start, and later a burst, have filled the young generation. Prints the size of that in MiB while the process works, at rest
// without a request, and at rest with one.
import { setTimeout as delay } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { releaseMemoryAtRest } from '../../../src/process/heap-tuning.ts';

const youngSize = (): number =>
  (getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0) / 2 ** 20;

const underWay: unknown[] = [];
function fill(): void {
  for (let turn = 0; turn < 400_000; turn += 1) underWay[turn % 65_536] = { turn, list: [turn, turn, turn] };
}

const LOOK_MS = 100;
const FULL_MIB = 8;
/** Half of each look, as a process that is asked. */
async function work(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    for (const end = performance.now() + 20; performance.now() < end; );
    await delay(20);
  }
}

async function busySize(): Promise<number> {
  while (youngSize() <= FULL_MIB) fill();
  await work();
  return youngSize();
}

async function sizeAfter(busy: number): Promise<number> {
  while (youngSize() === busy) await delay(LOOK_MS);
  return youngSize();
}

let isServing = false;
/** While no request is in flight. */
let looks = 0;
releaseMemoryAtRest(() => {
  looks += 1;
  return isServing;
}, LOOK_MS);
const startBusy = await busySize();
const start = { busy: startBusy, rest: await sizeAfter(startBusy) };

isServing = true;
const busy = await busySize();
isServing = false;
looks = 0;
while (looks < 5 && youngSize() === busy) await delay(LOOK_MS);
const unasked = youngSize();
isServing = true;
const burst = { busy, unasked, rest: unasked === busy ? await sizeAfter(busy) : unasked };
process.stdout.write(JSON.stringify({ start, burst, kept: underWay.length }));
