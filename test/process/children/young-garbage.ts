// A process like a serving gateway: many long-lived objects, few of them new, and many short-lived ones. Prints the number of
// full collections. Run with --expose-gc.
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { tuneHeap } from '../../../src/process/heap-tuning.ts';

const KEPT = 400_000;
const FORGOTTEN_PER_TURN = 8_000;
const UNDER_WAY = 65_536;

const gcEntry = z.object({ detail: z.object({ kind: z.number() }) });

let full = 0;
const observer = new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    const { kind } = gcEntry.parse(entry).detail;
    if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) full += 1;
  }
});
observer.observe({ entryTypes: ['gc'] });

tuneHeap();
const kept = Array.from({ length: KEPT }, (_, index) => ({ index, text: `kept ${index}` }));
// Collections with nothing new between them: V8 finds that the old part grows slowly.
for (let round = 0; round < 12; round += 1) {
  globalThis.gc?.();
  await delay(100);
}
const before = full;
const underWay: unknown[] = new Array(UNDER_WAY);
for (let turn = 0; turn < 600; turn += 1) {
  for (let index = 0; index < FORGOTTEN_PER_TURN; index += 1) {
    underWay[index % UNDER_WAY] = { index, list: [index, index, index, index, index, index] };
  }
  await delay(1);
}
await delay(50);
process.stdout.write(JSON.stringify({ warmedUp: before >= 12, full: full - before, kept: kept.length }));
