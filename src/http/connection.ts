// One client connection: its current exchange, the pipelined requests behind it, and its end.
import type { Socket } from 'node:net';
import type { GatewayError } from '../errors.ts';
import { PollPhase } from './accept/poll-phase.ts';
import type { Exchange } from './exchange/exchange.ts';
import { keepsConnection, setKeepsConnection } from './exchange/node-internals.ts';
import { closingAnswer } from './exchange/response-writer.ts';
import { DecodeQueue } from './pieces/decode-queue.ts';

/** Maximum pipelined requests per connection. */
const MAX_WAITING = 1_000;
/** Pipelined requests that wait, over all connections. */
const MAX_PIPELINED = 10_000;
/** Maximum requests per connection. */
const MAX_REQUESTS = 1_000;

/** Time for a client to read the last response before the connection is destroyed. */
const CLOSE_MS = 1_000;

/** First interval between probe writes; it doubles up to the maximum. */
const PROBE_MS = 25;
const PROBE_MAX_MS = 5_000;
/** A client that left has answered a probe with RST by then, up to a round trip of 75 ms. */
const PROBED_MS = PROBE_MS * 4;

/** What the connections of a listener share. */
export class ListenerState {
  /** Free slots for pipelined requests: each costs a few KiB, but its sender only 30 bytes. */
  freeSlots = MAX_PIPELINED;
  readonly pollPhase = new PollPhase();
  readonly decodeQueue = new DecodeQueue();
  /** Whether there is no time to probe a client before its request is sent upstream. */
  readonly isOverloaded: () => boolean;

  constructor(isOverloaded: () => boolean) {
    this.isOverloaded = isOverloaded;
  }
}

export class Connection {
  readonly socket: Socket;
  readonly #shared: ListenerState;
  #current: Exchange | undefined;
  /** Starts the pipelined requests, in order. */
  readonly #waiting: (() => void)[] = [];
  /** Error for unparsable bytes, sent after the responses to earlier requests. */
  #rejection: GatewayError | undefined;
  /** No more requests will be read; the last response may announce it. */
  #closing = false;
  /** The current response announces `connection: close`, because nothing waited behind it when that was decided. */
  #isLast = false;
  /** The client sent FIN. */
  #hasEnded = false;
  #requests = 0;
  /** A WebSocket, or a handshake for one: its handler reads the socket. */
  #isHandedOver = false;

  constructor(socket: Socket, shared: ListenerState) {
    this.socket = socket;
    this.#shared = shared;
    socket.once('end', () => this.#onEnd());
    socket.once('close', () => this.#dropWaiting());
    // Node removes its own listener after a parse error or a CONNECT; 'close' follows.
    socket.on('error', () => undefined);
  }

  get decodeQueue(): DecodeQueue {
    return this.#shared.decodeQueue;
  }

  get current(): Exchange | undefined {
    return this.#current;
  }

  /** Set after unparsable bytes: no incomplete body can become complete any more. */
  get rejection(): GatewayError | undefined {
    return this.#rejection;
  }

  /**
   * Starts a request, now or after those before it; never if the connection ends first.
   * @param begin calls `take`, or does nothing
   */
  enter(begin: () => void): void {
    if (this.#current === undefined) {
      begin();
    } else if (this.#shared.freeSlots === 0 || this.#waiting.length >= MAX_WAITING) {
      this.socket.destroy();
    } else {
      this.#shared.freeSlots -= 1;
      this.#waiting.push(begin);
      // This request follows, so the current response is not the last one after all.
      if (this.#isLast && this.#current.response.headersSent === false) {
        this.#isLast = false;
        setKeepsConnection(this.#current.response, true);
      }
    }
  }

  /**
   * Announces the end of the connection in the current response, unless its head was sent or requests wait behind it.
   * @returns whether it does so, and did not before
   */
  announceEnd(): boolean {
    const { response } = this.#current ?? {};
    if (response === undefined || response.headersSent || this.#waiting.length > 0) return false;
    if (!keepsConnection(response)) return false;
    setKeepsConnection(response, false);
    this.#isLast = true;
    return true;
  }

  take(exchange: Exchange): void {
    this.#current = exchange;
    exchange.connection = this;
    this.#requests += 1;
    // Node's own limit would answer the pipelined requests behind it, without a body.
    if (this.#requests >= MAX_REQUESTS) setKeepsConnection(exchange.response, false);
    // While it waited, the client sent FIN within its body. After a parse error it gets the rejection instead.
    if (this.#hasEnded && this.#rejection === undefined && !exchange.request.complete) this.socket.destroy();
  }

  /**
   * Calls back after all data received so far was read. After a FIN the client is probed first: if it has left, the connection is
   * closed by then and its exchange stopped.
   */
  whenRead(callback: () => void): void {
    const { socket } = this;
    const current = this.#current;
    const proceed = () => {
      const isEnding = socket.destroyed && current !== undefined && this.#current === current;
      // Node reports the end of the response some ticks after that of the socket; the exchange is stopped then.
      if (isEnding) current.response.once('close', callback);
      else callback();
    };
    this.#shared.pollPhase.after(() => {
      // HTTP/1.0 has no 1xx to probe with.
      const isProbed = this.#hasEnded && !this.#isHandedOver && current?.request.httpVersionMinor !== 0;
      if (isProbed && !socket.destroyed) setTimeout(proceed, PROBED_MS);
      else proceed();
    });
  }

  /** The response is complete or cut: start the next pipelined request. */
  leave(): void {
    this.#current = undefined;
    this.#isLast = false;
    // Waiting requests could never be answered.
    if (!this.socket.writable) this.#dropWaiting();
    const next = this.#waiting.shift();
    if (next !== undefined) {
      this.#shared.freeSlots += 1;
      next();
    } else if (this.#rejection !== undefined) {
      this.#sendRejection(this.#rejection);
    } else if (this.#closing) {
      this.socket.destroySoon();
    }
  }

  /**
   * Ends the connection after a parse error: earlier requests are answered in order, then `rejection` is sent.
   * @returns whether this is the first rejection, so that it is counted once
   */
  reject(rejection: GatewayError): boolean {
    if (this.#rejection !== undefined) return false;
    this.#rejection = rejection;
    if (this.#current === undefined) this.#sendRejection(rejection);
    return true;
  }

  /** From now on the handler of the handshake reads the socket and handles its end. */
  handOver(): void {
    this.#isHandedOver = true;
  }

  /** Closes after the current response; without one, a request whose head is just arriving may still be answered. */
  finish(): void {
    if (this.#closing) return;
    this.#closing = true;
    if (this.#current === undefined) {
      setTimeout(() => {
        if (this.#current === undefined) this.socket.destroy();
      }, CLOSE_MS).unref();
    } else this.announceEnd();
  }

  /** Sets the inactivity timeout of an unused connection; a used one gets it with its next request. */
  updateTimeout(ms: number): void {
    if (this.#requests === 0) this.socket.setTimeout(ms);
  }

  /** No byte moved for `timeoutMs`: closes an idle connection, and one whose client does not read. */
  onInactive(timeoutMs: number): void {
    if (this.#current !== undefined && this.socket.writableLength === 0) this.socket.setTimeout(timeoutMs);
    else this.socket.destroy();
  }

  /** FIN from the client. Within a body it means that the client left; Node does not report that for requests with `upgrade`. */
  #onEnd(): void {
    this.#hasEnded = true;
    if (this.#isHandedOver) return;
    const current = this.#current;
    const isUnanswered = current !== undefined && !current.answered;
    // A probe takes several ticks: under overload, the request could be sent upstream before its result.
    const hasLeft =
      isUnanswered &&
      (!current.request.complete || (this.#shared.isOverloaded() && !current.response.headersSent));
    if (hasLeft) this.socket.destroy();
    else this.#probe(PROBE_MS);
  }

  /**
   * After a FIN the client has either left or half-closed and still reads. Only writes can tell: before a response an interim 1xx,
   * within one a no-op of its writer. A client that left replies with RST, which only the following write reports, as Node no longer
   * watches a socket that was read to its end.
   */
  #probe(wait: number): void {
    if (this.socket.destroyed || this.#isHandedOver) return;
    const current = this.#current;
    if (current?.response.headersSent === true) current.probe?.();
    // RFC 9110, 15.2: no 1xx to HTTP/1.0.
    else if (current !== undefined && current.request.httpVersionMinor !== 0)
      current.response.writeProcessing();
    setTimeout(() => this.#probe(Math.min(wait * 2, PROBE_MAX_MS)), wait).unref();
  }

  /** Written to the socket directly, because Node creates no response after a parse error. */
  #sendRejection(rejection: GatewayError): void {
    const { socket } = this;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    socket.end(closingAnswer(rejection));
    // Not at once: with unread bytes the kernel would send RST, and the response would be lost.
    setTimeout(() => socket.destroy(), CLOSE_MS).unref();
  }

  #dropWaiting(): void {
    this.#shared.freeSlots += this.#waiting.length;
    this.#waiting.length = 0;
  }
}
