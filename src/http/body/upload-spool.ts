// Keeps what has come of an upload until it can be sent: a little in memory, more in a temporary file that has no name any
// more as soon as it is open, so that nothing is left of it however the process ends.
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GatewayError } from '../../errors.ts';
import { BodyBuffer } from '../pieces/body-buffer.ts';

/** Beyond this it goes to a file. */
export const SPOOL_MEMORY_BYTES = 1024 * 1024;
/** One read. */
const READ_BYTES = 64 * 1024;
const NO_BYTES: Buffer = Buffer.alloc(0);

/** Hears how many files there are and what stands in them. */
interface SpoolGauges {
  readonly files: { add(by: number): void };
  readonly bytes: { add(by: number): void };
}

/** Trouble comes to many uploads at once, and is told once in so long. */
const TELL_EVERY_MS = 10_000;

interface SpoolRoomOptions {
  /** Most files at once. */
  readonly limit: number;
  readonly gauges: SpoolGauges;
  /** Hears why an upload could not be kept, now and then. */
  readonly onTrouble?: (cause: unknown) => void;
  /** Default: that of the system for temporary files. */
  readonly directory?: string;
}

/** The files of one process, of which there is a bounded number. */
export class SpoolRoom {
  readonly #options: SpoolRoomOptions;
  readonly #gauges: SpoolGauges;
  #taken = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(options: SpoolRoomOptions) {
    this.#options = options;
    this.#gauges = options.gauges;
  }

  /** @throws GatewayError overloaded: there are as many as there may be, or the disk does not take it */
  async open(): Promise<FileHandle> {
    const { limit, directory = tmpdir() } = this.#options;
    if (this.#taken >= limit) throw this.noRoom(new Error(`${limit} uploads are in files`));
    this.#taken += 1;
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
      this.#leave();
      throw this.noRoom(cause);
    }
  }

  /** The error of an upload that cannot be kept. */
  noRoom(cause: unknown): GatewayError {
    const now = performance.now();
    if (now - this.#toldAt >= TELL_EVERY_MS) {
      this.#toldAt = now;
      this.#options.onTrouble?.(cause);
    }
    const message =
      'This gateway cannot keep more uploads at the moment. A form whose `model` stands before its file need not be kept.';
    return new GatewayError('overloaded', message, { cause });
  }

  grown(by: number): void {
    this.#gauges.bytes.add(by);
  }

  /** Its place in the room ends with the file. */
  async close(file: FileHandle, size: number): Promise<void> {
    this.#gauges.bytes.add(-size);
    try {
      // Waits for what is under way.
      await file.close();
    } catch {
      // It has no name and the descriptor is gone: there is nothing left to be done.
    } finally {
      this.#leave();
    }
  }

  #leave(): void {
    this.#taken -= 1;
    this.#gauges.files.add(-1);
  }
}

export class UploadSpool {
  readonly #room: SpoolRoom;
  #memory: BodyBuffer | undefined = new BodyBuffer(SPOOL_MEMORY_BYTES);
  #file: FileHandle | undefined;
  #size = 0;
  #isClosed = false;

  constructor(room: SpoolRoom) {
    this.#room = room;
  }

  get size(): number {
    return this.#size;
  }

  get isInMemory(): boolean {
    return this.#memory !== undefined;
  }

  /**
   * Keeps a piece behind the others.
   * @returns undefined when it is kept; else when it is written, before which nothing else may be pushed. Rejects with
   *   GatewayError overloaded
   */
  push(piece: Buffer): Promise<void> | undefined {
    if (this.#memory?.push(piece) === true) {
      this.#size += piece.length;
      return undefined;
    }
    return this.#write(piece);
  }

  /** All of it, when it is in memory. Nothing may be pushed after it. */
  take(): Buffer {
    return this.#memory?.take() ?? NO_BYTES;
  }

  /**
   * A piece of some size from a range of what is kept; never an empty one.
   * @throws GatewayError (rejects) internal_error: the file cannot be read; client_closed: nothing is kept any more
   */
  async read(from: number, to: number): Promise<Buffer> {
    if (this.#isClosed) throw new GatewayError('client_closed');
    const most = Math.min(to - from, READ_BYTES);
    if (this.#file === undefined) return this.take().subarray(from, from + most);
    const bytes = Buffer.allocUnsafe(most);
    try {
      const { bytesRead } = await this.#file.read(bytes, 0, most, from);
      if (bytesRead > 0) return bytes.subarray(0, bytesRead);
      throw new Error('the file of an upload is shorter than it was');
    } catch (cause) {
      throw new GatewayError('internal_error', undefined, { cause });
    }
  }

  /** Forgets all of it. Idempotent, and good at any time. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#memory = undefined;
    const file = this.#file;
    this.#file = undefined;
    if (file !== undefined) await this.#room.close(file, this.#size);
  }

  async #write(piece: Buffer): Promise<void> {
    let file = this.#file;
    if (file === undefined) {
      const opened = await this.#room.open();
      if (this.#isClosed) {
        await this.#room.close(opened, 0);
        return;
      }
      file = this.#file = opened;
      const before = this.take();
      this.#memory = undefined;
      this.#room.grown(before.length);
      await this.#writeAll(file, before, 0);
    }
    if (this.#isClosed) return;
    const at = this.#size;
    this.#size += piece.length;
    this.#room.grown(piece.length);
    await this.#writeAll(file, piece, at);
  }

  async #writeAll(file: FileHandle, bytes: Buffer, place: number): Promise<void> {
    try {
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await file.write(bytes, done, bytes.length - done, place + done);
        done += bytesWritten;
      }
    } catch (cause) {
      // One that was closed meanwhile is nobody's any more.
      throw this.#isClosed ? new GatewayError('client_closed') : this.#room.noRoom(cause);
    }
  }
}
