// A reporter whose last line, alone, is `N passed, N failed, N skipped`, for a person and a program to read.
// A file that does not load, a failed hook and an unhandled error each count as failed.
import { writeSync } from 'node:fs';
import type { Reporter, TestCase, TestModule, TestSuite } from 'vitest/node';

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The parts of vitest's result that count. */
export type Module = Pick<TestModule, 'errors'> & {
  readonly children: {
    allTests(): Iterable<{ result(): { state: ReturnType<TestCase['result']>['state'] } }>;
    allSuites(): Iterable<Pick<TestSuite, 'errors'>>;
  };
};

export function count(modules: readonly Module[], unhandled: readonly unknown[]): Counts {
  let passed = 0;
  let skipped = 0;
  let failed = unhandled.length;
  for (const module of modules) {
    if (module.errors().length > 0) failed += 1;
    for (const suite of module.children.allSuites()) if (suite.errors().length > 0) failed += 1;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === 'passed') passed += 1;
      else if (state === 'skipped') skipped += 1;
      // A test that is still pending at the end of the run was lost with its process.
      else failed += 1;
    }
  }
  return { passed, failed, skipped };
}

export function line(counts: Counts): string {
  return `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`;
}

/** The tests that failed first and passed when `TEST_RETRIES` repeated them, with what failed. */
function flakyTests(module: TestModule): readonly string[] {
  return Array.from(module.children.allTests())
    .filter((test) => test.diagnostic()?.flaky === true)
    .map((test) => {
      const [error] = test.result().errors ?? [];
      const place = error?.stacks?.[0];
      const where = place === undefined ? '' : ` (${place.file.split('/').at(-1)}:${place.line})`;
      // Counterexamples of properties have any characters, and many.
      const [reason = ''] = (error?.message ?? 'no error').split('\n');
      return `${module.relativeModuleId} > ${test.fullName}: ${reason.slice(0, 300).replace(/[^ -~]/g, '?')}${where}`;
    });
}

export default class Summary implements Reporter {
  #line: string | undefined;
  #watching = false;

  onInit(): void {
    // Other reporters, and vitest itself, may still print after the run: only the end of the process is the end.
    process.once('exit', () => {
      if (this.#line !== undefined && !this.#watching) print(this.#line);
    });
  }

  onWatcherStart(): void {
    this.#watching = true;
    if (this.#line !== undefined) print(this.#line);
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    for (const name of modules.flatMap(flakyTests)) print(`flaky, passed when repeated: ${name}`);
    this.#line = line(count(modules, unhandled));
  }
}

function print(text: string): void {
  // Synchronous, because nothing asynchronous survives `exit`.
  writeSync(1, `${text}\n`);
}
