// The values of `${file:PATH}`: reads the files, and keeps the last good value of each.
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { readUpTo } from './config-file.ts';

/** In bytes. Far above any credential. */
const MAX_VALUE = 64 * 1024;

/** The value of a file, or what is wrong with it. A fault never quotes the content. */
export type FileValue =
  | { readonly ok: true; readonly value: string }
  | { readonly ok: false; readonly fault: string };

/** What the expansion of references needs of files. */
export interface FileValues {
  /** @param path as written in the configuration */
  read(path: string): FileValue;
}

/** Path as written → value: what a primary sends to its workers. */
export type FileContents = Readonly<Record<string, string>>;

const READ_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'is not readable: permission denied',
  EISDIR: 'is a directory',
};

export class ReferencedFiles implements FileValues {
  readonly #folder: string;
  readonly #values = new Map<string, string>();

  /**
   * @param config the configuration file: relative paths start at its folder
   * @param contents values to begin with, which are not read from disk
   */
  constructor(config: string, contents: FileContents = {}) {
    this.#folder = dirname(config);
    this.replace(contents);
  }

  /** The last good value. A file is read when it is first referred to; afterwards `update` changes its value. */
  read(path: string): FileValue {
    const known = this.#values.get(path);
    if (known !== undefined) return { ok: true, value: known };
    const found = readValue(() => readFile(this.locate(path)));
    if (found.ok) this.#values.set(path, found.value);
    return found;
  }

  /**
   * Takes the new content of a file, if `isGood` accepts the configuration with it; otherwise the last good value stays.
   * @returns what became of it
   */
  update(
    path: string,
    bytes: Buffer,
    isGood: () => boolean,
  ): 'unchanged' | 'changed' | { readonly fault: string } {
    const found = readValue(() => bytes);
    if (!found.ok) return found;
    const before = this.#values.get(path);
    if (found.value === before) return 'unchanged';
    this.#values.set(path, found.value);
    if (isGood()) return 'changed';
    if (before === undefined) this.#values.delete(path);
    else this.#values.set(path, before);
    return { fault: 'has a value that the configuration cannot use' };
  }

  /** Takes values from elsewhere, as a worker does from its primary. */
  replace(contents: FileContents): void {
    for (const [path, value] of Object.entries(contents)) this.#values.set(path, value);
  }

  /** The absolute path. */
  locate(path: string): string {
    return resolve(this.#folder, path);
  }

  /** The values of these files. */
  contents(paths: Iterable<string>): FileContents {
    return Object.fromEntries(
      Array.from(paths, (path) => [path, this.#values.get(path) ?? ''] as const).filter(
        ([, value]) => value !== '',
      ),
    );
  }
}

function readValue(read: () => Buffer): FileValue {
  let bytes: Buffer;
  try {
    bytes = read();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    return { ok: false, fault: READ_ERRORS[code] ?? `cannot be read: system error ${code}` };
  }
  if (bytes.length > MAX_VALUE) return { ok: false, fault: 'is larger than 64 KiB' };
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return { ok: false, fault: 'is not UTF-8' };
  }
  const value = text.trim();
  return value === '' ? { ok: false, fault: 'is empty' } : { ok: true, value };
}

/** @returns at most `MAX_VALUE` + 1 bytes. Does not block on a pipe. */
function readFile(file: string): Buffer {
  const handle = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (fstatSync(handle).isDirectory()) throw Object.assign(new Error('a directory'), { code: 'EISDIR' });
    return readUpTo(handle, MAX_VALUE);
  } finally {
    closeSync(handle);
  }
}
