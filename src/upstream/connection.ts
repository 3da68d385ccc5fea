// One connection to an upstream: undici's Client, which speaks HTTP on it, and the wire below, which knows what the
// Client does not tell: whether the socket served before, and whether a byte of the answer came.
import { Socket } from 'node:net';
import { type buildConnector, Client, type Dispatcher } from 'undici';

/** An upstream may send this many interim answers before the final one; more is a fault, not patience. */
const MAX_INTERIM = 5;
/** Of one interim answer. */
const MAX_INTERIM_BYTES = 16 * 1024;

const NO_BYTES: Buffer = Buffer.alloc(0);
const VERSION = Buffer.from('HTTP/1.');
const HEAD_END = Buffer.from('\r\n\r\n');
/** `HTTP/1.1 100` */
const STATUS_END = 12;
const ONE = 0x31;
const ZERO = 0x30;

/** The upstream said something that is no answer to a chat completion; the message is for the log. */
export class UnusableAnswer extends Error {}

/** Makes a connection, as undici asks for it. */
export type Connector = buildConnector.connector;

/** The socket below a Client, and what of the present request went over it. */
export class Wire {
  #opening: Socket | undefined;
  #socket: Socket | undefined;
  /** Requests that were begun on the present socket. */
  #served = 0;
  #reused = false;
  #heard = false;
  /** The next byte of the socket belongs to the head of an answer. */
  #atHead = false;
  #interim = 0;
  /** The beginning of a head that is not yet told apart. */
  #held = NO_BYTES;

  /** Calls the connector and takes note of the socket. */
  open(connect: Connector, options: buildConnector.Options, callback: buildConnector.Callback): unknown {
    const opening: unknown = connect(options, (...outcome) => {
      this.#opening = undefined;
      const [, socket] = outcome;
      // On failure undici leaves the second argument out, whatever its types say.
      if (socket instanceof Socket) this.#attach(socket);
      callback(...outcome);
    });
    this.#opening = opening instanceof Socket ? opening : undefined;
    return opening;
  }

  /** Ends a connection that is only being made; one that is made stays. */
  cancel(): void {
    this.#opening?.destroy(new Error('nobody waits for this connection'));
  }

  /** A request is about to be written. */
  begin(): void {
    this.#reused = this.#served > 0;
    this.#served += 1;
    this.#heard = false;
    this.#atHead = true;
    this.#interim = 0;
    this.#held = NO_BYTES;
  }

  /** Whether the request went out on a socket that had served before, and not one byte came back. */
  get unheard(): boolean {
    return this.#reused && !this.#heard;
  }

  #attach(socket: Socket): void {
    this.#socket = socket;
    this.#served = 0;
    this.#atHead = false;
    const read = socket.read.bind(socket);
    // undici takes bytes with `read` and in no other way.
    socket.read = (size?: number) => this.#filter(read(size));
  }

  /**
   * Takes interim answers out, of which undici would end the call at a `100 Continue` that nobody asked for (RFC 9110,
   * 15.2: a client must be able to parse and may ignore them). Everything else passes as it is, 101 among it: undici ends
   * the call.
   */
  #filter(chunk: Buffer | null): Buffer | null {
    if (!this.#atHead || chunk === null) return chunk;
    this.#heard = true;
    let bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = NO_BYTES;
    while (bytes.length > 0) {
      const interim = beginsInterim(bytes);
      if (interim === false) {
        this.#atHead = false;
        return bytes;
      }
      const end = interim === undefined ? -1 : bytes.indexOf(HEAD_END);
      if (end === -1) {
        if (bytes.length > MAX_INTERIM_BYTES) return this.#refuse('an interim answer without end');
        // A copy: the chunk may be a small part of a large slab.
        this.#held = Buffer.from(bytes);
        return null;
      }
      this.#interim += 1;
      if (this.#interim > MAX_INTERIM) return this.#refuse(`more than ${MAX_INTERIM} interim answers`);
      bytes = bytes.subarray(end + HEAD_END.length);
    }
    return null;
  }

  #refuse(reason: string): null {
    this.#atHead = false;
    this.#socket?.destroy(new UnusableAnswer(reason));
    return null;
  }
}

/** Whether the bytes begin an answer of 1xx other than 101; undefined while they are too few to tell. */
function beginsInterim(bytes: Buffer): boolean | undefined {
  const known = Math.min(bytes.length, VERSION.length);
  if (bytes.compare(VERSION, 0, known, 0, known) !== 0) return false;
  if (bytes.length > 9 && bytes[9] !== ONE) return false;
  if (bytes.length < STATUS_END) return undefined;
  return bytes[10] !== ZERO || bytes[11] !== ONE;
}

/** A Client for a Pool that tells who is dispatched on which wire. */
export class Connection extends Client {
  readonly #wire: Wire;
  readonly #onDispatch: (handler: Dispatcher.DispatchHandler, wire: Wire) => void;

  constructor(
    origin: string | URL,
    options: Client.Options,
    connect: Connector,
    onDispatch: (handler: Dispatcher.DispatchHandler, wire: Wire) => void,
  ) {
    const wire = new Wire();
    super(origin, {
      ...options,
      connect: (target, callback) => wire.open(connect, target, callback),
    });
    this.#wire = wire;
    this.#onDispatch = onDispatch;
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    this.#onDispatch(handler, this.#wire);
    return super.dispatch(options, handler);
  }
}
