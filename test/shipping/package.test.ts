// The packed package, installed into an empty folder with what production needs and nothing more: what is in it, and the way
// of somebody who has only that, from `npx tollgate init` to a streamed answer. NPM_INSTALL=1 installs it by npm itself.
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { appendFile, readFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Ended, Program, ROOT } from '../e2e/program.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { installProduction } from './installed.ts';

const run = promisify(execFile);
/** What a checkout has beside what a package is made of. */
const NOT_PACKED = new Set([
  'node_modules',
  '.git',
  'dist',
  'data',
  'coverage',
  'test',
  'bench',
  'docs',
  'examples',
]);
const byNpm = process.env['NPM_INSTALL'] === '1';

let directory: TempDir;
/** The empty folder. */
let folder: string;
let packed: readonly string[];

/** Packs a copy: what it builds must not stand in the checkout, where something else may be using it. */
async function pack(): Promise<string> {
  const checkout = directory.file('checkout');
  mkdirSync(checkout);
  for (const name of readdirSync(ROOT)) {
    if (!NOT_PACKED.has(name)) cpSync(join(ROOT, name), join(checkout, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(checkout, 'node_modules'));
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', directory.path], {
    cwd: checkout,
    maxBuffer: 2 ** 24,
  });
  // What prepack says stands before the list.
  const [{ filename, files }] = JSON.parse(stdout.slice(stdout.search(/^\[/m)));
  packed = files.map((file: { path: string }) => file.path);
  return directory.file(filename);
}

async function install(tarball: string): Promise<void> {
  if (byNpm) {
    await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', tarball], { cwd: folder });
    return;
  }
  const target = join(folder, 'node_modules', 'tollgate');
  mkdirSync(target, { recursive: true });
  await run('tar', ['xzf', tarball, '--strip-components=1', '-C', target]);
  await installProduction(folder);
  mkdirSync(join(folder, 'node_modules', '.bin'), { recursive: true });
  symlinkSync('../tollgate/bin/tollgate.js', join(folder, 'node_modules', '.bin', 'tollgate'));
}

beforeAll(async () => {
  directory = await tempDir();
  folder = directory.file('empty');
  mkdirSync(folder);
  await install(await pack());
});
afterAll(() => directory?.remove());

const start = (words: readonly string[], env: Record<string, string> = {}): Program =>
  new Program(words, { command: join(folder, 'node_modules/.bin/tollgate'), cwd: folder, env });

async function tollgate(...words: string[]): Promise<Ended> {
  await using program = start(words);
  return await program.end();
}

describe('what is packed', () => {
  test('what runs, what it reads, and what somebody must know; no source, no tests, no data', () => {
    const source = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8', withFileTypes: true });
    const runs = source
      .filter((entry) => entry.isFile())
      .map((entry) => relative(join(ROOT, 'src'), join(entry.parentPath, entry.name)))
      .flatMap((file) =>
        file.endsWith('.ts') ? [file.replace(/\.ts$/, '.js'), file.replace(/\.ts$/, '.d.ts')] : [file],
      )
      .map((file) => `dist/${file}`);
    const beside = [
      'bin/tollgate.js',
      'config.yaml',
      'config.schema.json',
      'package.json',
      'sbom.cdx.json',
      'README.md',
      'CHANGELOG.md',
      'SECURITY.md',
      'LICENSE',
    ];
    expect(packed.toSorted()).toEqual([...runs, ...beside].sort());
  });

  test('needs nothing that is only there for development', async () => {
    const installed = readdirSync(join(folder, 'node_modules'));
    expect(installed).toContain('argon2');
    for (const name of ['node', 'typescript', 'vitest', 'ajv-cli', 'openai'])
      expect(installed).not.toContain(name);
  });
});

describe('in an empty folder', () => {
  test('npx finds it', async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const npx = await run('npx', ['--offline', 'tollgate', '--version'], { cwd: folder });
    expect(npx.stdout).toBe(`${version}\n`);
  });

  test.each(['serve', 'check'])('%s without a configuration says how to get one', async (command) => {
    const { code, stderr } = await tollgate(command);
    expect(code).toBe(1);
    expect(stderr).toContain(
      './config.yaml:1:1: cannot be read: there is no such file; `tollgate init` writes a first one',
    );
  });

  test('init writes one that is good as it is, says what comes next, and overwrites nothing', async () => {
    expect(await tollgate('init')).toMatchObject({
      code: 0,
      stdout: '',
      stderr: 'Wrote ./config.yaml. Now: npx tollgate serve\n',
    });
    const file = join(folder, 'config.yaml');
    const written = await readFile(file, 'utf8');
    const shipped = await readFile(join(ROOT, 'config.yaml'), 'utf8');
    expect(shipped.endsWith(written)).toBe(true);
    // Neither is beside it: the docs are not in the package at all.
    expect(written).not.toMatch(/\$schema|docs\//);
    const checked = await tollgate('check');
    expect(checked).toMatchObject({ code: 0, stderr: '' });
    expect(checked.stdout).not.toContain('warnings');

    await appendFile(file, 'admin: { port: 0 }\n');
    expect(await tollgate('init')).toMatchObject({
      code: 1,
      stderr: 'tollgate init: ./config.yaml exists; nothing was written\n',
    });
    expect(await readFile(file, 'utf8')).toBe(`${written}admin: { port: 0 }\n`);
  });

  test('init is used wrongly, or writes where it cannot', async () => {
    expect(await tollgate('init', 'config.yaml')).toMatchObject({ code: 2, stdout: '' });
    const nowhere = await tollgate('init', '--config', 'no/such/folder.yaml');
    expect(nowhere.code).toBe(1);
    expect(nowhere.stderr).toMatch(/^tollgate init: ENOENT/);
  });

  test('it serves: a key from the command line streams an answer, and SIGTERM ends it with 0', async () => {
    await using gateway = start(['serve'], { PORT: '0' });
    const url = await gateway.listening();
    const key = (await tollgate('keys', 'issue', '--tier', 'Pro')).stdout.trim();
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'echo', messages: [{ role: 'user', content: 'Hello' }], stream: true }),
    });
    expect(answer.status).toBe(200);
    const text = await answer.text();
    const said = [...text.matchAll(/^data: (\{.*)$/gm)].map(
      ([, data = '']) => JSON.parse(data).choices[0]?.delta.content ?? '',
    );
    expect(said.join('')).toBe('You said: Hello');
    expect(text).toMatch(/data: \[DONE\]\n\n$/);
    gateway.child.kill('SIGTERM');
    expect(await gateway.end()).toMatchObject({ code: 0, signal: null });
    const left = readdirSync(folder).filter((name) => !/^(node_modules|package(-lock)?\.json)$/.test(name));
    expect(left.map((name) => basename(name)).sort()).toEqual(['config.yaml', 'data']);
  });
});
