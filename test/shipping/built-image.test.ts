// The image as a builder makes it of the Dockerfile: every step runs, and the result is what image.test.ts starts and the file promises.
// It takes half a minute, so IMAGE_BUILD=1 asks for it, as a release does.
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { BuiltImage, INSTALL_MS } from './built-image.ts';
import { execForm, last } from './dockerfile.ts';
import { Image } from './image.ts';
import { productionPackages } from './installed.ts';
import { at, entries } from './tree.ts';

const isWanted = process.env['IMAGE_BUILD'] === '1';
let built: BuiltImage | undefined;
let read: Image;

beforeAll(async () => {
  if (isWanted) [built, read] = await Promise.all([BuiltImage.build(), Image.build()]);
}, INSTALL_MS);
afterAll(async () => {
  await built?.[Symbol.asyncDispose]();
  await read?.[Symbol.asyncDispose]();
});
beforeEach(({ skip }) => {
  if (!isWanted) skip('IMAGE_BUILD=1 builds the image');
  if (built === undefined) skip('buildah is not there, and could not be installed');
});

const image = (): BuiltImage => {
  if (built === undefined) throw new Error('there is no builder');
  return built;
};

/** Path and digest of each file of the application, without those of packages. */
function filesOf(app: string): readonly string[] {
  return readdirSync(app, { recursive: true, encoding: 'utf8' })
    .filter((path) => !path.startsWith('node_modules') && lstatSync(join(app, path)).isFile())
    .map(
      (path) =>
        `${path} ${createHash('sha256')
          .update(readFileSync(join(app, path)))
          .digest('hex')}`,
    )
    .sort();
}

test('has the files that the containers of the other tests have, and the packages of the lock file', () => {
  const app = join(image().root, 'app');
  expect(filesOf(app)).toEqual(filesOf(read.app));
  const packages = productionPackages().filter(({ path }) => path.lastIndexOf('node_modules/') === 0);
  for (const { path } of packages) expect(existsSync(join(app, path, 'package.json')), path).toBe(true);
  expect(existsSync(join(app, 'node_modules/vitest'))).toBe(false);
});

test('has no npm, belongs to root but for the data, and knows the command', () => {
  const { root } = image();
  for (const path of ['lib/node_modules', 'bin/npm', 'bin/npx'])
    expect(existsSync(join(root, 'usr/local', path)), path).toBe(false);
  expect(statSync(join(root, 'app/data'))).toMatchObject(read.user);
  for (const path of ['app', 'app/dist', 'app/node_modules'])
    expect(statSync(join(root, path)), path).toMatchObject({ uid: 0, gid: 0 });
  expect(lstatSync(join(root, 'usr/local/bin/tollgate')).isSymbolicLink()).toBe(true);
});

test('is what the Dockerfile says to an engine', () => {
  const config = at(image().config, 'Docker', 'config');
  const { stage } = read;
  expect(config).toMatchObject({
    User: last(stage, 'USER')?.rest,
    WorkingDir: '/app',
    StopSignal: 'SIGTERM',
    Entrypoint: execForm(last(stage, 'ENTRYPOINT')?.rest ?? ''),
    Cmd: execForm(last(stage, 'CMD')?.rest ?? ''),
    Volumes: { '/app/data': {} },
    Healthcheck: { Test: ['CMD', ...read.healthCommand], Retries: 3 },
  });
  expect(entries(config, 'ExposedPorts').map(([port]) => port)).toEqual(['8080/tcp', '9090/tcp']);
});

test('runs: the command line, its shipped configuration, and a key that Argon2 hashes', async () => {
  expect(await image().run('tollgate', '--version')).toMatch(/^\d+\.\d+\.\d+\n$/);
  expect(await image().run('tollgate', 'check')).toContain('echo  -> demo: echo');
  expect(await image().run('tollgate', 'keys', 'issue', '--tier', 'Pro')).toMatch(/^[0-9a-f]{32}\n$/);
});
