// A realtime session from the 101 to the end of its connections. It forwards the bytes of both directions unchanged, and reads their
// frames to count usage, to notice a Close, and to find frame boundaries for the gateway's own frames.
//
// Ends are forwarded as received. If one side breaks off without a Close, the other one is closed without a Close, so that its peer
// reports 1006. The gateway sends a Close only if it ends the session itself.

import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { startDeadline } from '../deadline.ts';
import type { ErrorCode, GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { SessionUsage } from '../proxy/reservation/realtime-usage.ts';
import type { UsageReads } from '../upstream/usage-reads.ts';
import type { ClientEvents } from './realtime-members.ts';
import { SessionTimers } from './session-timers.ts';
import { UnreadUsage } from './unread-usage.ts';
import { ABNORMAL, errorFrame, type SessionEnd, type Side } from './websocket/session-end.ts';
import { closeFrame, WebSocketFrameReader } from './websocket/websocket-frames.ts';

/** Time for a side to close after the other side did. */
const CLOSE_MS = 10_000;
/** The same if the gateway ends the session, or the other connection is gone. */
const CUT_MS = 1_000;

interface SessionOptions {
  readonly exchange: Exchange;
  readonly client: Socket;
  /** Bytes of the client before the upstream's 101. */
  readonly early: Buffer;
  /** Head of the 101 for the client; empty when it was sent before. */
  readonly head: string;
  readonly upstream: Duplex;
  /** In milliseconds. */
  readonly limits: { readonly idle: number; readonly lifetime: number; readonly writeStall: number };
  /** Changes what the upstream sends. Default: nothing does. */
  readonly fromUpstream?: ((bytes: Buffer) => Buffer) | undefined;
  /** Checks the client's events before they are forwarded; undefined if none is rejected. */
  readonly events: ClientEvents | undefined;
  /** Reads the text events of both sides. */
  readonly usage: SessionUsage;
  /** For the upstream of a client that disconnects during an answer. */
  readonly usageReads: Pick<UsageReads, 'begin'>;
  /** Called while the client's connection closes, before the log line is written. */
  readonly onEnd: (end: SessionEnd) => void;
}

export class Session {
  readonly #options: SessionOptions;
  readonly #fromUpstream: WebSocketFrameReader;
  readonly #fromClient: WebSocketFrameReader;
  readonly #unread: UnreadUsage;
  readonly #timers = new SessionTimers();
  #end: SessionEnd | undefined;
  /** The gateway's own Close, which it sends at the next frame boundaries. */
  #closing: { readonly code: number; readonly reason: string } | undefined;
  #isSentToClient = false;
  #isSentToUpstream = false;
  #stopStall = () => {};
  readonly #ended = Promise.withResolvers<SessionEnd>();
  #clientIsGone = false;
  #upstreamIsGone = false;
  /** Forwarded bytes of the two sides, with their framing. */
  bytesIn = 0;
  bytesOut = 0;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { usage, upstream, usageReads } = options;
    this.#fromUpstream = new WebSocketFrameReader({
      onText: (text) => usage.read(text),
      onLongText: (bytes, head) => usage.readLong(bytes, head),
      onClose: (code) => this.#onClose('upstream', code),
    });
    this.#fromClient = new WebSocketFrameReader({
      onText: (text) => usage.readInput(text),
      onLongText: (bytes, head) => usage.readLongInput(bytes, head),
      onClose: (code) => this.#onClose('client', code),
    });
    const onEnd = () => {
      if (this.#clientIsGone) this.#finish();
    };
    this.#unread = new UnreadUsage({ upstream, frames: this.#fromUpstream, usage, usageReads, onEnd });
  }

  /** @returns its end, when the client's connection is closed; the upstream's connection closes a moment later */
  run(): Promise<SessionEnd> {
    const { exchange, client, early, head, upstream, limits } = this.#options;
    client.on('data', (bytes: Buffer) => this.#receive(bytes));
    client.once('end', () => this.#clientEnded());
    client.on('drain', () => this.#drained());
    // Before the server's listener, which writes the log line.
    client.prependOnceListener('close', () => this.#clientClosed());
    const { fromUpstream: change } = this.#options;
    upstream.on('data', (bytes: Buffer) => this.#send(change === undefined ? bytes : change(bytes)));
    upstream.once('end', () => this.#upstreamEnded());
    upstream.once('close', () => this.#upstreamEnded());
    upstream.on('drain', () => client.resume());
    // 'close' follows.
    upstream.on('error', () => undefined);
    client.setNoDelay(true).setKeepAlive(true, 30_000);
    exchange.onStop(this.#onStop);
    this.#timers.after(limits.lifetime, () => this.close(1001, 'session lifetime reached', 'ok'));
    this.#timers.watchIdle(limits.idle, () => this.close(1001, 'session was idle', 'ok'));
    if (head !== '') client.write(head);
    client.resume();
    if (early.length > 0) this.#receive(early);
    if (exchange.stopReason !== undefined) this.#onStop(exchange.stopReason);
    if (client.destroyed) this.#clientClosed();
    return this.#ended.promise;
  }

  /**
   * Ends the session: sends a Close to both sides, each at a frame boundary, and closes the connections a moment later.
   * @param reason ASCII of at most 123 bytes
   * @param error sent to the client in an event before the Close, if it is between messages
   */
  close(code: number, reason: string, outcome: 'ok' | ErrorCode, error?: GatewayError): void {
    if (this.#closing !== undefined || this.#end !== undefined) return;
    this.#closing = { code, reason };
    this.#end = { by: 'gateway', code, outcome };
    this.#unread.end();
    if (error !== undefined && this.#fromUpstream.betweenMessages)
      this.#options.client.write(errorFrame(error));
    this.#sendClose();
    this.#timers.after(CUT_MS, () => this.#cut());
  }

  /** Bytes from the upstream. */
  #send(bytes: Buffer): void {
    const { client, upstream, limits } = this.#options;
    this.#timers.moved();
    if (this.#clientIsGone) {
      this.#unread.push(bytes);
      return;
    }
    let count = 0;
    if (!this.#isSentToClient) {
      count = this.#fromUpstream.push(bytes, this.#closing !== undefined);
      this.bytesOut += count;
    }
    const isTaken = count === 0 || client.write(count === bytes.length ? bytes : bytes.subarray(0, count));
    if (this.#unread.holdsClose) this.#unread.endIfReported();
    this.#sendClose();
    if (isTaken || client.destroyed) return;
    // Backpressure: the upstream waits until the client reads.
    upstream.pause();
    this.#stopStall();
    this.#stopStall = startDeadline(limits.writeStall, () => this.#cut());
  }

  #upstreamEnded(): void {
    if (this.#upstreamIsGone) return;
    this.#upstreamIsGone = true;
    this.#unread.end();
    if (this.#clientIsGone) return;
    // After the gateway's Close, the client still has to answer.
    if (this.#closing !== undefined) return;
    this.#end ??= { by: 'upstream', code: ABNORMAL, outcome: 'stream_incomplete' };
    this.#options.client.end();
    this.#timers.after(CUT_MS, () => this.#cut());
  }

  #receive(bytes: Buffer): void {
    const { events } = this.#options;
    if (events === undefined) {
      this.#take(bytes);
      return;
    }
    this.#timers.moved();
    const admitted = events.admit(bytes);
    if (admitted.length > 0) this.#take(admitted);
    if (events.rejection === undefined) return;
    const { closeCode, error } = events.rejection;
    this.close(closeCode, error.code, error.code, error);
  }

  #take(bytes: Buffer): void {
    const { client, upstream } = this.#options;
    this.#timers.moved();
    if (this.#isSentToUpstream || !upstream.writable || this.#unread.holdsClose) {
      // Wait for the client's answer to the Close.
      this.#fromClient.push(bytes);
      return;
    }
    const count = this.#fromClient.push(bytes, this.#closing !== undefined);
    this.bytesIn += count;
    if (this.#holdClose(bytes, count)) return;
    if (!upstream.write(bytes.subarray(0, count)) && this.#closing === undefined) client.pause();
    if (this.#closing === undefined) return;
    this.#sendClose();
    if (count < bytes.length) this.#take(bytes.subarray(count));
  }

  /**
   * Holds the client's Close back during an answer, until its usage is reported: the upstream would end at once and report nothing.
   * @returns whether it is held
   */
  #holdClose(bytes: Buffer, count: number): boolean {
    const at = (this.#fromClient.closeStart ?? -1) - (this.bytesIn - count);
    // A part of it may have been sent with the previous piece.
    if (!this.#fromClient.hasClosed || at < 0 || !this.#beginRead()) return false;
    this.#unread.hold(bytes.subarray(at, count));
    if (at > 0) this.#options.upstream.write(bytes.subarray(0, at));
    return true;
  }

  /** Whether the upstream would be read on for the usage of an answer. */
  get #mayRead(): boolean {
    return this.#closing === undefined && !this.#upstreamIsGone && this.#unread.isExpected;
  }

  /** @returns whether the upstream is still read although its client disconnected */
  #beginRead(): boolean {
    return this.#unread.isReading || (this.#mayRead && this.#unread.begin());
  }

  /** Sends the gateway's Close to each side once, at a frame boundary, unless the other side's Close was forwarded to it. */
  #sendClose(): void {
    const { client, upstream } = this.#options;
    const closing = this.#closing;
    if (closing === undefined) return;
    const { code, reason } = closing;
    if (!this.#isSentToClient && this.#fromUpstream.atBoundary) {
      this.#isSentToClient = true;
      if (!this.#fromUpstream.hasClosed) client.write(closeFrame(code, reason, false));
      client.resume();
    }
    if (!this.#isSentToUpstream && upstream.writable && this.#fromClient.atBoundary) {
      this.#isSentToUpstream = true;
      if (!this.#fromClient.hasClosed) upstream.write(closeFrame(code, reason, true));
    }
  }

  #onClose(by: Side, code: number): void {
    this.#end ??= { by, code, outcome: 'ok' };
    if (this.#closing === undefined) this.#timers.after(CLOSE_MS, () => this.#cut());
    else if (by === 'client' && this.#isSentToClient) this.#options.client.end();
  }

  #clientEnded(): void {
    const { client, upstream } = this.#options;
    this.#end ??= { by: 'client', code: ABNORMAL, outcome: 'client_closed' };
    if (!this.#unread.isReading && !this.#mayRead) upstream.end();
    client.end();
    this.#timers.after(CUT_MS, () => this.#cut());
  }

  #clientClosed(): void {
    const { exchange, usage, onEnd } = this.#options;
    const end = this.#end ?? { by: 'client', code: ABNORMAL, outcome: 'client_closed' };
    this.#end = end;
    this.#timers.clear();
    this.#clientIsGone = true;
    const isReadOn = this.#beginRead();
    this.#drained();
    exchange.offStop(this.#onStop);
    if (!isReadOn) usage.end();
    onEnd(end);
    // After the server has written the log line.
    if (isReadOn) setImmediate(() => exchange.markAnswered());
    else this.#finish();
  }

  /** Ends the upstream's connection and the session. */
  #finish(): void {
    const { upstream, usage } = this.#options;
    usage.end();
    upstream.end(() => upstream.destroy());
    setTimeout(() => upstream.destroy(), CUT_MS).unref();
    if (this.#end !== undefined) this.#ended.resolve(this.#end);
  }

  #drained(): void {
    this.#stopStall();
    this.#options.upstream.resume();
  }

  #cut(): void {
    const { client, upstream } = this.#options;
    client.destroy();
    // Otherwise it ends when the client's connection has closed, or with the usage of the answer.
    if (!this.#unread.isReading && !this.#mayRead) upstream.destroy();
  }

  readonly #onStop = (reason: GatewayError) => {
    switch (reason.code) {
      case 'client_closed':
        this.#cut();
        break;
      case 'draining':
        this.close(1001, 'this gateway is shutting down', reason.code, reason);
        break;
      default:
        this.close(1008, reason.code, reason.code, reason);
    }
  };
}
