// The V8 flags of a serving process.
// Runs beside one other: it waits until a process is at rest, which takes long while many others compete for the processors.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const child = (name: string): string => fileURLToPath(new URL(`./children/${name}.ts`, import.meta.url));

test('short-lived objects cause no full collection of the heap', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', child('young-garbage')]);
  expect(JSON.parse(stdout)).toEqual({ warmedUp: true, full: 0, kept: 400_000 });
});

test('what the start and a burst needed is given back at rest: of a burst, while a request is in flight', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [child('memory-at-rest')]);
  const { start, burst, kept } = JSON.parse(stdout);
  expect(kept).toBe(65_536);
  for (const { busy, rest } of [start, burst]) {
    expect(busy).toBeGreaterThan(8);
    expect(rest).toBeLessThan(3);
  }
  expect(burst.unasked).toBeGreaterThan(8);
});
