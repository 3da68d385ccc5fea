// How the tests run: the projects of `test/projects.ts` side by side on the same workers.
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { type Project, testProjects } from './test/projects.ts';
import { useMemoryForFiles } from './test/temporary-files.ts';

const files = testProjects();

// Programs of the tests load in half the time. Gateways use this directory without being told.
process.env.NODE_COMPILE_CACHE ??= join(tmpdir(), 'node-compile-cache');
useMemoryForFiles();

/** `npm run mutate` asks what the tests run of `src`. */
const recorder = process.env['MUTATION_COVERAGE'] === undefined ? [] : ['./tools/mutation-recorder.ts'];

function project(
  name: Project,
  options: TestProjectInlineConfiguration['test'],
): TestProjectInlineConfiguration {
  return {
    test: {
      name,
      include: [...files[name]],
      pool: 'forks',
      testTimeout: 120_000,
      hookTimeout: 120_000,
      restoreMocks: true,
      ...options,
      setupFiles: [options?.setupFiles ?? [], recorder].flat(),
    },
  };
}

/** How often a failed system test is repeated. Unit tests are never repeated: a property test that fails has found something. */
const retry = Number(process.env.TEST_RETRIES ?? 0);
const system = {
  // Much of their time is waiting, so nine workers keep two cores busy.
  maxWorkers: 9,
  globalSetup: ['./test/helpers/server-desk.ts'],
  setupFiles: ['./test/cheap-argon2.ts', './test/built-threads.ts'],
  retry,
};

/** What comes behind the other system tests: as many files at the same time as there are processors, so that each has one. */
const behind = { maxWorkers: Math.max(2, availableParallelism()), sequence: { groupOrder: 1 } };

/** Vitest begins with the largest file. The check of the benchmark is a small one, and takes as long as the rest of `system-quiet`. */
class LongestFirst extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(specifications);
    const isLongest = ({ moduleId }: TestSpecification) => moduleId.endsWith('/test/bench/check.test.ts');
    return [...sorted.filter(isLongest), ...sorted.filter((each) => !isLongest(each))];
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    // Node loads the tests and the code itself, as it does in production, which also takes less time than vite's runner.
    experimental: { viteModuleRunner: false },
    reporters: ['default', './test/summary.ts'],
    projects: [
      // Beside `system-quiet`, whose long files leave a processor idle.
      project('unit', { ...behind, isolate: false, setupFiles: ['./test/no-system.ts'] }),
      project('system', { ...system, isolate: false }),
      project('system-isolated', system),
      project('system-quiet', { ...system, ...behind }),
    ],
  },
});
