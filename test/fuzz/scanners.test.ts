// The long run of the scanners' properties: `FUZZ_RUNS=100000 npx vitest run test/fuzz`. A failure prints its seed and path;
// set FUZZ_SEED to run it again. Without FUZZ_RUNS it only shows that it runs: the tests of each scanner in `test/proxy` try
// its properties several hundred times.
import fc from 'fast-check';
import { describe, test } from 'vitest';
import { properties } from './properties.ts';

const numRuns = Number(process.env['FUZZ_RUNS'] ?? 10);
const seed = process.env['FUZZ_SEED'];

describe('the byte scanners, at length', () => {
  for (const [name, property] of Object.entries(properties)) {
    test(
      name,
      () =>
        void fc.assert<unknown>(property, { numRuns, ...(seed === undefined ? {} : { seed: Number(seed) }) }),
      // As long as it takes: the number of runs is what was asked for.
      60_000 + numRuns * 50,
    );
  }
});
