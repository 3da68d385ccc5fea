// Where lines of the log go: collected, written in pieces, never waited for. A reader that does not read, or a disk that is
// full, costs lines, which are counted, and no request its time.
import { write, writeSync } from 'node:fs';
import type { Writable } from 'node:stream';

/** Takes one text at a time. */
interface LogOutput {
  /** @param done called once, when the text is out or lost */
  write(text: string, done: (error?: Error | null) => void): void;
  /** At the end of the process: as much as is taken at once. Never waits and never throws. */
  writeNow(text: string): void;
  /** Nobody will ever read again. */
  readonly isGone: boolean;
}

/** Lines are written in pieces of this size or five times a second: a thread woken for each few costs more than the lines. */
const PIECE_BYTES = 64 * 1024;
const WRITE_MS = 200;
/** What waits for a reader; a line beyond it is dropped. */
const MAX_BYTES = 16 * 1024 * 1024;

export class LogSink {
  readonly #to: LogOutput;
  readonly #maxBytes: number;
  readonly #timer: NodeJS.Timeout;
  #lines: string[] = [];
  /** Of the lines, in UTF-16 code units: near enough to bytes for a bound. */
  #size = 0;
  /** Of the text that is being written. */
  #writing = 0;
  #waiters: (() => void)[] = [];
  #dropped = 0;

  constructor(to: LogOutput, maxBytes = MAX_BYTES) {
    this.#to = to;
    this.#maxBytes = maxBytes;
    this.#timer = setInterval(() => this.#write(), WRITE_MS);
    this.#timer.unref();
  }

  /** Lines that will not be read. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Bytes that wait for the reader. */
  get waiting(): number {
    return this.#size + this.#writing;
  }

  /** One line with its newline, from the logger. */
  write(line: string): void {
    if (this.#to.isGone || this.waiting + line.length > this.#maxBytes) {
      this.#dropped += 1;
      return;
    }
    this.#lines.push(line);
    this.#size += line.length;
    if (this.#size >= PIECE_BYTES) this.#write();
  }

  /** @param done called when what was there has been written or lost, if ever */
  flush(done: () => void = () => undefined): void {
    this.#waiters.push(done);
    this.#write();
    this.#settle();
  }

  /** For the end of a process. What is being written is the system's by now. */
  end(): void {
    clearInterval(this.#timer);
    if (this.#lines.length > 0) this.#to.writeNow(this.#lines.join(''));
    this.#clear();
  }

  /** All that waits, as one text. */
  #write(): void {
    if (this.#writing > 0 || this.#lines.length === 0) return;
    const { length } = this.#lines;
    const text = this.#lines.join('');
    this.#writing = this.#size;
    this.#clear();
    this.#to.write(text, (error) => {
      this.#writing = 0;
      if (error !== undefined && error !== null) this.#dropped += length;
      if (this.#size >= PIECE_BYTES || this.#waiters.length > 0) this.#write();
      this.#settle();
    });
  }

  #clear(): void {
    this.#lines = [];
    this.#size = 0;
  }

  #settle(): void {
    if (this.#writing > 0) return;
    for (const done of this.#waiters.splice(0)) done();
  }
}

/** A pipe or a socket, which Node writes to without blocking. */
export function streamOutput(stream: Writable): LogOutput {
  let isGone = false;
  stream.on('error', () => {
    isGone = true;
  });
  return {
    write: (text, done) => void stream.write(text, done),
    writeNow: (text) => void stream.write(text),
    get isGone() {
      return isGone;
    },
  };
}

/** Until a terminal that takes nothing is tried again. */
const AGAIN_MS = 100;

/** A file or a terminal, which Node would wait for: written in a thread. */
export function fileOutput(descriptor: number): LogOutput {
  const put = (bytes: Buffer, done: (error?: Error | null) => void): void => {
    write(descriptor, bytes, (error, written) => {
      if (error?.code === 'EAGAIN') setTimeout(put, AGAIN_MS, bytes, done).unref();
      // A full disk, say: this text is lost, and the next one is tried again.
      else if (error !== null || written >= bytes.length) done(error);
      else put(bytes.subarray(written), done);
    });
  };
  return {
    isGone: false,
    write: (text, done) => put(Buffer.from(text), done),
    writeNow: (text) => {
      try {
        writeSync(descriptor, text);
      } catch {
        // Nothing more can be done about it.
      }
    },
  };
}
