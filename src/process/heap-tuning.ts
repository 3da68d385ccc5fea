// V8 garbage collector flags for a gateway's allocation pattern. They affect speed only.
import module from 'node:module';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Length of a look, in milliseconds. */
const LOOK_MS = 5000;
/** A process at rest spends less of a look outside of waiting. */
const AT_REST = 0.05;

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
 * Gives back what only the start needed, a fifth of the resident memory, once the process is at rest. V8 keeps it for garbage that a
 * gateway at rest does not make. The collection takes some tens of milliseconds of a processor, so never while something is asked: a
 * process with a small quota would stand still for seconds.
 */
export function releaseStartMemory(lookMs = LOOK_MS): void {
  let before = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    if (utilization > AT_REST) return;
    clearInterval(timer);
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('gc');
    // Only the last resort shrinks the young generation, too.
    if (typeof collect === 'function') collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  }, lookMs).unref();
}
