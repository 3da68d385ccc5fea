// A duplex stream that stands in for the client's socket in http-proxy-3. Writes go to the session, reads return what the session
// received from the client. The session owns the real socket.
import { Duplex } from 'node:stream';

/** The owner of the client's connection. */
export interface LineOwner {
  /** Bytes from the upstream. `done` is called when there is room for more. */
  toClient(bytes: Buffer, done: () => void): void;
  /** The upstream ended its side, and all of its bytes were delivered. */
  upstreamEnded(): void;
  /** There is room for bytes from the client. */
  wantsMore(): void;
}

/** The upstream's connection: what a session needs to close it. */
export interface UpstreamEnd {
  destroy(): unknown;
  /** Closes the connection after pending writes are sent. */
  destroySoon(): void;
}

type Done = (error?: Error | null) => void;

export class Line extends Duplex {
  #owner: LineOwner | undefined;
  /** The write that arrived before there was an owner; the stream waits for it. */
  #held: (() => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true });
    // Without a listener, an error would end the process.
    this.on('error', () => undefined);
  }

  /** Sets the owner and delivers the pending write to it. */
  belongTo(owner: LineOwner): void {
    this.#owner = owner;
    this.#held?.();
    this.#held = undefined;
    owner.wantsMore();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#withOwner((owner) => owner.toClient(bytes, done));
  }

  override _final(done: Done): void {
    this.#withOwner((owner) => {
      owner.upstreamEnded();
      done();
    });
  }

  override _read(): void {
    this.#owner?.wantsMore();
  }

  // http-proxy-3 calls these on a socket. The session sets deadlines and keep-alive on the real one.
  setTimeout(): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  destroySoon(): void {
    if (!this.writableEnded) this.end();
  }

  /** A stream has at most one write in progress, so one pending call is enough. */
  #withOwner(use: (owner: LineOwner) => void): void {
    const owner = this.#owner;
    if (owner !== undefined) use(owner);
    else {
      this.#held = () => {
        if (this.#owner !== undefined) use(this.#owner);
      };
    }
  }
}
