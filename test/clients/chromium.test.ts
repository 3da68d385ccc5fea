// Where the tests get their browser from, on machines that have one, could have one, and cannot.
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { chromiumPath, launchBrowser, type Machine } from '../helpers/browser.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';

/** A program of this name in the directory. */
async function program(directory: TempDir, name: string, script = 'exit 0'): Promise<string> {
  const path = directory.file(name);
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}

/** A machine with nothing but what is in the directory, `sh` and `flock` aside. */
function machine(directory: TempDir, more: Partial<Machine> = {}): Machine & { readonly said: string[] } {
  const said: string[] = [];
  return {
    env: { PATH: directory.path },
    places: [],
    isRoot: false,
    say: (text) => void said.push(text),
    said,
    ...more,
  };
}

describe('a browser that is there', () => {
  test('is the one that CHROMIUM names, before all others', async () => {
    await using directory = await tempDir();
    await program(directory, 'chromium');
    const own = await program(directory, 'my-browser');
    const env = { PATH: directory.path, CHROMIUM: own };
    expect(await chromiumPath(machine(directory, { env }))).toBe(own);
  });

  test('is not replaced by another one when CHROMIUM names none', async () => {
    await using directory = await tempDir();
    await program(directory, 'chromium');
    const env = { PATH: directory.path, CHROMIUM: directory.file('nothing') };
    await expect(chromiumPath(machine(directory, { env }))).rejects.toThrow(/^CHROMIUM is .*nothing/);
  });

  test('is the one without windows where there are two', async () => {
    await using directory = await tempDir();
    await program(directory, 'chromium');
    const headless = await program(directory, 'chromium-headless-shell');
    expect(await chromiumPath(machine(directory))).toBe(headless);
  });

  test('is looked for where Debian has it, then under all names of the path', async () => {
    await using directory = await tempDir();
    await using elsewhere = await tempDir();
    const chrome = await program(directory, 'google-chrome');
    expect(await chromiumPath(machine(directory))).toBe(chrome);
    const debian = await program(elsewhere, 'chromium');
    expect(await chromiumPath(machine(directory, { places: [debian] }))).toBe(debian);
    // Neither a directory nor a file that cannot be run is a program.
    await chmod(debian, 0o644);
    expect(await chromiumPath(machine(directory, { places: [elsewhere.path, debian] }))).toBe(chrome);
  });
});

test('a browser is without its own window, and without what Playwright switches off', async () => {
  await using directory = await tempDir();
  const browser = await program(directory, 'chromium', 'for each; do echo "$each" >> "$0.arguments"; done');
  vi.stubEnv('CHROMIUM', browser);
  onTestFinished(() => void vi.unstubAllEnvs());
  await expect(launchBrowser()).rejects.toThrow(/closed|exited/);
  const given = await readFile(`${browser}.arguments`, 'utf8');
  const lists = given.split('\n').flatMap((line) => /^--disable-features=(.*)/.exec(line)?.[1] ?? []);
  // Chromium reads the last list.
  const [playwright = '', own = ''] = lists;
  expect(lists).toHaveLength(2);
  expect(own.split(',')).toEqual(expect.arrayContaining([...playwright.split(','), 'WebUIOmniboxPopup']));
});

describe('a machine without one', () => {
  test('is told what to install when the tests must not do it', async () => {
    await using directory = await tempDir();
    await program(directory, 'apt-get', 'touch "$0.ran"');
    const without = machine(directory);
    await expect(chromiumPath(without)).rejects.toThrow(
      /install Chromium \(Debian: apt-get install chromium-headless-shell\)/,
    );
    await using empty = await tempDir();
    await expect(chromiumPath(machine(empty, { isRoot: true }))).rejects.toThrow(/install Chromium/);
    expect(without.said).toEqual([]);
    await expect(readFile(directory.file('apt-get.ran'))).rejects.toThrow('ENOENT');
  });
});

// apt-get is Linux's; elsewhere there is nothing to install with.
describe.runIf(process.platform === 'linux')('a machine where the tests may install one', () => {
  /** A directory for PATH, with an `apt-get` that does this after it has written down how it was called. */
  async function withApt(directory: TempDir, script: string): Promise<Machine & { readonly said: string[] }> {
    await program(directory, 'apt-get', `echo "$*" >> "$0.calls"\n${script}`);
    // `chmod`, `sh` and `flock` are in these; a browser that lies there too would be found without installing.
    const tools = { sh: '/bin/sh', flock: '/usr/bin/flock', chmod: '/bin/chmod' };
    for (const [name, path] of Object.entries(tools)) await program(directory, name, `exec ${path} "$@"`);
    return machine(directory, { isRoot: true });
  }

  test('gets it once, and is told so', async () => {
    await using directory = await tempDir();
    const chromium = directory.file('chromium-headless-shell');
    const bare = await withApt(
      directory,
      `[ "$1" = update ] || { echo '#!/bin/sh' > ${chromium}; chmod 755 ${chromium}; }`,
    );
    // Two test files at the same time.
    expect(await Promise.all([chromiumPath(bare), chromiumPath(bare)])).toEqual([chromium, chromium]);
    expect(await chromiumPath(bare)).toBe(chromium);
    expect((await readFile(directory.file('apt-get.calls'), 'utf8')).trim().split('\n')).toEqual([
      'update',
      'install -y --no-install-recommends chromium-headless-shell',
    ]);
    expect(new Set(bare.said).size).toBe(1);
    expect(bare.said[0]).toMatch(/no Chromium on this machine; running: apt-get update && apt-get install/);
  });

  test('is told what apt said when that fails', async () => {
    await using directory = await tempDir();
    const offline = await withApt(directory, 'echo "E: no network" >&2; exit 100');
    const error = await chromiumPath(offline).catch((cause: unknown) => cause);
    expect(error).toMatchObject({
      message: expect.stringMatching(/install Chromium.*installing it has failed/),
      cause: { message: 'E: no network' },
    });
  });

  test('is told so when the package has no browser in it', async () => {
    await using directory = await tempDir();
    const other = await withApt(directory, 'exit 0');
    await expect(chromiumPath(other)).rejects.toThrow(
      /the package "chromium-headless-shell" did not bring one/,
    );
  });
});
