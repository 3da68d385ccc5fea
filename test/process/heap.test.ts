// The V8 flags of a serving process.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const CHILD = fileURLToPath(new URL('./children/young-garbage.ts', import.meta.url));

test('short-lived objects cause no full collection of the heap', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', CHILD]);
  expect(JSON.parse(stdout)).toEqual({ warmedUp: true, full: 0, kept: 400_000 });
});
