// Work on a long text in memory, in slices, so that other work can run between them.
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';

/** Bytes of a slice, and milliseconds of work per event-loop tick. */
const SLICE_BYTES = 32 * 1024;
const TICK_MS = 0.5;

/**
 * @param size of the text in bytes
 * @param advance called with larger and larger ends, the last one being `size` @returns false to stop
 */
export async function inSlices(
  size: number,
  advance: (end: number, isLast: boolean) => boolean,
): Promise<void> {
  let began = performance.now();
  for (let end = 0; end < size; ) {
    end = Math.min(size, end + SLICE_BYTES);
    if (!advance(end, end === size)) return;
    if (performance.now() - began < TICK_MS) continue;
    await yieldToEventLoop();
    began = performance.now();
  }
}
