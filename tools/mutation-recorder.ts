// Setup of each test file while `mutate.ts` asks which places of `src` it runs. V8 counts blocks, and their offsets are those of the source:
// Node replaces types by spaces.
import { writeFileSync } from 'node:fs';
import { type Profiler, Session } from 'node:inspector/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect } from 'vitest';
import type { Recorded } from './mutation-coverage.ts';

const FOLDER = process.env['MUTATION_COVERAGE'] ?? '';
const SRC = new URL('../src/', import.meta.url).href;
const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Files of one process share the session: blocks are counted in functions alone that are compiled under it. */
const KEY = Symbol.for('tollgate.mutation-recorder');

const session = await sessionOfProcess();
const began = performance.now();

afterAll(async () => {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const file = relative(ROOT, expect.getState().testPath ?? '');
  const recorded: Recorded = {
    file,
    ms: Math.round(performance.now() - began),
    places: Object.fromEntries(
      result
        .filter(({ url }) => url.startsWith(SRC))
        .map(({ url, functions }) => [relative(ROOT, fileURLToPath(url)), spansRun(functions)]),
    ),
  };
  writeFileSync(join(FOLDER, `${file.replaceAll('/', '!')}.json`), JSON.stringify(recorded));
});

async function sessionOfProcess(): Promise<Session> {
  const known: unknown = Reflect.get(globalThis, KEY);
  const session = known instanceof Session ? known : new Session();
  if (session !== known) {
    session.connect();
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
    Reflect.set(globalThis, KEY, session);
  }
  // Forgets what ran before this file.
  await session.post('Profiler.takePreciseCoverage');
  return session;
}

/** Start and end of each span that ran in a function. What a module does when it loads, it does for the first file alone. */
function spansRun(functions: readonly Profiler.FunctionCoverage[]): number[] {
  const length = Math.max(0, ...functions.flatMap(({ ranges }) => ranges.map(({ endOffset }) => endOffset)));
  const ran = new Uint8Array(length);
  // Outer ones come first.
  for (const { ranges, functionName } of functions) {
    if (functionName === '' && ranges[0]?.startOffset === 0) continue;
    for (const { startOffset, endOffset, count } of ranges)
      ran.fill(count > 0 ? 1 : 0, startOffset, endOffset);
  }
  const spans: number[] = [];
  for (let at = ran.indexOf(1); at !== -1; at = ran.indexOf(1, at)) {
    const end = ran.indexOf(0, at);
    spans.push(at, end === -1 ? length : end);
    if (end === -1) break;
    at = end;
  }
  return spans;
}
