// The image that the Dockerfile describes, as a folder, and a container of it made of Linux's own parts: namespaces for
// processes, mounts and network, everything read-only but the volume, no root, no capabilities. Needs root to set up.
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join, posix } from 'node:path';
import { Program, ROOT } from '../e2e/program.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { buildContext, execForm, last, readDockerfile, type Stage, variables } from './dockerfile.ts';
import { installProduction, linkFile } from './installed.ts';

/** Whether this machine can make a container; else its tests are skipped. */
export const CAN_CONTAIN = ((): boolean => {
  try {
    const tries =
      'mount --make-rprivate / && mount -o remount,bind,ro / && ip link set lo up && command -v nsenter setpriv';
    const flags = ['--mount', '--pid', '--net', '--fork', '--kill-child', '--mount-proc'];
    execFileSync('unshare', [...flags, 'sh', '-c', tries], { stdio: 'ignore' });
    return process.getuid?.() === 0;
  } catch {
    return false;
  }
})();

export class Image implements AsyncDisposable {
  readonly stage: Stage;
  /** What is /app in the image. */
  readonly app: string;
  readonly data: string;
  readonly #directory: TempDir;

  private constructor(directory: TempDir, stage: Stage) {
    this.#directory = directory;
    this.stage = stage;
    this.app = directory.file('app');
    this.data = join(this.app, 'data');
  }

  /** Carries out what the last stage says. */
  static async build(): Promise<Image> {
    const stage = readDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')).at(-1);
    if (stage === undefined) throw new Error('the Dockerfile has no stage');
    const directory = await tempDir();
    const image = new Image(directory, stage);
    chmodSync(directory.path, 0o755);
    mkdirSync(image.app);
    mkdirSync(directory.file('bin'));
    await linkFile(process.execPath, directory.file('bin/node'));
    for (const { name, flags, rest } of stage.instructions) {
      if (name === 'COPY') await image.#copy(rest.split(/\s+/), flags.has('from'));
    }
    mkdirSync(image.data);
    chownSync(image.data, image.user.uid, image.user.gid);
    return image;
  }

  get user(): { uid: number; gid: number } {
    const [uid = 0, gid = 0] = (last(this.stage, 'USER')?.rest ?? '').split(':').map(Number);
    return { uid, gid };
  }

  /** ENTRYPOINT and CMD. */
  get command(): readonly string[] {
    return ['ENTRYPOINT', 'CMD'].flatMap((name) => execForm(last(this.stage, name)?.rest ?? '') ?? []);
  }

  get healthCommand(): readonly string[] {
    return execForm(last(this.stage, 'HEALTHCHECK')?.rest.replace(/^CMD\s+/, '') ?? '') ?? [];
  }

  /** @param network `own`: of its own, with nothing but a loopback; `shared`: this machine's */
  start(command: readonly string[], network: 'own' | 'shared' = 'own'): Container {
    const separate = network === 'own' ? ['--net'] : [];
    const setUp = `set -e
      mount --make-rprivate /
      ${network === 'own' ? 'ip link set lo up' : ''}
      mount --bind "${this.app}" "${this.app}"
      mount --bind "${this.data}" "${this.data}"
      mount -o remount,bind,ro "${this.app}"
      mount -o remount,bind,ro /
      mount -o remount,bind,ro /tmp 2> /dev/null || true
      cd "${this.app}"
      exec "$@"`;
    const flags = ['--mount', '--pid', ...separate, '--fork', '--kill-child', '--mount-proc'];
    const words = [...flags, 'sh', '-c', setUp, 'sh', ...this.asUser(command)];
    return new Container(new Program(words, { command: 'unshare', env: this.environment }), this);
  }

  /** The command as the user of the image, who can gain nothing. */
  asUser(command: readonly string[]): readonly string[] {
    const { uid, gid } = this.user;
    const ids = ['--reuid', String(uid), '--regid', String(gid), '--clear-groups', '--pdeathsig', 'KILL'];
    return ['setpriv', ...ids, '--no-new-privs', '--bounding-set=-all', '--inh-caps=-all', ...command];
  }

  get environment(): Readonly<Record<string, string>> {
    return { ...variables(this.stage), PATH: `${this.#directory.file('bin')}:/usr/sbin:/usr/bin:/sbin:/bin` };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#directory.remove();
  }

  async #copy(words: readonly string[], isFromStage: boolean): Promise<void> {
    const sources = words.slice(0, -1);
    const target = posix.join('.', words.at(-1) ?? '');
    if (isFromStage) {
      const words = `${sources.join()} ${target}`;
      if (words === '/app/node_modules node_modules') return installProduction(this.app);
      if (words !== '/app/dist dist') throw new Error(`what is ${words}?`);
      // The global setup has built it of the same files, by the same program.
      return cpSync(join(ROOT, 'dist'), join(this.app, target), { recursive: true });
    }
    const context = buildContext(ROOT, readFileSync(join(ROOT, '.dockerignore'), 'utf8'));
    for (const source of sources) {
      if (!context.includes(source)) throw new Error(`the build does not see ${source}`);
      const isFolder = statSync(join(ROOT, source)).isDirectory();
      const to = isFolder ? target : join(target, basename(source));
      cpSync(join(ROOT, source), join(this.app, to), { recursive: true });
    }
  }
}

export class Container implements AsyncDisposable {
  readonly program: Program;
  readonly #image: Image;

  constructor(program: Program, image: Image) {
    this.program = program;
    this.#image = image;
  }

  /** Sends a signal to its process 1, as an engine does. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    process.kill(await this.#inside(), signal);
  }

  /** Runs a command in it beside what runs there, as an engine does. */
  async exec(command: readonly string[]): Promise<Program> {
    const target = [
      '--target',
      String(await this.#inside()),
      '--mount',
      '--pid',
      '--net',
      `--wd=${this.#image.app}`,
    ];
    const words = [...target, ...this.#image.asUser(command)];
    return new Program(words, { command: 'nsenter', env: this.#image.environment });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program[Symbol.asyncDispose]();
  }

  /** Its process 1, as this machine counts. */
  #inside(): Promise<number> {
    const pid = this.program.child.pid;
    const file = `/proc/${pid}/task/${pid}/children`;
    return until(
      () => (existsSync(file) ? Number(readFileSync(file, 'utf8').trim()) || undefined : undefined),
      'the first process of the container',
    );
  }
}
