// The README in a checkout: its commands, its configuration, and that every command of it is run by a test. package.test.ts follows it
// with the tarball, image.test.ts in a container.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { appendFile, copyFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { Program, ROOT } from '../e2e/program.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { checkedConfig, variablesOf } from './checked-config.ts';
import { followReadme, README_WORKS, readmeCommands, readmeText, shell } from './readme.ts';

let checkout: TempDir;

beforeAll(async () => {
  checkout = await tempDir();
  for (const name of ['bin', 'src', 'node_modules', 'package.json'])
    await symlink(join(ROOT, name), checkout.file(name));
  await copyFile(join(ROOT, 'config.yaml'), checkout.file('config.yaml'));
  await appendFile(checkout.file('config.yaml'), `admin: { port: ${await closedPort()} }\n`);
});
afterAll(() => checkout?.remove());

/** What npm runs as `npm start`, and as `npx tollgate` in a checkout. */
const { scripts, bin, version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const run = (words: readonly string[]): Program => new Program(words, { cwd: checkout.path });

test('every command is one that a test runs', () => {
  expect(readmeCommands().map(({ text }) => text)).toEqual([
    'npm ci',
    'npm start',
    'npm ci',
    'npm test',
    `npm install ./tollgate-${version}.tgz`,
    'npx tollgate init',
    'npx tollgate serve',
    // The steps of the Dockerfile, and a container with this port, are those of image.test.ts.
    'docker build --tag tollgate .',
    'docker run --rm --publish 127.0.0.1:8080:8080 tollgate',
    expect.stringMatching(/^curl -s /),
    expect.stringMatching(/^curl -N /),
    'npx tollgate init',
    ...README_WORKS.slice(2).map(() => expect.stringMatching(/^npx tollgate /)),
  ]);
});

test('its commands work in a checkout', async () => {
  await using gateway = new Program(['-c', `exec ${scripts.start}`], {
    command: 'sh',
    cwd: checkout.path,
    env: { PORT: '0' },
  });
  const url = await gateway.listening();
  const tollgate = async (words: readonly string[]) => {
    await using program = run([bin.tollgate, ...words]);
    return await program.end();
  };
  expect(await followReadme(url, tollgate, shell)).toEqual(README_WORKS);
  expect(await tollgate(['init'])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('config.yaml exists'),
  });
  const npx = await promisify(execFile)('npx', ['--offline', 'tollgate', '--version'], { cwd: ROOT });
  expect(npx.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test('its configuration is good, without a warning', async () => {
  const [, yaml = ''] = /^```yaml\n(.*?)^```$/ms.exec(readmeText()) ?? [];
  const config = await checkedConfig(yaml, variablesOf(yaml));
  expect(config.warnings).toEqual([]);
  expect(describeConfig(config)).toContain('chat-mini');
});
