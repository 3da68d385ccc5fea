// The bytes of a configuration file, or the fault that there are none: what may be read as one, and what the system says
// when it cannot be. What the bytes mean is load-config.ts's.
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { ConfigError } from '../schema/config-fault.ts';

/** Far above any configuration, far below what would hurt. */
export const MAX_FILE = 2 ** 20;

const READ_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file; `tollgate init` writes one to begin with',
  EACCES: 'this process may not read it',
  EISDIR: 'it is a directory',
};

/** A fault of the file as a whole, or at one place of it. */
export function fileFault(file: string, message: string, line = 1, column = 1): ConfigError {
  return new ConfigError([{ file, line, column, message, excerpt: '' }]);
}

function readFault(file: string, error: unknown): ConfigError {
  if (error instanceof ConfigError) return error;
  const code =
    error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'unknown';
  return fileFault(file, `cannot be read: ${READ_ERRORS[code] ?? `the system says ${code}`}`);
}

/** The bytes of a file, and whether they can be read a second time: what comes through a pipe cannot. */
export interface FileBytes {
  readonly bytes: Buffer;
  readonly isRegular: boolean;
}

/**
 * Reads all of it at once: for the start, when there is nothing else to do.
 * @returns at most MAX_FILE and one byte, so that a device or a log given by mistake does not fill the memory
 * @throws ConfigError with one fault at 1:1
 */
export function readConfigFile(file: string): FileBytes {
  const buffer = Buffer.alloc(MAX_FILE + 1);
  let handle: number | undefined;
  try {
    handle = openSync(file, 'r');
    const kind = fstatSync(handle);
    if (kind.isDirectory()) throw fileFault(file, 'cannot be read: it is a directory');
    let length = 0;
    for (;;) {
      const count = readSync(handle, buffer, length, buffer.length - length, null);
      length += count;
      if (count === 0 || length === buffer.length) break;
    }
    return { bytes: buffer.subarray(0, length), isRegular: kind.isFile() };
  } catch (error) {
    throw readFault(file, error);
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}

/**
 * Reads it again while requests are served: never on the event loop, and never waiting for the writer of a pipe that took
 * the file's place.
 * @returns at most MAX_FILE and one byte, or one fault at 1:1
 */
export async function rereadConfigFile(file: string): Promise<Buffer | ConfigError> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    const kind = await handle.stat();
    if (kind.isDirectory()) return fileFault(file, 'cannot be read: it is a directory');
    if (!kind.isFile()) return fileFault(file, 'cannot be read: it is no regular file');
    // One byte more than it had: a file that grows meanwhile is read again anyway.
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

/** By which two readings of a file are compared without keeping its text. */
export function digestOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('base64');
}
