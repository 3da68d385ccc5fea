// Where lines of the log go: collected, written in pieces, never waited for. A reader that does not read costs lines, which
// are counted, and no request its time.
import type { Writable } from 'node:stream';

export interface LogSinkOptions {
  /** Must not block: a pipe or socket as Node opens it, or a stream over a file. */
  readonly to: Writable;
  /** Most bytes that wait for the reader; a line beyond them is dropped. Default 16 MiB. */
  readonly maxBytes?: number;
}

/** Lines are written in pieces of this size or five times a second: a system call for every line costs more than the line. */
const PIECE_BYTES = 4096;
const WRITE_MS = 200;
const MAX_BYTES = 16 * 1024 * 1024;

export class LogSink {
  readonly #to: Writable;
  readonly #maxBytes: number;
  readonly #timer: NodeJS.Timeout;
  #lines: string[] = [];
  /** Of the lines, in UTF-16 code units: near enough to bytes for a bound. */
  #size = 0;
  #dropped = 0;
  /** The reader has gone: nothing that is written will be read. */
  #isBroken = false;

  constructor({ to, maxBytes = MAX_BYTES }: LogSinkOptions) {
    this.#to = to;
    this.#maxBytes = maxBytes;
    to.on('error', () => {
      this.#isBroken = true;
      this.#dropped += this.#lines.length;
      this.#lines = [];
      this.#size = 0;
    });
    this.#timer = setInterval(() => this.#write(), WRITE_MS);
    this.#timer.unref();
  }

  /** Lines that will not be read. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Bytes that wait for the reader. */
  get waiting(): number {
    return this.#size + this.#to.writableLength;
  }

  /** One line with its newline, from the logger. */
  write(line: string): void {
    if (this.#isBroken || this.waiting + line.length > this.#maxBytes) {
      this.#dropped += 1;
      return;
    }
    this.#lines.push(line);
    this.#size += line.length;
    if (this.#size >= PIECE_BYTES) this.#write();
  }

  /** Writes what is left. @param done called when the reader has it all, if ever */
  flush(done: () => void = () => undefined): void {
    this.#write();
    if (this.#isBroken || this.#to.writableLength === 0) done();
    else this.#to.write('', done);
  }

  /** Writes what is left, as far as it is taken at once: for the end of a process. */
  end(): void {
    clearInterval(this.#timer);
    this.#write();
  }

  #write(): void {
    if (this.#lines.length === 0) return;
    // What the reader has not taken is in the stream's own buffer; both are in the bound.
    this.#to.write(this.#lines.join(''));
    this.#lines = [];
    this.#size = 0;
  }
}
