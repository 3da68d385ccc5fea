// One client connection: at most one exchange at a time, the requests that wait behind it, and how it ends. It opens no
// exchange itself and does not listen.
import type { Socket } from 'node:net';
import type { GatewayError } from '../errors.ts';
import { afterPoll } from './accept/poll-phase.ts';
import type { Exchange } from './exchange/exchange.ts';
import { closingAnswer } from './exchange/response-writer.ts';

/** Requests that a client may have sent on one connection before it has read their answers. */
const MAX_WAITING = 1_000;
/** Requests answered on one connection. */
const MAX_REQUESTS = 1_000;

/** How long a client may take to read the last words of a connection. */
const FAREWELL_MS = 1_000;

/** From one write that looks for a client to the next, doubling. */
const PROBE_MS = 25;
const PROBE_MOST_MS = 5_000;
/** A client that left has answered a probe with RST by then, if it is within 75 ms of here. */
const PROBED_MS = PROBE_MS * 4;

/** Places for waiting requests, shared by all connections: each costs a few KiB that its sender paid with 30 bytes. */
export interface WaitingRoom {
  places: number;
}

export class Connection {
  readonly socket: Socket;
  readonly #room: WaitingRoom;
  readonly #isOverloaded: () => boolean;
  #current: Exchange | undefined;
  /** What begins the requests that arrived before the one in front of them was answered, in order. */
  readonly #waiting: (() => void)[] = [];
  /** The answer to bytes that are no request, when those before them are answered. */
  #refusal: GatewayError | undefined;
  #closing = false;
  /** The answer under way says that it is the last, because nothing waited behind it when that was decided. */
  #isLast = false;
  /** The client sent FIN: nothing more will be read. */
  #hasEnded = false;
  #requests = 0;
  /** It is a WebSocket, or asks to be one: what comes on it is not read here. */
  #isHandedOver = false;

  /** @param isOverloaded whether there is no time to probe a client before its request is sent to an upstream */
  constructor(socket: Socket, room: WaitingRoom, isOverloaded: () => boolean) {
    this.socket = socket;
    this.#room = room;
    this.#isOverloaded = isOverloaded;
    socket.once('end', () => this.#onEnd());
    socket.once('close', () => this.#dropWaiting());
    // Node takes its own listener away once it has reported a fault or a CONNECT; 'close' follows and tells enough.
    socket.on('error', () => undefined);
  }

  get current(): Exchange | undefined {
    return this.#current;
  }

  /** No more requests will be read: the one that is answered last may say so. */
  get closing(): boolean {
    return this.#closing;
  }

  /** Set when what came was no request: nothing more is understood, so that no body becomes complete any more. */
  get refusal(): GatewayError | undefined {
    return this.#refusal;
  }

  /**
   * Begins a request now or when those in front of it are answered; not at all if the connection ends before.
   * @param begin calls `take`, or does nothing
   */
  enter(begin: () => void): void {
    if (this.#current === undefined) {
      begin();
    } else if (this.#room.places === 0 || this.#waiting.length >= MAX_WAITING) {
      this.socket.destroy();
    } else {
      this.#room.places -= 1;
      this.#waiting.push(begin);
      // Somebody is behind it after all, and is to be answered too.
      if (this.#isLast && this.#current.response.headersSent === false) {
        this.#isLast = false;
        this.#current.response.shouldKeepAlive = true;
      }
    }
  }

  /** The connection is to end soon: the answer under way says so, if it has not begun and nothing waits behind it. */
  announceEnd(): void {
    const { response } = this.#current ?? {};
    if (response === undefined || response.headersSent || this.#waiting.length > 0) return;
    if (!response.shouldKeepAlive) return;
    response.shouldKeepAlive = false;
    this.#isLast = true;
  }

  take(exchange: Exchange): void {
    this.#current = exchange;
    exchange.connection = this;
    this.#requests += 1;
    // Node's own limit would answer what was pipelined behind it, without a body.
    if (this.#requests >= MAX_REQUESTS) exchange.response.shouldKeepAlive = false;
    // It waited its turn, and meanwhile the client ended in the middle of its body. Where the parser said so, it is told.
    if (this.#hasEnded && this.#refusal === undefined && !exchange.request.complete) this.socket.destroy();
  }

  get isOverloaded(): boolean {
    return this.#isOverloaded();
  }

  /**
   * Calls back when everything that its client has sent so far was read. If it sent FIN, it is probed first: a client that left
   * has closed the connection by then, and its exchange is stopped.
   */
  whenRead(callback: () => void): void {
    const { socket } = this;
    const current = this.#current;
    const proceed = () => {
      const isEnding = socket.destroyed && current !== undefined && this.#current === current;
      // Its exchange is stopped then, which Node tells some ticks after the end of the socket.
      if (isEnding) current.response.once('close', callback);
      else callback();
    };
    afterPoll(() => {
      // HTTP/1.0 has no 1xx to probe with.
      const isProbed = this.#hasEnded && !this.#isHandedOver && current?.request.httpVersionMinor !== 0;
      if (isProbed && !socket.destroyed) setTimeout(proceed, PROBED_MS);
      else proceed();
    });
  }

  /** The answer is complete or cut: on to what waits behind it. */
  leave(): void {
    this.#current = undefined;
    this.#isLast = false;
    // Ended by either side: what waits could be worked on but never be answered.
    if (!this.socket.writable) this.#dropWaiting();
    const next = this.#waiting.shift();
    if (next !== undefined) {
      this.#room.places += 1;
      next();
    } else if (this.#refusal !== undefined) {
      this.#say(this.#refusal);
    } else if (this.#closing) {
      this.socket.destroySoon();
    }
  }

  /**
   * The parser cannot go on. What was asked before is still answered, in order; then this, and then the connection ends.
   * @returns whether this is the answer now, so that it is counted once
   */
  refuse(rejection: GatewayError): boolean {
    if (this.#refusal !== undefined) return false;
    this.#refusal = rejection;
    if (this.#current === undefined) this.#say(rejection);
    return true;
  }

  /** From now on whoever took the handshake reads it, and sees its end. */
  handOver(): void {
    this.#isHandedOver = true;
  }

  /** Ends after the answer under way; without one, a request whose head is just arriving gets a moment to be answered. */
  finish(): void {
    if (this.#closing) return;
    this.#closing = true;
    if (this.#current === undefined) {
      setTimeout(() => {
        if (this.#current === undefined) this.socket.destroy();
      }, FAREWELL_MS).unref();
    } else this.announceEnd();
  }

  /** A connection that has not been used yet gets another patience; a used one gets it with its next request. */
  renewPatience(ms: number): void {
    if (this.#requests === 0) this.socket.setTimeout(ms);
  }

  /** No byte moved for `patience` milliseconds: an idle connection is closed, and so is one whose answer is not read. */
  onInactive(patience: number): void {
    if (this.#current !== undefined && this.socket.writableLength === 0) this.socket.setTimeout(patience);
    else this.socket.destroy();
  }

  /** The client sent FIN. In the middle of a body that means that it left; Node does not say so of one with `upgrade`. */
  #onEnd(): void {
    this.#hasEnded = true;
    if (this.#isHandedOver) return;
    const current = this.#current;
    const isUnanswered = current !== undefined && !current.answered;
    // A probe takes several ticks: under overload, its request could be sent to an upstream before the answer is known.
    const hasLeft =
      isUnanswered && (!current.request.complete || (this.#isOverloaded() && !current.response.headersSent));
    if (hasLeft) this.socket.destroy();
    else this.#probe(PROBE_MS);
  }

  /**
   * The client either left or half-closed and still reads. Only writes can tell, so send the one thing that
   * HTTP allows before an answer; within an answer, its writer knows what may stand. A client that left replies with RST,
   * which the write after it reports, as a socket that has been read to its end is not watched any more.
   */
  #probe(wait: number): void {
    if (this.socket.destroyed || this.#isHandedOver) return;
    const current = this.#current;
    if (current?.response.headersSent === true) current.probe?.();
    // RFC 9110, 15.2: no 1xx to HTTP/1.0.
    else if (current !== undefined && current.request.httpVersionMinor !== 0)
      current.response.writeProcessing();
    setTimeout(() => this.#probe(Math.min(wait * 2, PROBE_MOST_MS)), wait).unref();
  }

  /** Written past Node's responses, of which there is none for what llhttp refused. */
  #say(rejection: GatewayError): void {
    const { socket } = this;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    socket.end(closingAnswer(rejection));
    // Not at once: over bytes that were not read the kernel would send RST, and the answer would be lost.
    setTimeout(() => socket.destroy(), FAREWELL_MS).unref();
  }

  #dropWaiting(): void {
    this.#room.places += this.#waiting.length;
    this.#waiting.length = 0;
  }
}
