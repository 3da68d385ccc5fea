// A process in which streams begin, half of them end, and others begin. Prints the number of young collections after each step.
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { collectAsStreamsBegin } from '../../../src/process/heap-tuning.ts';
import { lastingStreams } from '../../../src/proxy/answer/stream/lasting-streams.ts';

const gcEntry = z.object({ detail: z.object({ kind: z.number() }) });
const entries: unknown[] = [];
const observer = new PerformanceObserver((list) => entries.push(...list.getEntries()));
observer.observe({ entryTypes: ['gc'] });

/** One stream in each tick. @returns the young collections meanwhile */
async function change(count: number, by: () => void): Promise<number> {
  entries.length = 0;
  for (let at = 0; at < count; at += 1) {
    by();
    await delay(0);
  }
  entries.push(...observer.takeRecords());
  return entries.filter((entry) => gcEntry.parse(entry).detail.kind === constants.NODE_PERFORMANCE_GC_MINOR)
    .length;
}

collectAsStreamsBegin();
const began = await change(320, () => lastingStreams.began());
const ended = await change(160, () => lastingStreams.ended());
const again = await change(160, () => lastingStreams.began());
process.stdout.write(JSON.stringify({ began, ended, again }));
