// Builds the image by buildah, without an engine and without a registry of images: a stand-in for the base has this machine's Node, npm and
// the programs that the Dockerfile's steps call. It is what those steps do that is tested, not the base.
import { execFile } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../e2e/program.ts';
import { INSTALL_MS, installPackage, onPath } from '../helpers/debian-packages.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { readDockerfile } from './dockerfile.ts';

export { INSTALL_MS };

/** Called by the steps of the Dockerfile, or by `npm`. */
const PROGRAMS = ['sh', 'env', 'rm', 'ln', 'mkdir', 'chown', 'node'];
/** Parts of glibc that are in every Debian, and that native packages load. */
const LIBRARIES = ['librt.so.1', 'libpthread.so.0', 'libdl.so.2'];
const STAND_IN = 'localhost/stand-in';
const BUILT = 'localhost/tollgate';
/** The binary is the largest file by far: mounted, it is in no layer. */
const NODE = ['--volume', `${process.execPath}:/usr/local/bin/node:ro`];

const run = promisify(execFile);

export class BuiltImage implements AsyncDisposable {
  /** What an engine knows of it. */
  readonly config: unknown;
  /** Its root file system. */
  readonly root: string;
  readonly #directory: TempDir;
  readonly #container: string;

  private constructor(directory: TempDir, config: unknown, root: string, container: string) {
    this.#directory = directory;
    this.config = config;
    this.root = root;
    this.#container = container;
  }

  /** @returns undefined where there is no buildah and none can be installed */
  static async build(): Promise<BuiltImage | undefined> {
    if ((await onPath('buildah')) === undefined) {
      await installPackage('buildah', 'command -v buildah').catch(() => undefined);
      if ((await onPath('buildah')) === undefined) return undefined;
    }
    const directory = await tempDir();
    const base = await makeBase(directory);
    const from = (await buildah(directory, ['from', 'scratch'])).trim();
    await buildah(directory, ['add', '--quiet', from, base, '/']);
    await buildah(directory, ['config', '--env', 'PATH=/usr/local/bin:/usr/bin', from]);
    await buildah(directory, ['commit', '--quiet', '--disable-compression', '--rm', from, STAND_IN]);
    const [stage] = readDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
    const { stdout: cache } = await run('npm', ['config', 'get', 'cache']);
    const context = `${stage?.base}=container-image://${STAND_IN}`;
    const flags = ['--pull=never', '--format', 'docker', '--isolation', 'chroot', '--build-context', context];
    const volumes = [...NODE, '--volume', `${cache.trim()}:/root/.npm`];
    await buildah(directory, ['build', '--quiet', ...flags, ...volumes, '--tag', BUILT, ROOT]);
    const inspected: unknown = JSON.parse(await buildah(directory, ['inspect', '--type', 'image', BUILT]));
    const container = (await buildah(directory, ['from', '--pull=never', BUILT])).trim();
    const root = (await buildah(directory, ['mount', container])).trim();
    return new BuiltImage(directory, inspected, root, container);
  }

  /** Runs a command in a container of it, as its user. @returns what it wrote on stdout */
  run(...command: readonly string[]): Promise<string> {
    return buildah(this.#directory, [
      'run',
      '--isolation',
      'chroot',
      ...NODE,
      this.#container,
      '--',
      ...command,
    ]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await buildah(this.#directory, ['rm', '--all']);
    await this.#directory.remove();
  }
}

let driver: string | undefined;

/** Overlays share the files of layers; `vfs` copies them, and works everywhere. */
async function driverOf(directory: TempDir): Promise<string> {
  const place = ['--root', directory.file('trial'), '--runroot', directory.file('trial-run')];
  const words = [...place, '--storage-driver', 'overlay', 'from', 'scratch'];
  return run('buildah', words).then(
    () => 'overlay',
    () => 'vfs',
  );
}

async function buildah(directory: TempDir, words: readonly string[]): Promise<string> {
  const place = ['--root', directory.file('store'), '--runroot', directory.file('run')];
  driver ??= await driverOf(directory);
  const { stdout } = await run('buildah', [...place, '--storage-driver', driver, ...words], {
    maxBuffer: 2 ** 24,
  });
  return stdout;
}

/** @returns the folder with the root file system of the stand-in */
async function makeBase(directory: TempDir): Promise<string> {
  const base = directory.file('base');
  const folders = [
    'usr/local/bin',
    'usr/local/etc',
    'usr/local/lib/node_modules',
    'usr/bin',
    'usr/lib',
    'usr/lib64',
    'etc',
    'root',
  ];
  for (const each of [...folders, 'tmp', 'dev', 'proc', 'sys'])
    mkdirSync(join(base, each), { recursive: true });
  chmodSync(join(base, 'tmp'), 0o1777);
  for (const each of ['bin', 'lib', 'lib64']) symlinkSync(`usr/${each}`, join(base, each));
  for (const name of PROGRAMS) {
    const program = name === 'node' ? process.execPath : await onPath(name, '/usr/bin:/bin');
    if (program === undefined) throw new Error(`there is no ${name} on this machine`);
    const { stdout } = await run('ldd', [program]).catch(() => ({ stdout: '' }));
    for (const [library] of stdout.matchAll(/(?<=\s)\/\S+/g)) {
      mkdirSync(join(base, dirname(library)), { recursive: true });
      if (basename(library) === 'libc.so.6')
        for (const part of LIBRARIES)
          copyFileSync(join(dirname(library), part), join(base, dirname(library), part));
      copyFileSync(realpathSync(library), join(base, library));
    }
    if (name !== 'node') copyFileSync(realpathSync(program), join(base, 'usr/bin', name));
  }
  writeFileSync(join(base, 'usr/local/bin/node'), '', { mode: 0o755 });
  const npm = dirname(dirname(realpathSync((await onPath('npm')) ?? '')));
  cpSync(npm, join(base, 'usr/local/lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(base, 'usr/local/bin', name));
  writeFileSync(join(base, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/:/bin/sh\n');
  writeFileSync(join(base, 'etc/group'), 'root:x:0:\nnode:x:1000:\n');
  // The registry of this machine, and the authority that its connections may need.
  const { stdout: registry } = await run('npm', ['config', 'get', 'registry']);
  const authority = process.env['NODE_EXTRA_CA_CERTS'];
  if (authority !== undefined) copyFileSync(authority, join(base, 'etc/authority.pem'));
  const lines = [
    `registry=${registry.trim()}`,
    ...(authority === undefined ? [] : ['cafile=/etc/authority.pem']),
  ];
  writeFileSync(join(base, 'usr/local/etc/npmrc'), `${lines.join('\n')}\n`);
  return base;
}
