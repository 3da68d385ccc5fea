// The garbage collector on demand, for tests that measure memory in the process that they run in.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');

/** Collects all of the heap. */
export const collectGarbage: () => void = runInNewContext('gc');
