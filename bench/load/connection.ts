// One connection of the load generator: HTTP/1.1 over a bare socket, one request at a time. It knows just what answers to the
// bench need, and costs a fraction of a real client, which matters where client and proxy share processors.
import { connect, type Socket } from 'node:net';

const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const NOTHING: Buffer = Buffer.alloc(0);

/** Who gets an answer. */
export interface Sink {
  /** A piece of the body, without its framing. */
  data(piece: Buffer): void;
  /** The answer is whole, by its framing. */
  end(status: number): void;
  fail(error: Error): void;
}

type State = 'idle' | 'head' | 'fixed' | 'size' | 'chunk' | 'chunk end' | 'trailer';

export class Connection {
  readonly #host: string;
  readonly #port: number;
  #socket: Socket | undefined;
  #sink: Sink | undefined;
  #state: State = 'idle';
  #held = NOTHING;
  #status = 0;
  #left = 0;
  #closes = false;

  constructor(url: URL) {
    this.#host = url.hostname;
    this.#port = Number(url.port);
  }

  /** Sends a request, over a new socket where the last one was closed. */
  request(bytes: Buffer, sink: Sink): void {
    this.#sink = sink;
    this.#state = 'head';
    this.#socket ??= this.#open();
    this.#socket.write(bytes);
  }

  destroy(): void {
    this.#sink = undefined;
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #open(): Socket {
    const socket = connect({ host: this.#host, port: this.#port, noDelay: true });
    const gone = (why: string, cause?: Error) => {
      if (socket !== this.#socket) return;
      this.#socket = undefined;
      this.#held = NOTHING;
      if (this.#state !== 'idle') this.#sink?.fail(new Error(why, { cause }));
    };
    socket.on('data', (data: Buffer) => this.#take(data));
    socket.on('error', (error) => gone(`the connection failed: ${error.message}`, error));
    socket.on('close', () => gone('the connection was closed before the answer was whole'));
    return socket;
  }

  #take(data: Buffer): void {
    let bytes = this.#held.length === 0 ? data : Buffer.concat([this.#held, data]);
    this.#held = NOTHING;
    while (bytes.length > 0) {
      const used = this.#step(bytes);
      if (used === undefined) {
        this.#held = bytes;
        return;
      }
      bytes = bytes.subarray(used);
    }
  }

  /** Takes what it can from the front; undefined when more bytes are needed first. */
  #step(bytes: Buffer): number | undefined {
    switch (this.#state) {
      case 'head': {
        const end = bytes.indexOf(HEAD_END);
        if (end === -1) return undefined;
        this.#readHead(bytes.toString('latin1', 0, end));
        return end + HEAD_END.length;
      }
      case 'fixed':
      case 'chunk': {
        const piece = bytes.length > this.#left ? bytes.subarray(0, this.#left) : bytes;
        this.#left -= piece.length;
        const isWhole = this.#left === 0;
        if (isWhole && this.#state === 'chunk') this.#state = 'chunk end';
        this.#sink?.data(piece);
        if (isWhole && this.#state === 'fixed') this.#end();
        return piece.length;
      }
      case 'chunk end':
        if (bytes.length < 2) return undefined;
        this.#state = 'size';
        return 2;
      case 'size': {
        const end = bytes.indexOf(LINE_END);
        if (end === -1) return undefined;
        this.#left = Number.parseInt(bytes.toString('latin1', 0, end), 16);
        this.#state = this.#left === 0 ? 'trailer' : 'chunk';
        return end + 2;
      }
      case 'trailer': {
        const end = bytes.indexOf(LINE_END);
        if (end === -1) return undefined;
        if (end === 0) this.#end();
        return end + 2;
      }
      case 'idle': {
        this.#sink?.fail(new Error('more came than was asked for'));
        return bytes.length;
      }
    }
  }

  #readHead(head: string): void {
    this.#status = Number(head.slice(9, 12));
    const lower = head.toLowerCase();
    this.#closes = lower.includes('\r\nconnection: close');
    if (lower.includes('\r\ntransfer-encoding: chunked')) {
      this.#state = 'size';
      return;
    }
    this.#left = Number(/\r\ncontent-length: *(\d+)/.exec(lower)?.[1] ?? Number.NaN);
    if (Number.isNaN(this.#left)) this.#sink?.fail(new Error('an answer without a length'));
    else if (this.#left === 0) this.#end();
    else this.#state = 'fixed';
  }

  #end(): void {
    const sink = this.#sink;
    this.#state = 'idle';
    this.#sink = undefined;
    if (this.#closes) {
      this.#socket?.destroy();
      this.#socket = undefined;
      this.#held = NOTHING;
    }
    sink?.end(this.#status);
  }
}
