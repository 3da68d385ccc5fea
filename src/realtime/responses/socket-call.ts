// One response over a WebSocket to an upstream, from its request to its last event, as the call of a transport.
import type { GatewayError } from '../../errors.ts';
import type { Call, ResponseHeaders, Sink } from '../../upstream/transport.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';
import { type EventFacts, eventFacts } from './socket-events.ts';

const DATA = Buffer.from('data: ');
const FRAME_END = Buffer.from('\n\n');
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/** One response, from its request to its last event. */
export class SocketCall implements Call {
  readonly #sink: Sink;
  readonly #onAbort: () => void;
  readonly text: Buffer;
  readonly streamId: string | undefined;
  /** It was sent on a connection that had been used, which may have been closed meanwhile. */
  readonly isKept: boolean;
  /** The connection, which one client reads. */
  link: { pace(): void } | undefined;
  #hasHead = false;
  isPaused = false;
  /** Nothing is passed on any more; its events may still arrive. */
  isOver = false;

  constructor(sink: Sink, text: Buffer, isKept: boolean, onAbort: () => void) {
    this.#sink = sink;
    this.text = text;
    this.streamId = eventFacts(text).streamId;
    this.isKept = isKept;
    this.#onAbort = onAbort;
  }

  pause(): void {
    this.isPaused = true;
    this.link?.pace();
  }

  resume(): void {
    this.isPaused = false;
    this.link?.pace();
  }

  abort(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.resume();
    this.#onAbort();
  }

  sent(): void {
    if (!this.isOver) this.#sink.onSent?.();
  }

  /** @param text valid only during the call */
  event(text: Buffer, { type, isLast }: EventFacts, headers: ResponseHeaders): void {
    if (this.isOver) return;
    const status = type === 'error' && !this.#hasHead ? statusOf(text) : undefined;
    if (status !== undefined) {
      this.answer(status.status, { ...headers, ...status.headers, 'content-type': 'application/json' }, text);
      return;
    }
    if (!this.#hasHead) this.#sink.onHead(200, { ...headers, 'content-type': 'text/event-stream' });
    this.#hasHead = true;
    if (!this.isOver) this.#sink.onData(asFrame(text));
    if (!isLast || this.isOver) return;
    this.isOver = true;
    this.#sink.onEnd();
  }

  /** An answer that is no response. */
  answer(status: number, headers: ResponseHeaders, body: Buffer): void {
    if (this.isOver) return;
    this.#sink.onHead(status, headers);
    if (!this.isOver) this.#sink.onData(Buffer.from(body));
    if (this.isOver) return;
    this.isOver = true;
    this.#sink.onEnd();
  }

  /** The connection ended, or was never opened. */
  failed(error: GatewayError, isSent: boolean): void {
    if (this.isOver) return;
    this.isOver = true;
    const isStale = this.isKept && !this.#hasHead;
    this.#sink.onError(error, isSent ? (isStale ? 'no_response' : 'maybe_sent') : 'not_sent');
  }
}

/** The event as a frame of a stream, in one line: in JSON, line ends are white space. */
function asFrame(text: Buffer): Buffer {
  const frame = Buffer.concat([DATA, text, FRAME_END]);
  for (const byte of [LF, CR]) {
    const end = frame.length - FRAME_END.length;
    for (let at = frame.indexOf(byte); at !== -1 && at < end; at = frame.indexOf(byte, at)) frame[at] = SPACE;
  }
  return frame;
}

/** The answer in HTTP that an error event stands for; undefined where it names no status. */
function statusOf(text: Buffer): { status: number; headers: ResponseHeaders } | undefined {
  const event = parse(text.toString());
  const status = memberOf(event, 'status');
  if (typeof status !== 'number' || !(status >= 400 && status < 600)) return undefined;
  const after = memberOf(memberOf(event, 'headers'), 'retry-after');
  return { status, headers: typeof after === 'string' ? { 'retry-after': after } : {} };
}
