// A process whose start has filled the young generation. Prints the size of that in MiB while the process works, and at rest.
import { setTimeout as delay } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { releaseStartMemory } from '../../../src/process/heap-tuning.ts';

const youngSize = (): number =>
  (getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0) / 2 ** 20;

const underWay: unknown[] = [];
for (let turn = 0; turn < 400_000; turn += 1) underWay[turn % 65_536] = { turn, list: [turn, turn, turn] };

const LOOK_MS = 100;
releaseStartMemory(LOOK_MS);
// Half of each look, as a process that is asked.
for (let turn = 0; turn < 20; turn += 1) {
  for (const end = performance.now() + 20; performance.now() < end; );
  await delay(20);
}
const busy = youngSize();
while (youngSize() === busy) await delay(LOOK_MS);
process.stdout.write(JSON.stringify({ busy, rest: youngSize(), kept: underWay.length }));
