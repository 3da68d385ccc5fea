// Two packages that two test files need at the same time: apt fails at once when another apt is at work.
import { chmod, writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { installPackage } from './debian-packages.ts';
import { tempDir } from './wait.ts';

/** Fails as apt does when another one holds the lock; what was installed is a file of that name. */
const APT = `#!/bin/sh
here=$(dirname "$0")
mkdir "$here/lock" 2> /dev/null || { echo 'E: Could not get lock' >&2; exit 100; }
[ "$1" = update ] && sleep 0.2
for name in "$@"; do :; done
: > "$here/$name.installed"
rmdir "$here/lock"
`;

test('different packages are installed one after the other, each once', async () => {
  await using directory = await tempDir();
  const apt = directory.file('apt-get');
  await writeFile(apt, APT);
  await chmod(apt, 0o755);
  const env = { ...process.env, PATH: `${directory.path}:${process.env['PATH']}` };
  const names = ['one', 'other', 'one', 'third'];
  const results = await Promise.allSettled(
    names.map((name) => installPackage(name, `test -e ${directory.file(`${name}.installed`)}`, env)),
  );
  expect(results.map(({ status }) => status)).toEqual(names.map(() => 'fulfilled'));
});
