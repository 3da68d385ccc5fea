// An HTTP request that exists in this process only, made of one event of a WebSocket, and its answer as messages. So each response has
// the steps of any request, and this file knows none of them.
import { IncomingMessage, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { responseFor } from '../../http/exchange/node-internals.ts';
import { dataOf, readFields } from '../../wire/sse-fields.ts';
import { SseFrameScanner } from '../../wire/sse-frames.ts';
import { asMessage, errorAnswer } from './socket-events.ts';

const HEAD_END = '\r\n\r\n';
/** Headers that belong to the handshake or to the connection, and other forms of the key. */
const OWN =
  /^(?:sec-websocket-|connection$|upgrade$|content-|transfer-encoding$|expect$|x-request-id$|(?:x-)?api-key$)/;
const PIECE_BYTES = 64 * 1024;
/** Headers of an error that its event repeats. */
const REPEATED = ['retry-after', 'retry-after-ms'] as const;

type Done = (error?: Error | null) => void;

interface InnerRequestOptions {
  readonly outer: Exchange;
  /** Value of the Authorization header. */
  readonly authorization: string;
  readonly body: Buffer;
  /** The lane of the event. */
  readonly streamId: string | undefined;
  /** Writes messages to the client. @param done called when the client may get more */
  readonly write: (messages: readonly (Buffer | string)[], done: () => void) => void;
}

export class InnerRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly #socket: AnswerSocket;
  readonly #options: InnerRequestOptions;
  #head = '';
  #isHeadWhole = false;
  #status = 0;
  /** Set for an answer with events. */
  #scanner: SseFrameScanner | undefined;
  #body: Buffer[] = [];

  constructor(options: InnerRequestOptions) {
    this.#options = options;
    this.#socket = new AnswerSocket(
      (bytes, done) => this.#take(bytes, done),
      (done) => this.#end(done),
    );
    this.#socket.on('error', () => undefined);
    this.request = this.#makeRequest();
    this.response = responseFor(this.request);
    this.response.on('error', () => undefined);
    this.response.once('finish', () => this.#socket.end());
    // As Node's server does for its connections.
    this.#socket.on('drain', () => this.response.emit('drain'));
  }

  /** The client is gone. */
  destroy(): void {
    this.#socket.destroy();
  }

  /** Ends an answer that was cut, after what was written has been passed on. */
  cut(): void {
    this.#socket.destroySoon();
  }

  #makeRequest(): IncomingMessage {
    const { outer, authorization, body } = this.#options;
    const request = new EventMessage(this.#socket, body);
    const kept = Object.entries(outer.request.headers).filter(([name]) => !OWN.test(name));
    request.headers = {
      ...Object.fromEntries(kept),
      authorization,
      'content-type': 'application/json',
      'content-length': String(body.length),
    };
    request.method = 'POST';
    request.url = outer.target;
    // In HTTP/1.0 the answer has no chunks.
    request.httpVersion = '1.0';
    request.httpVersionMajor = 1;
    request.httpVersionMinor = 0;
    request.complete = true;
    return request;
  }

  #take(bytes: Buffer, done: () => void): void {
    let rest = bytes;
    if (!this.#isHeadWhole) {
      this.#head += bytes.toString('latin1');
      const end = this.#head.indexOf(HEAD_END);
      if (end === -1) {
        done();
        return;
      }
      rest = Buffer.from(this.#head.slice(end + HEAD_END.length), 'latin1');
      this.#head = this.#head.slice(0, end).toLowerCase();
      this.#isHeadWhole = true;
      this.#status = Number(this.#head.slice(9, 12));
      const isStream = this.#status === 200 && this.#head.includes('\r\ncontent-type: text/event-stream');
      if (isStream) this.#scanner = new SseFrameScanner(Number.POSITIVE_INFINITY);
    }
    if (this.#scanner === undefined) {
      this.#body.push(rest);
      done();
    } else this.#pass(this.#scanner, rest, done);
  }

  #pass(scanner: SseFrameScanner, piece: Buffer, done: () => void): void {
    const { bytes, ends } = scanner.push(piece);
    const messages: (Buffer | string)[] = [];
    let start = 0;
    for (const end of ends) {
      const data = dataOf(bytes, readFields(bytes, start, end).values);
      start = end;
      if (data === null || data.isDone) continue;
      messages.push(asMessage(data.bytes.subarray(data.start, data.end), this.#options.streamId));
    }
    if (messages.length === 0) done();
    else this.#options.write(messages, done);
  }

  #end(done: Done): void {
    const isError = this.#isHeadWhole && this.#scanner === undefined;
    if (!isError) {
      done();
      return;
    }
    const headers = REPEATED.flatMap((name) => {
      const value = new RegExp(`\r\n${name}: ([^\r]*)`).exec(this.#head)?.[1];
      return value === undefined ? [] : [[name, value]];
    });
    const text = Buffer.concat(this.#body).toString();
    const event = errorAnswer(this.#status, text, Object.fromEntries(headers), this.#options.streamId);
    this.#options.write([event], done);
  }
}

/** A request whose body comes in pieces as from a connection, because large bodies are paced by their pieces. */
class EventMessage extends IncomingMessage {
  #rest: Buffer;

  constructor(socket: Socket, body: Buffer) {
    super(socket);
    this.#rest = body;
  }

  override _read(): void {
    this.push(this.#rest.subarray(0, PIECE_BYTES));
    this.#rest = this.#rest.subarray(PIECE_BYTES);
    if (this.#rest.length === 0) this.push(null);
  }
}

/** The connection below an answer: what is written to it is handed over, and nothing is read from it. */
class AnswerSocket extends Socket {
  readonly #onBytes: (bytes: Buffer, done: Done) => void;
  readonly #onEnd: (done: Done) => void;

  constructor(onBytes: (bytes: Buffer, done: Done) => void, onEnd: (done: Done) => void) {
    super();
    this.#onBytes = onBytes;
    this.#onEnd = onEnd;
  }

  override _read(): void {}

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: Done): void {
    this.#onBytes(typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk, done);
  }

  override _writev(
    chunks: readonly { chunk: Buffer | string; encoding: BufferEncoding }[],
    done: Done,
  ): void {
    const pieces = chunks.map(({ chunk, encoding }) =>
      typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk,
    );
    this.#onBytes(Buffer.concat(pieces), done);
  }

  override _final(done: Done): void {
    this.#onEnd((error) => {
      done(error);
      // The response is over as soon as its socket is closed.
      this.destroy();
    });
  }
}
