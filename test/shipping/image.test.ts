// The Dockerfile: its rules, read from the file, and the image that it describes at work, in namespaces instead of an engine.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { readdir, writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../e2e/program.ts';
import { until } from '../helpers/wait.ts';
import { buildContext, execForm, last, readDockerfile } from './dockerfile.ts';
import { CAN_CONTAIN, type Container, Image } from './image.ts';
import { productionPackages } from './installed.ts';
import { followReadme, README_WORKS } from './readme.ts';

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const stages = readDockerfile(read('Dockerfile'));
const image = stages.at(-1);
if (image === undefined) throw new Error('the Dockerfile has no stage');

describe('the Dockerfile', () => {
  test('has its stages on the same Node, pinned by digest, of the version that everything is tested with', () => {
    expect(new Set(stages.map(({ base }) => base)).size).toBe(1);
    const [, version = '', digest = ''] =
      /^node:(\d+\.\d+\.\d+)-slim@(sha256:[0-9a-f]{64})$/.exec(image.base) ?? [];
    expect(digest).not.toBe('');
    // The Node that the tests run on; test/launcher.test.ts holds it against `engines`.
    expect(version).toBe(JSON.parse(read('package.json')).devDependencies.node);
  });

  test('installs what the lock file says for production, and lets no package run a script', () => {
    const installs = stages.map(({ name, instructions }) => [
      name,
      ...instructions.flatMap(({ name: step, rest }) => (step === 'RUN' && /^npm /.test(rest) ? [rest] : [])),
    ]);
    expect(installs).toEqual([
      ['build', expect.stringMatching(/^npm ci (?!.*--omit).*--ignore-scripts/)],
      ['dependencies', expect.stringMatching(/^npm ci --omit=dev --ignore-scripts/)],
      [undefined],
    ]);
    expect(productionPackages().map(({ name }) => name)).not.toContain('node');
  });

  test('runs as a user with a number, not as root, and only the data is a volume', () => {
    expect(last(image, 'USER')?.rest).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    expect(execForm(last(image, 'VOLUME')?.rest ?? '')).toEqual(['/app/data']);
    const user = image.instructions.findIndex(({ name }) => name === 'USER');
    const writes = image.instructions.slice(user).filter(({ name }) => ['COPY', 'ADD', 'RUN'].includes(name));
    expect(writes).toEqual([]);
    expect(image.instructions.filter(({ flags }) => flags.has('chown'))).toEqual([]);
  });

  test('starts Node itself, which SIGTERM stops, and asks for health without a program that is not there', () => {
    expect(last(image, 'STOPSIGNAL')?.rest).toBe('SIGTERM');
    for (const name of ['ENTRYPOINT', 'CMD']) expect(execForm(last(image, name)?.rest ?? '')).toBeDefined();
    const health = last(image, 'HEALTHCHECK');
    expect(execForm(health?.rest.replace(/^CMD\s+/, '') ?? '')?.[0]).toBe('node');
    for (const flag of ['interval', 'timeout', 'start-period', 'retries'])
      expect(health?.flags.has(flag)).toBe(true);
  });

  test('has the command line on the path, for whoever looks into it', () => {
    const links = image.instructions.filter(({ name, rest }) => name === 'RUN' && /\bln -s\b/.test(rest));
    expect(links.map(({ rest }) => /ln -s (\S+) (\S+)/.exec(rest)?.slice(1))).toEqual([
      ['/app/bin/tollgate.js', '/usr/local/bin/tollgate'],
    ]);
    expect(statSync(join(ROOT, 'bin/tollgate.js')).mode & 0o111).toBe(0o111);
    expect(read('bin/tollgate.js')).toMatch(/^#!\/usr\/bin\/env node\n/);
  });

  test('says what the image is, as the package does', () => {
    const labels = last(image, 'LABEL')?.rest ?? '';
    const { version, description, license } = JSON.parse(read('package.json'));
    const label = (name: string): string | undefined =>
      new RegExp(`org\\.opencontainers\\.image\\.${name}="([^"]*)"`).exec(labels)?.[1];
    expect([label('version'), label('description'), label('licenses')]).toEqual([
      version,
      description,
      license,
    ]);
    expect(label('title')).toBe('tollgate');
    const [name, digest] = image.base.split('@');
    expect(label('base\\.name')).toBe(`docker.io/library/${name}`);
    expect(label('base\\.digest')).toBe(digest);
  });

  test('the build sees what it copies and nothing else', () => {
    const context = buildContext(ROOT, read('.dockerignore'));
    const copied = stages
      .flatMap(({ instructions }) => instructions)
      .filter(({ name, flags }) => name === 'COPY' && !flags.has('from'))
      .flatMap(({ rest }) => rest.split(/\s+/).slice(0, -1));
    expect(context.toSorted()).toEqual([...new Set(copied)].sort());
    expect(existsSync(join(ROOT, '.git'))).toBe(true);
    expect(() => buildContext(ROOT, 'node_modules\n')).toThrow(/not a list/);
  });

  test.each([
    ['FORM node:26', 'no instruction'],
    ['FROM node:26\nWORKDIR /app\nENTRYPOINT', 'no instruction'],
    ['RUN true\nFROM node:26', 'before the first FROM'],
    ['FROM node:26 as', 'no image'],
  ])('what no builder would take is refused here too: %j', (text, message) => {
    expect(() => readDockerfile(text)).toThrow(message);
  });
});

describe.skipIf(!CAN_CONTAIN)('a container of it, with a read-only root file system', () => {
  let built: Image;
  let container: Container;

  beforeAll(async () => {
    built = await Image.build();
    container = built.start(built.command);
    await container.program.listening();
  });
  afterAll(async () => {
    await container?.[Symbol.asyncDispose]();
    await built?.[Symbol.asyncDispose]();
  });

  const inside = async (
    ...command: string[]
  ): Promise<{ code: number | null; stdout: string; stderr: string }> => {
    await using program = await container.exec(command);
    return await program.end();
  };

  test('listens for others on the port that it exposes', async () => {
    expect(await container.program.listening()).toBe('http://0.0.0.0:8080');
    expect(last(built.stage, 'EXPOSE')?.rest.split(' ')).toContain('8080');
  });

  test('is process 1, is not root and can write to its data alone', async () => {
    const script = `
      const fs = require('node:fs');
      const status = fs.readFileSync('/proc/1/status', 'utf8');
      const field = (name) => new RegExp('^' + name + ':\\\\s*(.*)$', 'm').exec(status)[1];
      const words = fs.readFileSync('/proc/1/cmdline', 'utf8').split('\\0').slice(0, -1);
      const canWrite = (file) => { try { fs.writeFileSync(file, ''); fs.rmSync(file); return true; } catch (error) { return error.code; } };
      console.log(JSON.stringify({ words, uid: field('Uid').split('\\t'), caps: field('CapEff'), bounding: field('CapBnd'), data: canWrite('data/x'), app: canWrite('x'), source: canWrite('dist/x'), tmp: canWrite('/tmp/x') }));`;
    const { stdout, stderr } = await inside('node', '-e', script);
    const seen = JSON.parse(stdout || JSON.stringify(stderr));
    expect(seen.words).toEqual(built.command);
    expect(seen.uid).toEqual(Array(4).fill(String(built.user.uid)));
    expect([seen.caps, seen.bounding]).toEqual(Array(2).fill('0'.repeat(16)));
    expect(seen.data).toBe(true);
    // Root's, so permission is asked first; where everybody may write, the file system says no.
    expect([seen.app, seen.source, seen.tmp]).toEqual(['EACCES', 'EACCES', 'EROFS']);
  });

  test('is healthy by its own health command', async () => {
    expect(await inside(...built.healthCommand)).toMatchObject({ code: 0, stderr: '' });
    expect((await inside('env', 'PORT=1', ...built.healthCommand)).code).toBe(1);
  });

  test('does what the README says, when the command line runs in it', async () => {
    const done = await followReadme(
      'http://127.0.0.1:8080',
      (words) => inside('bin/tollgate.js', ...words),
      (text, key) => inside('env', `TOLLGATE_KEY=${key}`, 'sh', '-c', text),
    );
    expect(done).toEqual(README_WORKS);
  });

  test('ends with 0 on SIGTERM, and leaves what must last in the volume', async () => {
    await container.kill('SIGTERM');
    expect(await container.program.end()).toMatchObject({ code: 0 });
    expect(await readdir(built.data)).toEqual(expect.arrayContaining(['tollgate.db']));
  });

  test('can be stopped while it still starts, though it is process 1', async () => {
    // Takes connections and says nothing: a database that hangs.
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket.on('error', () => undefined)));
    await new Promise<void>((listening) => silent.listen(0, '127.0.0.1', listening));
    const address = silent.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    const config = `store: postgres://tollgate:x@127.0.0.1:${port}/tollgate\nsecret: ${'0123456789abcdef'.repeat(2)}
listen: { port: 0 }\nadmin: { port: 0 }\nupstreams: { e: { builtin: echo } }
models: { echo: { targets: [{ upstream: e, model: echo }] } }\n`;
    await writeFile(join(built.data, 'waiting.yaml'), config);
    await using waiting = built.start([...built.command, '--config', 'data/waiting.yaml'], 'shared');
    try {
      await until(() => sockets.length > 0 || !waiting.program.running, 'the call of the database');
      await waiting.kill('SIGTERM');
      expect(await waiting.program.end()).toMatchObject({ code: 143 });
    } finally {
      for (const socket of sockets) socket.destroy();
      silent.close();
    }
  });
});
