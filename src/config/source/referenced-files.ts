// The files that a configuration refers to: `${file:PATH}`, and price lists. Reads them, and keeps the last good value of each.
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { accepted, rejected, type ScalarResult } from '../schema/units.ts';
import { errorCode, readUpTo } from './config-file.ts';

/** In bytes. Enough for a bundle of all public authorities. */
const MAX_VALUE = 512 * 1024;
/** Of more new contents at once it is not tried which one is bad: each attempt reads the whole configuration. */
const MAX_PARTNERS = 8;

/** The value of a file, or what is wrong with it. A fault never quotes the content. */
type FileValue = ScalarResult<string>;

/** What became of a new content. `why`: log fields with the faults of the configuration. */
type FileUpdate =
  | { readonly kind: 'unchanged' | 'changed' }
  | { readonly kind: 'unreadable'; readonly fault: string }
  | { readonly kind: 'refused'; readonly why: object };

/** What the expansion of references needs of files. */
export interface FileValues {
  /** @param path as written in the configuration. @returns the content without white space at its ends */
  read(path: string): FileValue;
  /** The same with white space, as positions in the text need it. */
  text(path: string): FileValue;
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
    const found = this.text(path);
    return found.ok ? accepted(found.value.trim()) : found;
  }

  text(path: string): FileValue {
    const known = this.#values.get(path);
    if (known !== undefined) return accepted(known);
    const found = readValue(() => readFile(this.locate(path)));
    if (found.ok) this.#values.set(path, found.value);
    return found;
  }

  /**
   * Takes new contents of files, if the configuration can be applied with them: all together, as a certificate and its key belong
   * together, else without one of them, else one by one. Of the others the last good value stays.
   * @param contents path as written → content
   * @param apply @returns why the configuration cannot be applied with the values of now; undefined when it is in force
   * @returns what became of each
   */
  update(
    contents: ReadonlyMap<string, Buffer>,
    apply: () => object | undefined,
  ): ReadonlyMap<string, FileUpdate> {
    const results = new Map<string, FileUpdate>();
    const fresh: (readonly [string, string])[] = [];
    for (const [path, bytes] of contents) {
      const found = readValue(() => bytes);
      if (!found.ok) results.set(path, { kind: 'unreadable', fault: found.fault });
      else if (found.value.trim() === this.#values.get(path)?.trim())
        results.set(path, { kind: 'unchanged' });
      else fresh.push([path, found.value]);
    }
    for (const group of groupsOf(fresh)) {
      if (group.some(([path]) => results.get(path)?.kind === 'changed')) continue;
      const why = this.#try(group, apply);
      const update: FileUpdate = why === undefined ? { kind: 'changed' } : { kind: 'refused', why };
      for (const [path] of group) results.set(path, update);
    }
    return results;
  }

  #try(values: readonly (readonly [string, string])[], apply: () => object | undefined): object | undefined {
    const before = values.map(([path]) => [path, this.#values.get(path)] as const);
    for (const [path, value] of values) this.#values.set(path, value);
    const why = apply();
    for (const [path, value] of why === undefined ? [] : before) {
      if (value === undefined) this.#values.delete(path);
      else this.#values.set(path, value);
    }
    return why;
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
    const values = Array.from(paths, (path) => [path, this.#values.get(path) ?? ''] as const);
    return Object.fromEntries(values.filter(([, value]) => value !== ''));
  }
}

/** Which of these values are tried together, in order: all, all but one, each alone. */
function groupsOf<T>(values: readonly T[]): T[][] {
  if (values.length < 2) return values.map((value) => [value]);
  const isFew = values.length > 2 && values.length <= MAX_PARTNERS;
  const others = isFew ? values.map((value) => values.filter((each) => each !== value)) : [];
  return [[...values], ...others, ...values.map((value) => [value])];
}

function readValue(read: () => Buffer): FileValue {
  let bytes: Buffer;
  try {
    bytes = read();
  } catch (error) {
    const code = errorCode(error);
    return rejected(READ_ERRORS[code] ?? `cannot be read: system error ${code}`);
  }
  if (bytes.length > MAX_VALUE) return rejected('is larger than 512 KiB');
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return rejected('is not UTF-8');
  }
  return text.trim() === '' ? rejected('is empty') : accepted(text);
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
