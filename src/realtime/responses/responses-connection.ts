// One client connection of the Responses API over a WebSocket (RFC 6455): reads its events, has each response made as a request, one at
// a time in each lane, and writes their events. It lives from the 101 to the end of the connection.
import type { Socket } from 'node:net';
import { startDeadline } from '../../deadline.ts';
import { type ErrorCode, GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { Upgrade } from '../../http/exchange/upgrade.ts';
import { ABNORMAL, cutLater, type SessionEnd } from '../websocket/session-end.ts';
import {
  closeFrame,
  isCloseCode,
  pongFrame,
  textFrame,
  WebSocketFrameReader,
} from '../websocket/websocket-frames.ts';
import { InnerRequest } from './inner-request.ts';
import { LargeEventTurn } from './large-events.ts';
import { errorEvent, eventFacts, steerFailed } from './socket-events.ts';

/** Responses that run at once, and events that wait for one; the client is not read beyond them. */
const MAX_RUNNING = 16;
const MAX_WAITING = 16;

interface ConnectionOptions {
  readonly exchange: Exchange;
  readonly upgrade: Upgrade;
  readonly authorization: string;
  /** Head of the 101. */
  readonly head: string;
  /** In milliseconds, and bytes of an event. */
  readonly limits: Readonly<Record<'idle' | 'lifetime' | 'writeStall' | 'maxEvent', number>>;
  /** Makes a response. @returns its exchange */
  readonly serve: (inner: InnerRequest) => Exchange;
  /** As `LargeEvents.enter`, of the holder. */
  readonly enterLarge: ConstructorParameters<typeof LargeEventTurn>[0];
  /** Called while the client's connection closes, before the log line is written. */
  readonly onEnd: (end: SessionEnd) => void;
}

interface WaitingEvent {
  readonly text: Buffer;
  readonly streamId: string | undefined;
}

export class ResponsesConnection {
  readonly #options: ConnectionOptions;
  readonly #client: Socket;
  readonly #reader: WebSocketFrameReader;
  readonly #large: LargeEventTurn;
  /** Lane → its response. */
  readonly #running = new Map<string | undefined, InnerRequest>();
  #waiting: WaitingEvent[] = [];
  /** Called when the client takes more. */
  #onDrain: (() => void)[] = [];
  #stopStall = () => {};
  #stopIdle = () => {};
  #stopLifetime = () => {};
  #end: SessionEnd | undefined;
  #hasSentClose = false;
  /** The close code of an upstream that ended its connection before its last response was written to the client. */
  #lostCode: number | undefined;
  /** Set when the connection has to end between two responses. */
  #leaving: { readonly reason: string; readonly outcome: 'ok' | ErrorCode } | undefined;
  bytesIn = 0;
  bytesOut = 0;
  responses = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#client = options.upgrade.socket;
    this.#large = new LargeEventTurn(options.enterLarge, this.#client, {
      onTurn: () => this.#next(),
      onSilence: () => this.close(1008, 'request_timeout', new GatewayError('request_timeout')),
    });
    this.#reader = new WebSocketFrameReader(
      {
        onText: (text) => this.#onText(text),
        onTooLong: () => this.close(1009, 'request_too_large', new GatewayError('request_too_large')),
        onBinary: () => this.close(1003, 'invalid_value', binary()),
        onPing: (payload) => this.#write([pongFrame(payload)]),
        onClose: (code) => this.#onClose(code),
      },
      options.limits.maxEvent,
      true,
    );
  }

  /** Resolves when the client's connection has closed. */
  run(): Promise<void> {
    const { exchange, upgrade, head, limits, onEnd } = this.#options;
    const client = this.#client;
    return new Promise((resolve) => {
      client.on('data', (bytes: Buffer) => this.#receive(bytes));
      client.on('drain', () => this.#drained());
      client.once('end', () => this.#ended());
      // Before the server's listener, which writes the log line.
      client.prependOnceListener('close', () => {
        onEnd(this.#ended());
        resolve();
      });
      client.setNoDelay(true).setKeepAlive(true, 30_000);
      exchange.onStop(this.#onStop);
      exchange.onDrain = () => this.leave('this gateway is shutting down', 'draining');
      this.#stopLifetime = startDeadline(limits.lifetime, () => this.leave('session lifetime reached', 'ok'));
      this.#watchIdle();
      client.write(head);
      client.resume();
      if (upgrade.head.length > 0) this.#receive(upgrade.head);
      if (exchange.stopReason !== undefined) this.#onStop(exchange.stopReason);
    });
  }

  /** Ends the connection when no response runs. */
  leave(reason: string, outcome: 'ok' | ErrorCode): void {
    this.#leaving ??= { reason, outcome };
    if (this.#running.size === 0) this.close(1001, this.#leaving.reason, undefined, this.#leaving.outcome);
  }

  /** An upstream ended a connection that has state of this one. @param code of its Close */
  upstreamClosed(code: number): void {
    this.#lostCode = code;
    if (this.#running.size > 0 || this.#waiting.length > 0) return;
    this.#end ??= { by: 'upstream', code, outcome: 'ok' };
    this.close(isCloseCode(code) ? code : 1001, 'upstream closed the connection');
  }

  /**
   * @param reason ASCII of at most 123 bytes
   * @param error sent before the Close
   */
  close(
    code: number,
    reason: string,
    error?: GatewayError,
    outcome: 'ok' | ErrorCode = error?.code ?? 'ok',
  ): void {
    if (this.#hasSentClose) return;
    this.#end ??= { by: 'gateway', code, outcome };
    if (error !== undefined) this.#write([textFrame(errorEvent(error, undefined))]);
    this.#write([closeFrame(code, reason, false)]);
    this.#hasSentClose = true;
    this.#stopAll();
    this.#client.resume();
    cutLater(this.#client);
  }

  #receive(bytes: Buffer): void {
    this.bytesIn += bytes.length;
    this.#reader.push(bytes);
    if (this.#reader.isLost) this.close(1002, 'invalid_value', noFrames());
    if (this.#end === undefined) this.#large.watch(this.#reader.textSize);
    // A client that does not read its answers gets no more of them: pongs and errors would be buffered without end.
    if ((this.#large.isHeld || this.#client.writableNeedDrain) && this.#end === undefined)
      this.#client.pause();
    if (this.#running.size === 0) this.#watchIdle();
  }

  #onText(text: Buffer): void {
    if (this.#end !== undefined) return;
    const { type, streamId } = eventFacts(text);
    switch (type) {
      case 'response.create':
        this.#waiting.push({ text: Buffer.from(text), streamId });
        this.#next();
        break;
      case 'response.steer':
        this.#send([steerFailed(text, streamId)]);
        break;
      // Tells that the client has used a response; it expects no answer.
      case 'response.processed':
        break;
      default:
        this.#send([errorEvent(unknownEvent(), streamId)]);
    }
  }

  /** Begins what may run, and reads the client only as long as little waits. */
  #next(): void {
    for (const event of [...this.#waiting]) {
      if (this.#running.size >= MAX_RUNNING || this.#leaving !== undefined || this.#end !== undefined) break;
      if (this.#running.has(event.streamId)) continue;
      this.#waiting = this.#waiting.filter((each) => each !== event);
      this.#begin(event);
    }
    const bytes = this.#waiting.reduce((sum, { text }) => sum + text.length, 0);
    const isFull = this.#waiting.length >= MAX_WAITING || bytes > this.#options.limits.maxEvent;
    if ((isFull || this.#large.isHeld || this.#client.writableNeedDrain) && this.#end === undefined)
      this.#client.pause();
    else this.#client.resume();
  }

  #begin({ text, streamId }: WaitingEvent): void {
    const { exchange: outer, authorization, serve } = this.#options;
    this.#stopIdle();
    this.#lostCode = undefined;
    const write = (messages: readonly (Buffer | string)[], done: () => void) => {
      if (this.#send(messages)) done();
      else this.#onDrain.push(done);
    };
    const inner = new InnerRequest({ outer, authorization, body: text, streamId, write });
    this.#running.set(streamId, inner);
    const exchange = serve(inner);
    // A stream that broke has reported its error, and its connection exists in this process only.
    exchange.onStop(() => setImmediate(() => inner.cut()));
    inner.response.once('close', () => this.#responseEnded(streamId, exchange));
  }

  #responseEnded(streamId: string | undefined, exchange: Exchange): void {
    this.#running.delete(streamId);
    this.responses += 1;
    const { error } = exchange;
    if (error?.status === 401) this.close(1008, error.code, undefined, error.code);
    else if (this.#leaving !== undefined) this.leave(this.#leaving.reason, this.#leaving.outcome);
    if (this.#end !== undefined) return;
    this.#next();
    if (this.#running.size > 0) return;
    if (this.#lostCode === undefined) this.#watchIdle();
    else this.upstreamClosed(this.#lostCode);
  }

  /** @returns whether the client takes more */
  #send(messages: readonly (Buffer | string)[]): boolean {
    return this.#write(messages.map((each) => textFrame(each)));
  }

  #write(frames: readonly Buffer[]): boolean {
    const client = this.#client;
    if (this.#hasSentClose || !client.writable) return true;
    const [first] = frames;
    const bytes = frames.length === 1 && first !== undefined ? first : Buffer.concat(frames);
    this.bytesOut += bytes.length;
    if (client.write(bytes)) return true;
    this.#stopStall();
    this.#stopStall = startDeadline(this.#options.limits.writeStall, () => client.destroy());
    return false;
  }

  #drained(): void {
    this.#stopStall();
    for (const done of this.#onDrain.splice(0)) done();
    this.#next();
  }

  #onClose(code: number): void {
    this.#end ??= { by: 'client', code, outcome: 'ok' };
    this.#write([closeFrame(code, '', false)]);
    this.#hasSentClose = true;
    this.#stopAll();
    this.#client.end();
    cutLater(this.#client);
  }

  #ended(): SessionEnd {
    const end = this.#end ?? { by: 'client', code: ABNORMAL, outcome: 'client_closed' };
    this.#end = end;
    this.#hasSentClose = true;
    this.#stopStall();
    this.#stopIdle();
    this.#stopLifetime();
    this.#options.exchange.offStop(this.#onStop);
    this.#stopAll();
    this.#client.end();
    cutLater(this.#client);
    return end;
  }

  #stopAll(): void {
    this.#large.end();
    this.#waiting = [];
    this.#onDrain = [];
    for (const inner of this.#running.values()) inner.destroy();
  }

  /** Silence counts only while no response runs. */
  #watchIdle(): void {
    this.#stopIdle();
    if (this.#end !== undefined) return;
    this.#stopIdle = startDeadline(this.#options.limits.idle, () => this.leave('session was idle', 'ok'));
  }

  readonly #onStop = (reason: GatewayError) => {
    if (reason.code === 'client_closed') this.#client.destroy();
    else if (reason.code === 'draining') this.close(1001, 'this gateway is shutting down', reason);
    else this.close(1008, reason.code, reason);
  };
}

function binary(): GatewayError {
  return new GatewayError('invalid_value', 'Events have to be text messages.');
}

function noFrames(): GatewayError {
  return new GatewayError('invalid_value', 'This is no sequence of WebSocket frames from a client.');
}

function unknownEvent(): GatewayError {
  const message = 'Events have to be JSON objects with a type that this URL takes: response.create.';
  return new GatewayError('invalid_value', message, { param: 'type' });
}
