import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { tempDir } from '../helpers/wait.ts';

test('a full disk loses nothing while memory has room, and leaves no partial write', async () => {
  await using dir = await tempDir();
  const script = fileURLToPath(new URL('./children/full-disk.ts', import.meta.url));
  // Files may not grow beyond 128 or 256 KiB: a write there fails in the middle, as on a full disk.
  const command = 'ulimit -f 256; trap "" XFSZ; exec "$0" "$@"';
  const { stdout } = await promisify(execFile)(
    'sh',
    ['-c', command, process.execPath, script, dir.file('directory')],
    {
      timeout: 60_000,
    },
  );
  const told = JSON.parse(stdout);
  expect(told).toEqual({
    recorded: expect.any(Number),
    counted: told.recorded,
    isDone: true,
    dropped: {},
    left: [],
  });
  expect(told.recorded).toBeGreaterThan(50);
}, 90_000);
