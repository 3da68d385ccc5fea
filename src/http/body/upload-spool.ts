// Spool of an upload: a small amount in memory, more in a temporary file that is unlinked right after its opening, so that nothing
// remains however the process ends.
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GatewayError } from '../../errors.ts';
import { BodyBuffer } from '../pieces/body-buffer.ts';

/** Larger uploads go to a file. */
export const SPOOL_MEMORY_BYTES = 1024 * 1024;
/** Bytes per read. */
const READ_BYTES = 64 * 1024;
const NO_BYTES: Buffer = Buffer.alloc(0);

/** Gauges of spool files and their bytes. */
interface SpoolGauges {
  readonly files: { add(by: number): void };
  readonly bytes: { add(by: number): void };
}

/** Minimum interval between two error reports, since disk errors hit many uploads at once. */
const REPORT_EVERY_MS = 10_000;

interface SpoolFilesOptions {
  /** Maximum number of files. */
  readonly limit: number;
  readonly gauges: SpoolGauges;
  /** Called with the cause when an upload could not be spooled; rate-limited. */
  readonly onError?: (cause: unknown) => void;
  /** Default: the system's directory for temporary files. */
  readonly directory?: string;
}

/** The bounded set of spool files of one process. */
export class SpoolFiles {
  readonly #options: SpoolFilesOptions;
  readonly #gauges: SpoolGauges;
  #count = 0;
  #reportedAt = Number.NEGATIVE_INFINITY;

  constructor(options: SpoolFilesOptions) {
    this.#options = options;
    this.#gauges = options.gauges;
  }

  /** @throws GatewayError overloaded: the limit is reached, or the disk fails */
  async open(): Promise<FileHandle> {
    const { limit, directory = tmpdir() } = this.#options;
    if (this.#count >= limit)
      throw this.overloaded(new Error(`the limit of ${limit} spool files is reached`));
    this.#count += 1;
    this.#gauges.files.add(1);
    try {
      const path = join(directory, `tollgate-${randomUUID()}`);
      const file = await open(path, 'wx+', 0o600);
      try {
        await unlink(path);
        return file;
      } catch (error) {
        await file.close();
        throw error;
      }
    } catch (cause) {
      this.#free();
      throw this.overloaded(cause);
    }
  }

  /** The error for an upload that cannot be spooled; reports its cause. */
  overloaded(cause: unknown): GatewayError {
    const now = performance.now();
    if (now - this.#reportedAt >= REPORT_EVERY_MS) {
      this.#reportedAt = now;
      this.#options.onError?.(cause);
    }
    const message =
      'This gateway cannot buffer more uploads at the moment. A form with `model` before its file need not be buffered.';
    return new GatewayError('overloaded', message, { cause });
  }

  grown(by: number): void {
    this.#gauges.bytes.add(by);
  }

  /** Closes a file and frees its slot. */
  async close(file: FileHandle, size: number): Promise<void> {
    this.#gauges.bytes.add(-size);
    try {
      // Waits for pending operations.
      await file.close();
    } catch {
      // The file is unlinked and the descriptor is gone: nothing is left to clean up.
    } finally {
      this.#free();
    }
  }

  #free(): void {
    this.#count -= 1;
    this.#gauges.files.add(-1);
  }
}

/** Replacement bytes for a span; an empty span is an insertion. */
export interface Splice {
  readonly span: { readonly start: number; readonly end: number };
  readonly bytes: Buffer;
}

export class UploadSpool {
  readonly #files: SpoolFiles;
  #memory: BodyBuffer | undefined = new BodyBuffer(SPOOL_MEMORY_BYTES);
  #file: FileHandle | undefined;
  #size = 0;
  #isClosed = false;

  constructor(files: SpoolFiles) {
    this.#files = files;
  }

  get size(): number {
    return this.#size;
  }

  get isInMemory(): boolean {
    return this.#memory !== undefined;
  }

  /**
   * Appends a piece.
   * @returns undefined if it is stored; else a promise for its write, before which no other piece may be pushed. Rejects with
   *   GatewayError overloaded
   */
  push(piece: Buffer): Promise<void> | undefined {
    if (this.#memory?.push(piece) === true) {
      this.#size += piece.length;
      return undefined;
    }
    return this.#write(piece);
  }

  /** All bytes, if in memory. Push nothing after this. */
  take(): Buffer {
    return this.#memory?.take() ?? NO_BYTES;
  }

  /** The stored bytes with splices applied. @param splices in order, not overlapping */
  async *pieces(splices: readonly Splice[]): AsyncGenerator<Buffer, undefined> {
    const end = this.#size;
    let at = 0;
    for (const { span, bytes } of [...splices, { span: { start: end, end }, bytes: undefined }]) {
      while (at < span.start) {
        const piece = await this.read(at, span.start);
        at += piece.length;
        yield piece;
      }
      if (bytes !== undefined && bytes.length > 0) yield bytes;
      at = span.end;
    }
    return undefined;
  }

  /**
   * A non-empty piece from a range of the stored bytes.
   * @throws GatewayError (rejects) internal_error: the file cannot be read; client_closed: the spool was closed
   */
  async read(from: number, to: number): Promise<Buffer> {
    if (this.#isClosed) throw new GatewayError('client_closed');
    const maxBytes = Math.min(to - from, READ_BYTES);
    if (this.#file === undefined) return this.take().subarray(from, from + maxBytes);
    const bytes = Buffer.allocUnsafe(maxBytes);
    try {
      const { bytesRead } = await this.#file.read(bytes, 0, maxBytes, from);
      if (bytesRead > 0) return bytes.subarray(0, bytesRead);
      throw new Error('the spool file of an upload is truncated');
    } catch (cause) {
      throw new GatewayError('internal_error', undefined, { cause });
    }
  }

  /** Discards all bytes. Idempotent; allowed at any time. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#memory = undefined;
    const file = this.#file;
    this.#file = undefined;
    if (file !== undefined) await this.#files.close(file, this.#size);
  }

  async #write(piece: Buffer): Promise<void> {
    let file = this.#file;
    if (file === undefined) {
      const opened = await this.#files.open();
      if (this.#isClosed) {
        await this.#files.close(opened, 0);
        return;
      }
      file = this.#file = opened;
      const before = this.take();
      this.#memory = undefined;
      this.#files.grown(before.length);
      await this.#writeAll(file, before, 0);
    }
    if (this.#isClosed) return;
    const at = this.#size;
    this.#size += piece.length;
    this.#files.grown(piece.length);
    await this.#writeAll(file, piece, at);
  }

  async #writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
    try {
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
        done += bytesWritten;
      }
    } catch (cause) {
      // A write after `close` fails for that reason.
      throw this.#isClosed ? new GatewayError('client_closed') : this.#files.overloaded(cause);
    }
  }
}
