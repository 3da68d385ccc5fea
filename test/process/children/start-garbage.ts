// A process whose start has filled the young generation. Prints the size of that in MiB while something is under way, and at rest.
import { setTimeout as delay } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { releaseStartMemory } from '../../../src/process/heap-tuning.ts';

const youngSize = (): number =>
  (getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0) / 2 ** 20;

const underWay: unknown[] = [];
for (let turn = 0; turn < 400_000; turn += 1) underWay[turn % 65_536] = { turn, list: [turn, turn, turn] };

let isIdle = false;
let looks = 0;
releaseStartMemory(() => {
  looks += 1;
  return isIdle;
}, 1);
while (looks < 5) await delay(1);
const busy = youngSize();
isIdle = true;
while (youngSize() === busy) await delay(1);
process.stdout.write(JSON.stringify({ busy, rest: youngSize(), kept: underWay.length }));
