// One accepted connection of the scripted upstream: reads its requests strictly, records them and how the socket
// ended, and runs one script after the other. Which script answers which request is the caller's to say.
import type { Socket } from 'node:net';
import { ByteLog } from './byte-log.ts';
import {
  type Bytes,
  Conversation,
  type Line,
  LineGone,
  type Script,
  type Step,
  toBuffer,
} from './conversation.ts';
import { bodyFraming, type Field, type Framing, fieldValues, type Head, MessageReader } from './http1.ts';

/** How a socket ended: who ended it first, and with FIN or RST; `at` is `performance.now()`. */
export interface SocketEnd {
  readonly by: 'peer' | 'upstream';
  readonly how: 'fin' | 'reset';
  readonly at: number;
}

export interface RecordedRequest {
  /** Counted over all connections in order of arrival of the head, from 0. */
  readonly index: number;
  /** Number of its connection, from 0; and its own number on that connection, from 0. */
  readonly connection: number;
  readonly sequence: number;
  readonly method: string;
  readonly target: string;
  /** The request line and all fields as on the wire. */
  readonly rawHead: Buffer;
  readonly headers: readonly Field[];
  readonly framing: Framing;
  /** Its head came while the answer to the one before on the same connection was not finished. */
  readonly pipelined: boolean;
  /** The body so far, without chunk framing. */
  readonly body: Buffer;
  readonly complete: boolean;
  readonly headAt: number;
  /** Bytes of the answer that the kernel has taken. */
  readonly bytesSent: number;
  /** Resolves when the request is there to its last byte. */
  readonly received: Promise<void>;
  /** Resolves when the script has come to its end (`done`), or the socket was gone before (`cut`). */
  readonly answered: Promise<'done' | 'cut'>;
  /** Resolves when the socket ends. */
  readonly closed: Promise<SocketEnd>;
  /** The one value of a field; undefined when absent, an error when it came twice. */
  header(name: string): string | undefined;
  json(): unknown;
}

/** What a connection asks of the upstream that owns it. */
export interface ConnectionOwner {
  nextIndex(): number;
  /** A head has arrived; the script that answers it. */
  onRequest(request: RecordedRequest): Script;
  onViolation(reason: string): void;
  onScriptError(error: unknown): void;
  onAnswering(change: 1 | -1): void;
}

interface Turn {
  readonly request: Recorded;
  readonly script: Script;
}

export class UpstreamConnection {
  readonly number: number;
  readonly closed: Promise<SocketEnd>;
  /** All bytes that came in, as they came (after TLS). */
  readonly received = new ByteLog();
  readonly requests: RecordedRequest[] = [];
  readonly #socket: Socket;
  readonly #raw: Socket;
  readonly #owner: ConnectionOwner;
  readonly #reader: MessageReader;
  readonly #gone = new AbortController();
  readonly #ended = Promise.withResolvers<SocketEnd>();
  readonly #turns: Turn[] = [];
  #running = false;
  #current: Recorded | undefined;

  /** @param raw the TCP socket under `socket` when that is TLS, else the same */
  constructor(number: number, socket: Socket, raw: Socket, owner: ConnectionOwner, mute: boolean) {
    this.number = number;
    this.#socket = socket;
    this.#raw = raw;
    this.#owner = owner;
    this.closed = this.#ended.promise;
    this.#reader = new MessageReader({
      head: (head) => this.#onHead(head),
      body: (bytes) => this.#current?.log.push(bytes),
      end: () => this.#onEnd(),
      fault: (reason) => {
        owner.onViolation(`connection ${number}: ${reason}`);
        this.reset();
      },
    });
    raw.setNoDelay(true);
    socket.on('data', (bytes: Buffer) => {
      this.received.push(bytes);
      if (!mute) this.#reader.push(bytes);
    });
    socket.on('end', () => {
      this.#end('peer', 'fin');
      socket.destroy();
    });
    // ECONNRESET and EPIPE: the peer reset. Anything else (a failed TLS handshake) ends the socket just the same.
    socket.on('error', () => this.#end('peer', 'reset'));
    if (raw !== socket) raw.on('error', () => this.#end('peer', 'reset'));
    socket.on('close', () => this.#end('peer', 'reset'));
  }

  /** Open, and with no request begun or unanswered. */
  get idle(): boolean {
    return this.open && this.#reader.idle && this.#current === undefined && !this.#running;
  }

  get open(): boolean {
    return !this.#gone.signal.aborted;
  }

  get bytesSent(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength;
  }

  /** Bytes that belong to no answer. */
  send(bytes: Bytes): Promise<void> {
    return this.#write(toBuffer(bytes));
  }

  close(): void {
    this.#end('upstream', 'fin');
    this.#socket.end();
    // The peer may keep its half open for ever: what it still sends is of no interest.
    this.#socket.resume();
  }

  reset(): void {
    this.#end('upstream', 'reset');
    this.#raw.resetAndDestroy();
    this.#socket.destroy();
  }

  destroy(): void {
    this.#end('upstream', 'fin');
    this.#socket.destroy();
    this.#raw.destroy();
  }

  #write(bytes: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      if (!this.open) return reject(new LineGone());
      this.#socket.write(bytes, (error) => (error ? reject(new LineGone()) : resolve()));
    });
  }

  #end(by: SocketEnd['by'], how: SocketEnd['how']): void {
    if (!this.open) return;
    this.#ended.resolve({ by, how, at: performance.now() });
    this.#gone.abort();
  }

  #onHead(head: Head): { framing: Framing; length: number } | string {
    const line = /^([A-Z]+) (\S+) HTTP\/1\.1$/.exec(head.line);
    const [, method, target] = line ?? [];
    if (method === undefined || target === undefined)
      return `not a request line: ${JSON.stringify(head.line)}`;
    if (fieldValues(head.fields, 'host').length !== 1) return 'not exactly one Host field';
    const framing = bodyFraming(head.fields, 'none');
    if (typeof framing === 'string') return framing;
    const request = new Recorded(this, head, method, target, framing.framing, {
      index: this.#owner.nextIndex(),
      sequence: this.requests.length,
      pipelined: this.#running || this.#turns.length > 0,
    });
    this.#current = request;
    this.requests.push(request);
    const script = this.#owner.onRequest(request);
    this.#turns.push({ request, script });
    if (isEarly(script)) void this.#run();
    return framing;
  }

  #onEnd(): void {
    const request = this.#current;
    this.#current = undefined;
    if (request === undefined) return;
    request.complete = true;
    request.whole.resolve();
    void this.#run();
  }

  async #run(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    for (let turn = this.#turns[0]; turn !== undefined; turn = this.#turns[0]) {
      if (!isEarly(turn.script) && !turn.request.complete) break;
      this.#turns.shift();
      this.#owner.onAnswering(1);
      turn.request.sentBefore = this.bytesSent;
      const how = await this.#perform(turn);
      turn.request.sentAfter = this.bytesSent;
      this.#owner.onAnswering(-1);
      turn.request.answer.resolve(how);
    }
    this.#running = false;
  }

  async #perform(turn: Turn): Promise<'done' | 'cut'> {
    const line: Line = {
      write: (bytes) => this.#write(bytes),
      fin: () => this.close(),
      reset: () => this.reset(),
      pauseReading: () => this.#socket.pause(),
      resumeReading: () => this.#socket.resume(),
      gone: this.#gone.signal,
    };
    const conversation = new Conversation(turn.request, line);
    try {
      for (const step of stepsOf(turn.script)) {
        if (!this.open) return 'cut';
        await step(conversation);
      }
      return 'done';
    } catch (error) {
      if (!(error instanceof LineGone)) {
        this.#owner.onScriptError(error);
        this.reset();
      }
      return 'cut';
    }
  }
}

/** The writable side of a RecordedRequest. */
class Recorded implements RecordedRequest {
  readonly index: number;
  readonly connection: number;
  readonly sequence: number;
  readonly method: string;
  readonly target: string;
  readonly rawHead: Buffer;
  readonly headers: readonly Field[];
  readonly framing: Framing;
  readonly pipelined: boolean;
  readonly headAt = performance.now();
  readonly closed: Promise<SocketEnd>;
  readonly received: Promise<void>;
  readonly answered: Promise<'done' | 'cut'>;
  readonly log = new ByteLog();
  readonly whole = Promise.withResolvers<void>();
  readonly answer = Promise.withResolvers<'done' | 'cut'>();
  readonly #connection: UpstreamConnection;
  complete = false;
  sentBefore: number | undefined;
  sentAfter: number | undefined;

  constructor(
    connection: UpstreamConnection,
    head: Head,
    method: string,
    target: string,
    framing: Framing,
    place: { index: number; sequence: number; pipelined: boolean },
  ) {
    this.#connection = connection;
    this.connection = connection.number;
    this.index = place.index;
    this.sequence = place.sequence;
    this.pipelined = place.pipelined;
    this.method = method;
    this.target = target;
    this.rawHead = head.raw;
    this.headers = head.fields;
    this.framing = framing;
    this.closed = connection.closed;
    this.received = this.whole.promise;
    this.answered = this.answer.promise;
  }

  get body(): Buffer {
    return this.log.bytes;
  }

  get bytesSent(): number {
    return this.sentBefore === undefined
      ? 0
      : (this.sentAfter ?? this.#connection.bytesSent) - this.sentBefore;
  }

  header(name: string): string | undefined {
    const values = fieldValues(this.headers, name);
    if (values.length > 1) throw new Error(`${name} came ${values.length} times: ${values.join(' | ')}`);
    return values[0];
  }

  json(): unknown {
    return JSON.parse(this.body.toString('utf8'));
  }
}

function isEarly(script: Script): script is { readonly early: readonly Step[] } {
  return typeof script === 'object' && 'early' in script;
}

function stepsOf(script: Script): readonly Step[] {
  if (typeof script === 'function') return [script];
  return isEarly(script) ? script.early : script;
}
