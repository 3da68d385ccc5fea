// A WebSocket to the Responses API of one upstream, as a transport: each request becomes a `response.create`, and the events of its
// response a stream. It lives as long as its client's connection, so that the upstream keeps what a next response continues.
import { randomBytes } from 'node:crypto';
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { isSource } from '../../http/pieces/body-source.ts';
import { directRequest } from '../../upstream/direct-request.ts';
import { wrapConnectionError } from '../../upstream/http/transport-error.ts';
import type { Call, ResponseHeaders, Sink, UpstreamRequest } from '../../upstream/transport.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { collect } from '../realtime-dial.ts';
import { closeFrame, pongFrame, textFrame, WebSocketFrameReader } from '../websocket/websocket-frames.ts';
import { handshakeHeaders, problemOf101 } from '../websocket/websocket-handshake.ts';
import { SocketCall } from './socket-call.ts';
import { eventFacts } from './socket-events.ts';

/** Time for the upstream to answer a Close, and for the body of a rejected handshake. */
const CLOSE_MS = 1_000;
const ERROR_MS = 5_000;

const NO_BYTES: Buffer = Buffer.alloc(0);

interface UpstreamSocketOptions {
  readonly upstream: Upstream;
  /** Maximum bytes of an event. */
  readonly maxEvent: number;
  /** The upstream ended the connection between two responses. @param code of its Close; 1006 without one */
  readonly onClosed: (code: number) => void;
}

export class UpstreamSocket {
  readonly #options: UpstreamSocketOptions;
  #link: Link | undefined;
  #isRetired = false;

  constructor(options: UpstreamSocketOptions) {
    this.#options = options;
  }

  get upstream(): Upstream {
    return this.#options.upstream;
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    if (request.fresh === true) this.#link?.retire();
    const isKept = this.#link?.isUsable === true;
    if (!isKept) this.#link = new Link(this.#options, request);
    const link = this.#link;
    const call = new SocketCall(sink, messageOf(request), isKept, () => link?.aborted());
    link?.add(call);
    if (this.#isRetired) link?.retire();
    return call;
  }

  /** The client is gone: closes the connection as soon as no response is read. */
  retire(): void {
    this.#isRetired = true;
    this.#link?.retire();
  }
}

/** One connection. */
class Link {
  readonly #options: UpstreamSocketOptions;
  readonly #reader: WebSocketFrameReader;
  readonly #key = randomBytes(16).toString('base64');
  #request: ClientRequest | undefined;
  #socket: Duplex | undefined;
  /** Of the 101 response; names the connection in the log. */
  #headers: ResponseHeaders = {};
  /** Those without their last event, in the order in which they were sent. */
  #calls: SocketCall[] = [];
  #closeCode = 1006;
  #isRetired = false;
  #isClosed = false;

  constructor(options: UpstreamSocketOptions, request: UpstreamRequest) {
    this.#options = options;
    this.#reader = new WebSocketFrameReader(
      {
        onText: (text) => this.#onText(text),
        onTooLong: () => this.#break('an event is larger than max_answer.frame'),
        onBinary: () => this.#break('a binary message'),
        onPing: (payload) => this.#socket?.write(pongFrame(payload, true)),
        onClose: (code) => this.#onClose(code),
      },
      options.maxEvent,
    );
    // Nothing is reported before `send` has returned.
    queueMicrotask(() => this.#dial(request));
  }

  /** Whether another response may begin here. */
  get isUsable(): boolean {
    return !this.#isClosed && !this.#isRetired;
  }

  add(call: SocketCall): void {
    call.link = this;
    this.#calls.push(call);
    if (this.#socket !== undefined) queueMicrotask(() => this.#send(call));
  }

  /** One response was abandoned. An upstream cannot be told, so without others the connection is closed. */
  aborted(): void {
    if (this.#calls.every(({ isOver }) => isOver)) this.#close();
  }

  /** No other response begins here: closes the connection when the last one has ended. */
  retire(): void {
    this.#isRetired = true;
    if (this.#calls.some(({ isOver }) => !isOver) || this.#isClosed) return;
    const socket = this.#socket;
    if (socket === undefined || this.#calls.length > 0) this.#close();
    else {
      this.#isClosed = true;
      socket.end(closeFrame(1000, '', true));
      setTimeout(() => socket.destroy(), CLOSE_MS).unref();
    }
  }

  /** Backpressure: one client reads all of them. */
  pace(): void {
    if (this.#calls.some(({ isPaused }) => isPaused)) this.#socket?.pause();
    else this.#socket?.resume();
  }

  #dial({ path, headers, common }: UpstreamRequest): void {
    if (this.#isClosed) return;
    const { upstream } = this.#options;
    const { 'content-type': _, accept: __, ...own } = headers;
    const all = { ...common, ...own, ...handshakeHeaders(this.#key, []) };
    const { connect } = upstream.config.timeouts;
    try {
      this.#request = directRequest(upstream, { method: 'GET', path, headers: all }, connect)
        .once('upgrade', (response, socket, head) => this.#onUpgrade(response, socket, head))
        .once('response', (response) => void this.#onResponse(response))
        .on('error', (cause) => this.#fail(wrapConnectionError(cause)));
      this.#request.end();
    } catch (cause) {
      this.#fail(wrapConnectionError(cause));
    }
  }

  #onUpgrade({ headers }: IncomingMessage, socket: Duplex, head: Buffer): void {
    // 'close' follows.
    socket.on('error', () => undefined);
    const problem = problemOf101(headers, this.#key, []);
    if (this.#isClosed || problem !== undefined) {
      socket.destroy();
      this.#fail(new GatewayError('upstream_invalid_response', undefined, { cause: problem }));
      return;
    }
    this.#socket = socket;
    const { 'x-request-id': id } = headers;
    if (id !== undefined) this.#headers = { 'x-request-id': id };
    socket.on('data', (bytes: Buffer) => this.#onData(bytes));
    socket.once('end', () => this.#onEnd()).once('close', () => this.#onEnd());
    if (head.length > 0) socket.unshift(head);
    for (const call of [...this.#calls]) this.#send(call);
  }

  /** The handshake was rejected. */
  async #onResponse(response: IncomingMessage): Promise<void> {
    const { statusCode = 0, headers } = response;
    const late = () => new GatewayError('upstream_timeout');
    const body = await withDeadline(collect(response), ERROR_MS, late).catch(() => NO_BYTES);
    const calls = this.#close();
    // No status of a path without WebSockets says anything about the request.
    const cause = `the upstream rejects WebSockets with ${statusCode}: leave out its websocket`;
    const error = new GatewayError('upstream_invalid_response', undefined, { cause });
    for (const call of calls) {
      if ([400, 404, 405, 426, 501].includes(statusCode) || statusCode < 400) call.failed(error, false);
      else call.answer(statusCode, headers, body);
    }
  }

  #send(call: SocketCall): void {
    // It never reaches the upstream, so no event will be for it.
    if (call.isOver) this.#calls = this.#calls.filter((each) => each !== call);
    if (call.isOver || this.#isClosed) return;
    this.#socket?.write(textFrame(call.text, true));
    call.sent();
    this.pace();
  }

  #onData(bytes: Buffer): void {
    this.#reader.push(bytes);
    if (this.#reader.isLost) this.#break('no sequence of WebSocket frames');
  }

  #onText(text: Buffer): void {
    const facts = eventFacts(text);
    const call = this.#callOf(facts.streamId);
    if (call === undefined) return;
    if (facts.isLast) this.#calls = this.#calls.filter((each) => each !== call);
    call.event(text, facts, this.#headers);
    if (!facts.isLast) return;
    call.isPaused = false;
    this.pace();
    if (this.#isRetired) this.retire();
    else if (this.#calls.length > 0) this.aborted();
  }

  /** An upstream without lanes answers in the order of its requests. An event of a lane that has ended belongs to no other. */
  #callOf(streamId: string | undefined): SocketCall | undefined {
    const call = this.#calls.find((each) => each.streamId === streamId);
    return call ?? (streamId === undefined ? this.#calls[0] : undefined);
  }

  #onClose(code: number): void {
    this.#closeCode = code;
    this.#socket?.end(closeFrame(code, '', true));
    this.#onEnd();
  }

  #onEnd(): void {
    if (this.#isClosed) return;
    const isIdle = this.#calls.length === 0;
    this.#fail(new GatewayError('upstream_unreachable', undefined, { cause: `close ${this.#closeCode}` }));
    if (isIdle) this.#options.onClosed(this.#closeCode);
  }

  /** The upstream does not speak the protocol. */
  #break(cause: string): void {
    this.#fail(new GatewayError('upstream_invalid_response', undefined, { cause }));
  }

  #fail(error: GatewayError): void {
    if (this.#isClosed) return;
    const isSent = this.#socket !== undefined;
    for (const call of this.#close()) call.failed(error, isSent);
  }

  /** @returns the responses that had not ended */
  #close(): readonly SocketCall[] {
    const calls = this.#calls;
    this.#calls = [];
    this.#isClosed = true;
    this.#request?.destroy();
    const socket = this.#socket;
    if (socket?.writableEnded === true) setTimeout(() => socket.destroy(), CLOSE_MS).unref();
    else socket?.destroy();
    return calls;
  }
}

/** The body as it is: it was a `response.create` of the client. */
function messageOf({ body }: UpstreamRequest): Buffer {
  return isSource(body) ? (body.toBuffer?.() ?? NO_BYTES) : body;
}
