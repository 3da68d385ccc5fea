// The client's end of a session as http-proxy-3 is given it: a stream that looks like a socket. What is written to it goes to
// the session, what the session gets from the client is read from it, and the client's own socket stays the session's.
import { Duplex } from 'node:stream';

/** Who owns the client's connection. */
export interface LineOwner {
  /** Bytes of the upstream's. `done` is called when there is room for more. */
  toClient(bytes: Buffer, done: () => void): void;
  /** The upstream has ended its side, and all of its bytes were taken. */
  upstreamEnded(): void;
  /** There is room for bytes of the client's. */
  wantsMore(): void;
}

/** The upstream's connection, as far as a session ends it. */
export interface UpstreamEnd {
  destroy(): unknown;
  /** When what was written has been sent. */
  destroySoon(): void;
}

type Done = (error?: Error | null) => void;

export class Line extends Duplex {
  #owner: LineOwner | undefined;
  /** What came before there was an owner; the stream above waits meanwhile. */
  #held: (() => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true });
    // http-proxy-3 listens too; without either an error would end the process.
    this.on('error', () => undefined);
  }

  /** From now on the owner gets what is written here, and is asked for what is read. */
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

  // What http-proxy-3 sets on a socket. Deadlines and keep-alive of the client's are the session's.
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

  /** One thing is written at a time, so that there is one to hold. */
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
