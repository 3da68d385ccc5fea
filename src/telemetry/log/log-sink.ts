// The log sink: buffers lines and writes them in batches without blocking. When the reader stalls or the disk is full, lines are dropped
// and counted, and requests are not delayed.
import { write, writeSync } from 'node:fs';
import type { Writable } from 'node:stream';

/** Takes one text at a time. */
interface LogOutput {
  /** @param done called once, when the text is written or lost */
  write(text: string, done: (error?: Error | null) => void): void;
  /** For the exit of the process: writes what the system accepts at once. Never blocks or throws. */
  writeNow(text: string): void;
  /** Whether the reader is gone for good. */
  readonly isGone: boolean;
}

/** Lines are written in batches of this size or five times a second: waking a thread for a few lines costs more than the lines. */
const PIECE_BYTES = 64 * 1024;
const WRITE_MS = 200;
/** Maximum buffered bytes; further lines are dropped. */
const MAX_BYTES = 16 * 1024 * 1024;

export class LogSink {
  readonly #to: LogOutput;
  readonly #maxBytes: number;
  readonly #timer: NodeJS.Timeout;
  #lines: string[] = [];
  /** Size of the lines in UTF-16 code units, close enough to bytes for a bound. */
  #size = 0;
  /** Size of the text that is being written. */
  #writing = 0;
  #waiters: (() => void)[] = [];
  #dropped = 0;

  constructor(to: LogOutput, maxBytes = MAX_BYTES) {
    this.#to = to;
    this.#maxBytes = maxBytes;
    this.#timer = setInterval(() => this.#write(), WRITE_MS);
    this.#timer.unref();
  }

  /** Dropped lines. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Buffered bytes. */
  get waiting(): number {
    return this.#size + this.#writing;
  }

  /** A line with its newline from the logger, or several from a worker. */
  write(lines: string): void {
    if (this.#to.isGone || this.waiting + lines.length > this.#maxBytes) {
      this.#dropped += countLines(lines);
      return;
    }
    this.#lines.push(lines);
    this.#size += lines.length;
    if (this.#size >= PIECE_BYTES) this.#write();
  }

  /** @param done called when the present lines are written or lost; never if the reader stalls */
  flush(done: () => void = () => undefined): void {
    this.#waiters.push(done);
    this.#write();
    this.#settle();
  }

  /** For the exit of the process. A write in progress belongs to the system already. */
  end(): void {
    clearInterval(this.#timer);
    if (this.#lines.length > 0) this.#to.writeNow(this.#lines.join(''));
    this.#clear();
  }

  /** Writes all buffered lines as one text. */
  #write(): void {
    if (this.#writing > 0 || this.#lines.length === 0) return;
    const text = this.#lines.join('');
    this.#writing = this.#size;
    this.#clear();
    this.#to.write(text, (error) => {
      this.#writing = 0;
      if (error !== undefined && error !== null) this.#dropped += countLines(text);
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

function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) count += 1;
  return count;
}

/** Output to a pipe or socket, which Node writes without blocking. */
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

/** Retry interval for a blocked terminal. */
const AGAIN_MS = 100;

/** Output to a file or terminal, where a stream would block: written in a thread. */
export function fileOutput(descriptor: number): LogOutput {
  const put = (bytes: Buffer, done: (error?: Error | null) => void): void => {
    write(descriptor, bytes, (error, written) => {
      if (error?.code === 'EAGAIN') setTimeout(put, AGAIN_MS, bytes, done).unref();
      // Such as a full disk: this text is lost, and the next one is tried.
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
        // The lines are lost.
      }
    },
  };
}
