// V8 garbage collector flags for a gateway's allocation pattern. They affect speed only.
import module from 'node:module';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Length of a look, in milliseconds. */
const LOOK_MS = 2500;
/** A process at rest spends less of a look outside of waiting. */
const AT_REST = 0.05;
/** After a look with more than this, a burst has ended once the process is at rest. */
const BUSY = 0.25;
/** From one burst's collection to the next, so that a process that is busy and at rest in turns does not pause for each turn. */
const LOOKS_APART = 24;

/**
 * Turns off two V8 heuristics that are wrong for a gateway under load:
 *
 * - Pretenuring: with many concurrent requests most of their objects survive a scavenge, and V8 then allocates such objects in the
 *   old generation. They die a few milliseconds later, but only a full collection frees them.
 * - Heap growing: little survives into the old generation, so V8 lets the heap grow by only a tenth. Young objects count there too,
 *   so each filled young generation triggers a full collection. With 100% growth, scavenges come first.
 *
 * Call it when everything is loaded. The compile cache depends on the flags, so it is written first.
 */
export function tuneHeap(): void {
  module.flushCompileCache();
  setFlagsFromString('--no-allocation-site-pretenuring');
  setFlagsFromString('--heap-growing-percent=100');
}

/**
 * Gives back what the start or a burst of requests needed, up to a fifth of the resident memory, once the process is at rest. V8 keeps it
 * for garbage that a gateway at rest does not make. The collection takes some tens of milliseconds of a processor, and 110 with 2,000 open
 * streams, so there is none while much is asked (a process with a small quota would stand still for seconds), nor under a low but steady load.
 *
 * V8 discards optimized code whose objects have all ended, so once requests have been served, a collection waits for a look with one in
 * flight: without one, the next 30,000 requests would cost half as much again.
 * @param isServing whether a request is in flight
 */
export function releaseMemoryAtRest(isServing: () => boolean, lookMs = LOOK_MS): void {
  let before = performance.eventLoopUtilization();
  let hasServed = false;
  let isDue = true;
  let looksToWait = 0;
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    looksToWait -= 1;
    const isServingNow = isServing();
    hasServed ||= isServingNow;
    isDue ||= utilization > BUSY;
    if (!isDue || looksToWait > 0 || utilization > AT_REST || (hasServed && !isServingNow)) return;
    isDue = false;
    if (hasServed) looksToWait = LOOKS_APART;
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('gc');
    // Only the last resort shrinks the young generation, too.
    if (typeof collect === 'function') collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  }, lookMs).unref();
}
