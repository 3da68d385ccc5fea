// A realtime session from the 101 to the end of its connections: bytes go through as they are, in both directions, while
// frames are read along to count, to notice a Close, and to know where one of the gateway's own may stand.
//
// Ends are passed on as they came. A side that breaks off without a Close is broken off on the other side without one, so
// that its peer reads 1006; the gateway itself says Close only when it is the one that ends the session.

import type { Socket } from 'node:net';
import { startDeadline } from '../deadline.ts';
import { type ErrorCode, errorBody, GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { MAX_USAGE_READ_BYTES, type UsageRead, type UsageReads } from '../upstream/usage-reads.ts';
import type { Line, LineOwner, UpstreamEnd } from './client-line.ts';
import type { ClientEvents } from './realtime-members.ts';
import { closeFrame, textFrame, WebSocketFrameReader } from './websocket-frames.ts';

/** What a side has for its part of the end, after the other side's. */
const CLOSE_MS = 10_000;
/** The same where the gateway ends the session, and for a connection whose other half is gone. */
const FAREWELL_MS = 1_000;
/** RFC 6455, 7.4.1: what no frame says. */
const ABNORMAL = 1006;

interface SessionOptions {
  readonly exchange: Exchange;
  readonly client: Socket;
  /** What came of the client's before the upstream's 101. */
  readonly early: Buffer;
  readonly line: Line;
  readonly upstream: UpstreamEnd;
  /** In milliseconds. */
  readonly limits: { readonly idle: number; readonly lifetime: number; readonly writeStall: number };
  /** Reads the client's events before they are passed on; undefined where none is refused. */
  readonly events: ClientEvents | undefined;
  /** Reads the events of both sides that are text. */
  readonly usage: SessionReader;
  /** For the upstream of a client that leaves while an answer is under way. */
  readonly usageReads: Pick<UsageReads, 'begin'>;
  /** Called while the client's connection closes, before the log hears of it. */
  readonly onEnd: (end: SessionEnd) => void;
}

/** What the session tells of its events. */
interface SessionReader {
  /** What an answer used is still to be reported. */
  readonly awaitsUsage: boolean;
  read(text: Buffer): void;
  readInput(text: Buffer): void;
  readLong(bytes: number, head: Buffer): void;
  readLongInput(bytes: number, head: Buffer): void;
  /** Nothing more is read. */
  end(): void;
}

type Side = 'client' | 'upstream' | 'gateway';

export interface SessionEnd {
  readonly by: Side;
  /** As in the first Close, 1005 for one without a code, 1006 where there was none. */
  readonly code: number;
  readonly outcome: 'ok' | ErrorCode;
}

export class Session implements LineOwner {
  readonly #options: SessionOptions;
  readonly #fromUpstream: WebSocketFrameReader;
  readonly #fromClient: WebSocketFrameReader;
  readonly #timers = new Set<NodeJS.Timeout>();
  #hasHead = false;
  /** Nothing more goes to the upstream. */
  #isLineEnded = false;
  #end: SessionEnd | undefined;
  /** The gateway's own Close, from when it is decided. */
  #closing: { readonly code: number; readonly reason: string } | undefined;
  #clientIsTold = false;
  #upstreamIsTold = false;
  #movedAt = performance.now();
  #idleTimer: NodeJS.Timeout | undefined;
  #stopStall = () => {};
  #waiting: (() => void) | undefined;
  #resolve: (end: SessionEnd) => void = () => {};
  /** The client has left, and the upstream is read on for what an answer used. */
  #usageRead: UsageRead | undefined;
  #bytesAfter = 0;
  /** The client's Close, which ends the answers of an upstream. */
  #heldClose: Buffer | undefined;
  #clientIsGone = false;
  #upstreamIsGone = false;
  #hasRead = false;
  /** Bytes of the two sides, with what frames them. */
  bytesIn = 0;
  bytesOut = 0;

  constructor(options: SessionOptions) {
    this.#options = options;
    const closes = (by: Side) => (code: number) => this.#onClose(by, code);
    const { usage } = options;
    this.#fromUpstream = new WebSocketFrameReader({
      onText: (text) => usage.read(text),
      onLongText: (bytes, head) => usage.readLong(bytes, head),
      onClose: closes('upstream'),
    });
    this.#fromClient = new WebSocketFrameReader({
      onText: (text) => usage.readInput(text),
      onLongText: (bytes, head) => usage.readLongInput(bytes, head),
      onClose: closes('client'),
    });
  }

  /** @returns how it ended, when the client's connection is closed; the upstream's then has a moment left */
  run(): Promise<SessionEnd> {
    const { exchange, client, early, line, limits } = this.#options;
    return new Promise((resolve) => {
      this.#resolve = resolve;
      client.on('data', (bytes: Buffer) => this.#receive(bytes));
      client.once('end', () => this.#clientEnded());
      client.on('drain', () => this.#drained());
      // Before the server hears of it and writes the log.
      client.prependOnceListener('close', () => this.#clientClosed());
      client.setNoDelay(true).setKeepAlive(true, 30_000);
      exchange.onStop(this.#onStop);
      this.#after(limits.lifetime, () => this.close(1001, 'session lifetime reached', 'ok'));
      this.#watchIdle(limits.idle);
      line.belongTo(this);
      if (early.length > 0) this.#receive(early);
      if (exchange.stopReason !== undefined) this.#onStop();
      if (client.destroyed) this.#clientClosed();
    });
  }

  /**
   * Ends the session from here: a Close to both sides, each where a frame ends, and the connections a moment later.
   * @param reason ASCII of at most 123 bytes
   * @param error told to the client in an event before, where one may stand
   */
  close(code: number, reason: string, outcome: 'ok' | ErrorCode, error?: GatewayError): void {
    if (this.#closing !== undefined || this.#end !== undefined) return;
    this.#closing = { code, reason };
    this.#end = { by: 'gateway', code, outcome };
    this.#endRead();
    if (error !== undefined && this.#hasHead && this.#fromUpstream.betweenMessages)
      this.#options.client.write(textFrame(errorEvent(error)));
    this.#tellClient();
    this.#tellUpstream();
    this.#after(FAREWELL_MS, () => this.#cut());
  }

  toClient(bytes: Buffer, done: () => void): void {
    const { client, limits } = this.#options;
    if (!this.#hasHead) {
      this.#hasHead = true;
      client.write(bytes);
      this.#tellClient();
      done();
      return;
    }
    this.#movedAt = performance.now();
    if (this.#clientIsGone) {
      this.#readOn(bytes);
      done();
      return;
    }
    let count = 0;
    if (!this.#clientIsTold) {
      count = this.#fromUpstream.push(bytes, this.#closing !== undefined);
      this.bytesOut += count;
    }
    const isTaken = count === 0 || client.write(count === bytes.length ? bytes : bytes.subarray(0, count));
    if (this.#heldClose !== undefined && !this.#options.usage.awaitsUsage) this.#endRead();
    if (this.#closing !== undefined) this.#tellClient();
    if (isTaken || client.destroyed) done();
    else {
      // The upstream waits as long as the client does not read.
      this.#waiting = done;
      this.#stopStall = startDeadline(limits.writeStall, () => this.#cut());
    }
  }

  upstreamEnded(): void {
    this.#upstreamIsGone = true;
    this.#endRead();
    if (this.#clientIsGone) return;
    // Where the gateway said Close, the client still has to answer.
    if (this.#closing !== undefined) return;
    this.#end ??= { by: 'upstream', code: ABNORMAL, outcome: 'stream_incomplete' };
    this.#options.client.end();
    this.#after(FAREWELL_MS, () => this.#cut());
  }

  wantsMore(): void {
    if (this.#hasHead) this.#options.client.resume();
  }

  #receive(bytes: Buffer): void {
    const { events } = this.#options;
    if (events === undefined) {
      this.#take(bytes);
      return;
    }
    this.#movedAt = performance.now();
    const admitted = events.admit(bytes);
    if (admitted.length > 0) this.#take(admitted);
    if (events.refusal === undefined) return;
    const { closeCode, error } = events.refusal;
    this.close(closeCode, error.code, error.code, error);
  }

  #take(bytes: Buffer): void {
    const { client, line } = this.#options;
    this.#movedAt = performance.now();
    if (this.#upstreamIsTold || this.#isLineEnded || this.#heldClose !== undefined) {
      // Read on for the client's answer to the Close.
      this.#fromClient.push(bytes);
      return;
    }
    const count = this.#fromClient.push(bytes, this.#closing !== undefined);
    this.bytesIn += count;
    if (this.#holdClose(bytes, count)) return;
    if (!line.push(bytes.subarray(0, count)) && this.#closing === undefined) client.pause();
    if (this.#closing === undefined) return;
    this.#tellUpstream();
    if (count < bytes.length) this.#take(bytes.subarray(count));
  }

  /**
   * Where an answer is under way, the client's Close goes on when what it used has been reported: the upstream would end with it
   * and report nothing.
   */
  #holdClose(bytes: Buffer, count: number): boolean {
    const { line } = this.#options;
    const at = (this.#fromClient.closeStart ?? -1) - (this.bytesIn - count);
    // Part of it may have gone upstream with the piece before.
    if (!this.#fromClient.hasClosed || at < 0 || !this.#beginRead()) return false;
    this.#heldClose = Buffer.from(bytes.subarray(at, count));
    if (at > 0) line.push(bytes.subarray(0, at));
    return true;
  }

  /** What an answer used is still to come, and the upstream has not been read on for it. */
  get #mayRead(): boolean {
    const { usage } = this.#options;
    if (this.#closing !== undefined || this.#upstreamIsGone || this.#hasRead) return false;
    return usage.awaitsUsage && !this.#fromUpstream.hasClosed;
  }

  /** @returns whether the upstream is read on after its client has left */
  #beginRead(): boolean {
    if (this.#usageRead !== undefined) return true;
    if (!this.#mayRead) return false;
    this.#hasRead = true;
    this.#usageRead = this.#options.usageReads.begin(() => this.#endRead());
    return this.#usageRead !== undefined;
  }

  #readOn(bytes: Buffer): void {
    if (this.#usageRead === undefined) return;
    this.#bytesAfter += bytes.length;
    this.#fromUpstream.push(bytes);
    if (!this.#options.usage.awaitsUsage || this.#bytesAfter > MAX_USAGE_READ_BYTES) this.#endRead();
  }

  #endRead(): void {
    const read = this.#usageRead;
    if (read === undefined) return;
    this.#usageRead = undefined;
    read.end(!this.#options.usage.awaitsUsage);
    if (this.#heldClose !== undefined && !this.#isLineEnded) this.#options.line.push(this.#heldClose);
    this.#heldClose = undefined;
    if (this.#clientIsGone) this.#finish();
  }

  #tellClient(): void {
    const { client } = this.#options;
    if (this.#closing === undefined || this.#clientIsTold || !this.#hasHead) return;
    if (!this.#fromUpstream.atBoundary) return;
    this.#clientIsTold = true;
    if (!this.#fromUpstream.hasClosed)
      client.write(closeFrame(this.#closing.code, this.#closing.reason, false));
    client.resume();
  }

  #tellUpstream(): void {
    const { line } = this.#options;
    if (this.#closing === undefined || this.#upstreamIsTold || this.#isLineEnded) return;
    if (!this.#fromClient.atBoundary) return;
    this.#upstreamIsTold = true;
    if (!this.#fromClient.hasClosed) line.push(closeFrame(this.#closing.code, this.#closing.reason, true));
  }

  #onClose(by: Side, code: number): void {
    this.#end ??= { by, code, outcome: 'ok' };
    if (this.#closing === undefined) this.#after(CLOSE_MS, () => this.#cut());
    else if (by === 'client' && this.#clientIsTold) this.#options.client.end();
  }

  #endLine(): void {
    if (this.#isLineEnded) return;
    this.#isLineEnded = true;
    this.#options.line.push(null);
  }

  #clientEnded(): void {
    const { client } = this.#options;
    this.#end ??= { by: 'client', code: ABNORMAL, outcome: 'client_closed' };
    if (this.#usageRead === undefined && !this.#mayRead) this.#endLine();
    client.end();
    this.#after(FAREWELL_MS, () => this.#cut());
  }

  #clientClosed(): void {
    const { exchange, usage, onEnd } = this.#options;
    const end = this.#end ?? { by: 'client', code: ABNORMAL, outcome: 'client_closed' };
    this.#end = end;
    for (const timer of this.#timers) clearTimeout(timer);
    clearTimeout(this.#idleTimer);
    this.#clientIsGone = true;
    const isReadOn = this.#beginRead();
    this.#drained();
    exchange.offStop(this.#onStop);
    if (!isReadOn) usage.end();
    onEnd(end);
    // When the server has written the log.
    if (isReadOn) setImmediate(() => exchange.markAnswered());
    else this.#finish();
  }

  /** Neither side is of interest any more. */
  #finish(): void {
    const { upstream, usage } = this.#options;
    usage.end();
    this.#endLine();
    upstream.destroySoon();
    // What is not read there by then stays unread.
    setTimeout(() => upstream.destroy(), FAREWELL_MS).unref();
    if (this.#end !== undefined) this.#resolve(this.#end);
  }

  #drained(): void {
    this.#stopStall();
    const done = this.#waiting;
    this.#waiting = undefined;
    done?.();
  }

  #cut(): void {
    const { client, upstream } = this.#options;
    client.destroy();
    // Otherwise it is let go when the client's connection has closed, or what an answer used has come.
    if (this.#usageRead === undefined && !this.#mayRead) upstream.destroy();
  }

  /** One timer; bytes that came only move the time at which it will find the silence long enough. */
  #watchIdle(ms: number): void {
    const left = this.#movedAt + ms - performance.now();
    if (left <= 0) this.close(1001, 'session was idle', 'ok');
    else this.#idleTimer = setTimeout(() => this.#watchIdle(ms), Math.ceil(left));
  }

  #after(ms: number, act: () => void): void {
    this.#timers.add(setTimeout(act, ms));
  }

  readonly #onStop = () => {
    const reason = this.#options.exchange.stopReason ?? new GatewayError('client_closed');
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

/** As an upstream tells a client of a session what went wrong. */
function errorEvent(error: GatewayError): string {
  return `{"type":"error",${errorBody(error).slice(1)}`;
}
