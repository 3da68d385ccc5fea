// Reads the bytes of a configuration file, with a size limit, and converts system errors to faults. load-config.ts parses them.
import { hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { ConfigError } from '../config-fault.ts';

/** In bytes. Far above any configuration, and harmless for memory. */
export const MAX_FILE = 2 ** 20;

const READ_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file; `tollgate init` writes a first one',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/** A fault of the whole file, or at one position. */
export function fileFault(file: string, message: string, line = 1, column = 1): ConfigError {
  return new ConfigError([{ file, line, column, message, excerpt: '' }]);
}

/** The code of a system error, such as `ENOENT`; `unknown` for any other. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}

function readFault(file: string, error: unknown): ConfigError {
  if (error instanceof ConfigError) return error;
  const code = errorCode(error);
  return fileFault(file, `cannot be read: ${READ_ERRORS[code] ?? `system error ${code}`}`);
}

/** Reads from an open file. @returns at most `max` + 1 bytes, so that a device or a log file cannot fill the memory */
export function readUpTo(handle: number, max: number): Buffer {
  const buffer = Buffer.alloc(max + 1);
  let length = 0;
  for (;;) {
    const count = readSync(handle, buffer, length, buffer.length - length, null);
    length += count;
    if (count === 0 || length === buffer.length) return buffer.subarray(0, length);
  }
}

/** The bytes of a file, and whether it is a regular file: a pipe cannot be read again. */
export interface FileBytes {
  readonly bytes: Buffer;
  readonly isRegular: boolean;
}

/**
 * Reads the file synchronously, for startup.
 * @returns at most MAX_FILE + 1 bytes
 * @throws ConfigError with one fault at 1:1
 */
export function readConfigFile(file: string): FileBytes {
  let handle: number | undefined;
  try {
    handle = openSync(file, 'r');
    const kind = fstatSync(handle);
    if (kind.isDirectory()) throw fileFault(file, 'cannot be read: it is a directory');
    return { bytes: readUpTo(handle, MAX_FILE), isRegular: kind.isFile() };
  } catch (error) {
    throw readFault(file, error);
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}

/**
 * Re-reads the file while serving: asynchronously, and without blocking on a pipe that has replaced the file.
 * @returns at most MAX_FILE + 1 bytes, or one fault at 1:1
 */
export async function rereadConfigFile(file: string): Promise<Buffer | ConfigError> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    const kind = await handle.stat();
    if (kind.isDirectory()) return fileFault(file, 'cannot be read: it is a directory');
    if (!kind.isFile()) return fileFault(file, 'cannot be read: it is not a regular file');
    // One byte more than its size. A file that grows during the read is read again anyway.
    const buffer = Buffer.alloc(Math.min(kind.size, MAX_FILE) + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
      length += bytesRead;
      if (bytesRead === 0 || length === buffer.length) return buffer.subarray(0, length);
    }
  } catch (error) {
    return readFault(file, error);
  }
}

/** Digest for comparing file contents without keeping the text. */
export function digestOf(bytes: Buffer): string {
  return hash('sha256', bytes, 'base64');
}
