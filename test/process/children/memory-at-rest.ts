// A process whose start, and later a burst, have filled the young generation. Prints the size of that in MiB while the process works, and at
// rest.
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

async function sizes(): Promise<{ busy: number; rest: number }> {
  while (youngSize() <= FULL_MIB) fill();
  await work();
  const busy = youngSize();
  while (youngSize() === busy) await delay(LOOK_MS);
  return { busy, rest: youngSize() };
}

releaseMemoryAtRest(LOOK_MS);
const start = await sizes();
process.stdout.write(JSON.stringify({ start, burst: await sizes(), kept: underWay.length }));
