// How the tests run: real processes and sockets, so files in parallel forks but no shared state between them.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    // Half of the time of a file is waiting, so three keep two cores busy.
    maxWorkers: 3,
    testTimeout: 120_000,
    hookTimeout: 120_000,
    reporters: ['default', './test/summary.ts'],
  },
});
