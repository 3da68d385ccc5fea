// The watch over a configuration file: every way in which a file is changed, with real files, and what is no change.
import { appendFile, link, mkdir, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test as sequential } from 'vitest';
import { FileWatch, type WatchTimes } from '../../src/config/watch-config.ts';
import { pause, type TempDir, tempDir, until } from '../helpers/wait.ts';

/** Most of the time is waiting, so they wait together. */
const test = sequential.concurrent;

/** What was told, in order: the content, or `unreadable: …`. */
interface Watched extends AsyncDisposable {
  readonly told: string[];
  readonly watch: FileWatch;
}

/** The poll is so slow that only events can be the cause, unless the test says otherwise. */
async function watched(directory: TempDir, file: string, times: Partial<WatchTimes> = {}): Promise<Watched> {
  const told: string[] = [];
  const watch = new FileWatch({
    file,
    known: Buffer.from('what it held before'),
    onContent: (bytes) => told.push(bytes.toString()),
    onUnreadable: (error) => told.push(`unreadable: ${error.message}`),
    times: { poll: 600_000, ...times },
  });
  watch.start();
  // The first look sets up the watchers of directories; what the file holds is told by a later one.
  await until(() => told.length === 1, 'the first look');
  told.length = 0;
  return {
    told,
    watch,
    async [Symbol.asyncDispose]() {
      watch.stop();
      await directory.remove();
    },
  };
}

/** A file with `one` in it. */
async function plainFile(times?: Partial<WatchTimes>): Promise<Watched & { file: string }> {
  const directory = await tempDir();
  const file = directory.file('config.yaml');
  await writeFile(file, 'one');
  return Object.assign(await watched(directory, file, times), { file });
}

/** Until `count` things were told, and a moment longer in which nothing else is to come. */
async function tells({ told }: Watched, ...expected: string[]): Promise<void> {
  await until(() => told.length >= expected.length, `${expected.length} changes to be told`);
  await pause(100);
  expect(told).toEqual(expected);
}

describe('a change is noticed', () => {
  test('when the file is written in place', async () => {
    await using it = await plainFile();
    await writeFile(it.file, 'two');
    await tells(it, 'two');
    await writeFile(it.file, 'three');
    await tells(it, 'two', 'three');
  });

  test('when another file is renamed over it', async () => {
    await using it = await plainFile();
    for (const text of ['two', 'three']) {
      await writeFile(`${it.file}.new`, text);
      await rename(`${it.file}.new`, it.file);
      await until(() => it.told.at(-1) === text);
    }
    await tells(it, 'two', 'three');
  });

  test('when it is deleted and made again', async () => {
    await using it = await plainFile();
    for (const text of ['two', 'three']) {
      await rm(it.file);
      await writeFile(it.file, text);
      await until(() => it.told.at(-1) === text);
    }
    await tells(it, 'two', 'three');
  });

  test('when the content is the same length, at the same time of modification', async () => {
    await using it = await plainFile();
    const long = new Date(1_600_000_000_000);
    await utimes(it.file, long, long);
    await writeFile(it.file, 'eno');
    await utimes(it.file, long, long);
    await tells(it, 'eno');
  });

  test('when a ConfigMap swaps its ..data, twice', async () => {
    const directory = await tempDir();
    const { path } = directory;
    const version = async (name: string, text: string) => {
      await mkdir(join(path, name));
      await writeFile(join(path, name, 'config.yaml'), text);
      await symlink(name, join(path, '..data_tmp'));
      await rename(join(path, '..data_tmp'), join(path, '..data'));
    };
    await version('..2024_01', 'one');
    await symlink('..data/config.yaml', join(path, 'config.yaml'));
    await using it = await watched(directory, join(path, 'config.yaml'));
    await version('..2024_02', 'two');
    await rm(join(path, '..2024_01'), { recursive: true });
    await tells(it, 'two');
    await version('..2024_03', 'three');
    await rm(join(path, '..2024_02'), { recursive: true });
    await tells(it, 'two', 'three');
  });

  test('when the file behind a link is written, in a directory of its own', async () => {
    const directory = await tempDir();
    await mkdir(directory.file('there'));
    await writeFile(directory.file('there/real.yaml'), 'one');
    await symlink('there/real.yaml', directory.file('config.yaml'));
    await using it = await watched(directory, directory.file('config.yaml'));
    await writeFile(directory.file('there/real.yaml'), 'two');
    await tells(it, 'two');
  });

  test('when the whole directory is replaced, and afterwards in the new one', async () => {
    const directory = await tempDir();
    await mkdir(directory.file('etc'));
    const file = directory.file('etc/config.yaml');
    await writeFile(file, 'one');
    await using it = await watched(directory, file, { poll: 200 });
    await mkdir(directory.file('next'));
    await writeFile(directory.file('next/config.yaml'), 'two');
    await rename(directory.file('etc'), directory.file('old'));
    await rename(directory.file('next'), directory.file('etc'));
    await tells(it, 'two');
    await writeFile(file, 'three');
    await tells(it, 'two', 'three');
  });

  test('by the poll, where no watched directory has an event', async () => {
    const directory = await tempDir();
    for (const name of ['a', 'b']) await mkdir(directory.file(name));
    await writeFile(directory.file('b/one.yaml'), 'one');
    await writeFile(directory.file('b/two.yaml'), 'two');
    await symlink('../b/one.yaml', directory.file('a/link'));
    await symlink('a/link', directory.file('config.yaml'));
    await using it = await watched(directory, directory.file('config.yaml'), { poll: 100 });
    // Neither the directory of the name nor that of the file sees this one.
    await symlink('../b/two.yaml', directory.file('a/link.new'));
    await rename(directory.file('a/link.new'), directory.file('a/link'));
    await tells(it, 'two');
  });

  test('when it happened before the watch began', async () => {
    await using directory = await tempDir();
    const file = directory.file('config.yaml');
    await writeFile(file, 'two');
    const told: string[] = [];
    const watch = new FileWatch({
      file,
      known: Buffer.from('one'),
      onContent: (bytes) => told.push(bytes.toString()),
      onUnreadable: () => undefined,
    });
    watch.start();
    await until(() => told[0] === 'two').finally(() => watch.stop());
  });
});

describe('what is no change', () => {
  test('the same content again, touched, rewritten or renamed over', async () => {
    await using it = await plainFile();
    await utimes(it.file, new Date(), new Date());
    await writeFile(it.file, 'one');
    await writeFile(`${it.file}.new`, 'one');
    await rename(`${it.file}.new`, it.file);
    await pause(500);
    await writeFile(it.file, 'two');
    await tells(it, 'two');
  });

  test('half of a file whose other half follows', async () => {
    await using it = await plainFile({ settle: 1_000 });
    await writeFile(it.file, 'first half');
    await pause(100);
    await writeFile(it.file, 'first half, second half');
    await tells(it, 'first half, second half');
  });

  test('a file that is missing for a moment', async () => {
    await using it = await plainFile({ absence: 2_000 });
    await rm(it.file);
    await pause(400);
    await writeFile(it.file, 'one');
    await pause(400);
    await rm(it.file);
    await pause(400);
    await writeFile(it.file, 'two');
    await tells(it, 'two');
  });
});

test('a file that stays away is told once, and again when it is back, also with what it held before', async () => {
  await using it = await plainFile({ absence: 300 });
  await rm(it.file);
  const missing = `unreadable: ${it.file}:1:1: cannot be read: there is no such file; \`tollgate init\` writes a first one`;
  await tells(it, missing);
  await pause(500);
  await writeFile(it.file, 'one');
  await tells(it, missing, 'one');
});

test('what takes the place of the file and is none is told, and nothing waits for it', async () => {
  await using it = await plainFile({ absence: 200 });
  await rm(it.file);
  await mkdir(it.file);
  await tells(it, `unreadable: ${it.file}:1:1: cannot be read: it is a directory`);
});

test('a file that never comes to rest is taken as it is after a while', async () => {
  await using it = await plainFile({ settle: 100, patience: 500 });
  let count = 0;
  const writing = setInterval(() => {
    count += 1;
    void writeFile(it.file, `version ${count}`);
  }, 30);
  try {
    await until(() => it.told.length > 0);
  } finally {
    clearInterval(writing);
  }
  // It may be read in the middle of a write.
  const told = it.told[0] ?? '';
  expect('version '.startsWith(told) || /^version \d+$/.test(told), told).toBe(true);
});

test('other files beside it are no reason to look', async () => {
  const directory = await tempDir();
  const file = directory.file('config.yaml');
  const log = directory.file('config.yaml.log');
  for (const name of [file, log]) await writeFile(name, 'one');
  await using it = await watched(directory, file);
  // Written by a name in another directory, the file has no event in its own.
  await using elsewhere = await tempDir();
  await link(file, elsewhere.file('other'));
  await writeFile(elsewhere.file('other'), 'two');
  for (let i = 0; i < 5; i += 1) {
    await appendFile(log, 'a line\n');
    await pause(100);
  }
  expect(it.told).toEqual([]);
  await writeFile(`${log}.1`, '');
  await tells(it, 'two');
});

test('a busy directory does not put the look off', async () => {
  await using it = await plainFile();
  const busy = setInterval(() => void writeFile(`${it.file}.log`, String(Math.random())), 10);
  try {
    await writeFile(it.file, 'two');
    await tells(it, 'two');
  } finally {
    clearInterval(busy);
  }
});

test('a check reads at once, tells also what is known, and many at one time are few readings', async () => {
  await using it = await plainFile();
  await it.watch.check();
  expect(it.told).toEqual(['one']);
  await writeFile(it.file, 'two');
  await Promise.all(Array.from({ length: 50 }, () => it.watch.check()));
  expect(it.told.length).toBeLessThanOrEqual(3);
  expect(it.told.at(-1)).toBe('two');
  await pause(500);
  expect(it.told.filter((text) => text === 'two').length).toBeLessThanOrEqual(2);
});

test('nothing is told after it was stopped', async () => {
  await using it = await plainFile();
  await writeFile(it.file, 'two');
  it.watch.stop();
  await it.watch.check();
  await pause(500);
  expect(it.told).toEqual([]);
});
