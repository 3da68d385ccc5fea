// How V8 is told to treat what a request leaves behind. It is about speed alone: nothing else depends on it.
import module from 'node:module';
import { setFlagsFromString } from 'node:v8';

/**
 * Two guesses of V8's are wrong for a gateway once it serves, and are taken from it:
 *
 * - When many requests are under way at once, most of what they made outlives a collection of young objects, and V8 then
 *   makes such objects old ones from the beginning; that they die a few milliseconds later is found out by full collections alone.
 * - As next to nothing of a request becomes old, V8 finds that old memory grows slowly and gives it a tenth more room than it
 *   takes. Young objects count there too, so that each time they have filled their space all of the heap is collected. With room
 *   for as much again, the collection of young objects comes first.
 *
 * To be called when everything is loaded: what is compiled under other flags than the next process starts with is of no use
 * in the compile cache, so that is written first.
 */
export function tuneHeap(): void {
  module.flushCompileCache();
  setFlagsFromString('--no-allocation-site-pretenuring');
  setFlagsFromString('--heap-growing-percent=100');
}
