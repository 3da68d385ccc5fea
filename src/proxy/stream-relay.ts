// A stream on its way to the client: whole frames, the model's name spliced, nothing sent before the first output, and an
// end that says what really happened. It never decodes a frame to relay it, and never invents one but the error.
import { errorBody, GatewayError, wrapError } from '../errors.ts';
import { judgeErrorObject, relayedHeaders } from '../upstream/outcome.ts';
import type { ResponseHeaders } from '../upstream/transport.ts';
import { readChunk, type Usage } from './chunk.ts';
import { type FrameBatch, FrameScanner } from './frames.ts';
import type { ChatRequest, Receiver, Source } from './receiver.ts';

const MAX_FRAME_BYTES = 1024 * 1024;
/** Held back before the first output; an upstream that talks this much without output is taken as it is. */
const MAX_HELD_BYTES = 256 * 1024;

export class StreamRelay implements Receiver {
  committed = false;
  readonly #request: ChatRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #scanner = new FrameScanner(MAX_FRAME_BYTES);
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** `[DONE]` or a finish reason was seen: the stream may end. */
  #whole = false;
  #over = false;
  #failure: GatewayError | undefined;
  #usage: Usage | null = null;
  #commitTimer: NodeJS.Timeout | undefined;
  #paused = false;
  #bytesOut = 0;

  constructor(request: ChatRequest, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
    this.#commitTimer = setTimeout(() => this.#commit(), request.commitAfter);
  }

  data(chunk: Buffer): void {
    try {
      const batch = this.#scanner.push(chunk);
      if (batch.ends.length > 0) this.#relay(batch);
    } catch (error) {
      this.#source.fail(wrapError(error, 'internal_error'));
    }
  }

  end(): void {
    const rest = this.#scanner.rest();
    // Without its blank line some clients do not read the last frame, but it is what the upstream sent. A torn one is kept
    // back, so that what may have to follow does not run into it.
    if (rest.length > 0 && readChunk(rest).kind !== 'other')
      this.#relay({ bytes: rest, ends: [rest.length] });
    if (this.#over) return;
    if (!this.#whole) {
      this.#source.fail(new GatewayError('stream_incomplete'));
      return;
    }
    if (!this.committed) this.#commit();
    this.#over = true;
    this.#request.exchange.response.end();
    this.#source.finish({ kind: 'answered', outcome: this.#failure?.code ?? 'ok' });
  }

  break(error: GatewayError): void {
    if (this.#over) return;
    this.#over = true;
    const { response } = this.#request.exchange;
    if (error.code === 'client_closed') {
      response.destroy();
      return;
    }
    this.#request.exchange.error = error;
    // At a frame boundary (partial frames are held back), so the error is a frame of its own; then no final chunk follows,
    // and by RFC 9112, 8 the message is incomplete for everyone who reads framing and not frames.
    this.#write([Buffer.from(`data: ${errorBody(error)}\n\n`)]);
    response.socket?.destroySoon();
  }

  dispose(): void {
    clearTimeout(this.#commitTimer);
    const { exchange } = this.#request;
    exchange.response.off('drain', this.#onDrain);
    if (this.#usage !== null) {
      exchange.access.prompt_tokens = this.#usage.prompt;
      exchange.access.completion_tokens = this.#usage.completion;
    }
    exchange.access.bytes_out = this.#bytesOut;
  }

  /** Reads every frame of the batch; what need not change is written as it came, in one piece. */
  #relay({ bytes, ends }: FrameBatch): void {
    const { exchange, alias, hideUsage } = this.#request;
    const out: Buffer[] = [];
    /** Up to here the batch was taken over into `out`. */
    let taken = 0;
    let start = 0;
    let mayCommit = false;
    for (const end of ends) {
      const facts = readChunk(bytes, start, end);
      if (facts.hasError && !this.#noteError(bytes.subarray(start, end), mayCommit)) return;
      if (facts.usage !== null && (facts.usage.total > 0 || this.#usage === null)) this.#usage = facts.usage;
      if (facts.usageOnly && hideUsage) {
        // Asked for by the gateway, so it ends here.
        if (taken < start) out.push(bytes.subarray(taken, start));
        taken = end;
      } else if (alias !== undefined && facts.modelSpan !== null) {
        out.push(bytes.subarray(taken, facts.modelSpan.start), alias);
        taken = facts.modelSpan.end;
      }
      if (facts.hasOutput) {
        exchange.access.ttft_ms ??= Math.round(exchange.elapsed);
        this.#source.progress();
      }
      if (facts.finish !== null || facts.kind === 'done') this.#whole = true;
      mayCommit ||= facts.hasOutput || this.#whole;
      if (facts.kind === 'done') this.#source.lastFrame();
      start = end;
    }
    if (taken < bytes.length) out.push(taken === 0 ? bytes : bytes.subarray(taken));
    if (this.committed) this.#write(out);
    else {
      this.#held.push(...out);
      this.#heldBytes += bytes.length;
      if (mayCommit || this.#heldBytes > MAX_HELD_BYTES) this.#commit();
    }
  }

  /**
   * An error among the first frames is the whole answer, and not too late for another target. After output it is relayed
   * as it is: the client's SDK raises it.
   * @returns whether the stream goes on
   */
  #noteError(frame: Buffer, afterOutput: boolean): boolean {
    if (this.committed || afterOutput) {
      this.#failure = new GatewayError('upstream_error', undefined, {
        cause: 'an error frame in the stream',
      });
      this.#request.exchange.error = this.#failure;
      return true;
    }
    this.#over = true;
    this.#source.finish({ kind: 'failed', failure: judgeErrorObject(dataOf(frame), this.#headers) });
    return false;
  }

  /** The point of no return: the client gets its 200 and everything held back, and no other target will be asked. */
  #commit(): void {
    if (this.committed || this.#over) return;
    this.committed = true;
    clearTimeout(this.#commitTimer);
    const { exchange } = this.#request;
    exchange.response.writeHead(200, {
      'x-request-id': exchange.id,
      'content-type': 'text/event-stream; charset=utf-8',
      // Proxies on the way must neither store nor compress nor collect it.
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      ...relayedHeaders(this.#headers),
    });
    if (this.#held.length === 0) exchange.response.flushHeaders();
    else this.#write(this.#held);
    this.#held = [];
  }

  /** One write for all pieces; when the client does not keep up, the upstream is not read until it does. */
  #write(pieces: readonly Buffer[]): void {
    if (pieces.length === 0) return;
    const [first] = pieces;
    const bytes = pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces);
    this.#bytesOut += bytes.length;
    const { response } = this.#request.exchange;
    if (response.write(bytes) || this.#paused || this.#over) return;
    this.#paused = true;
    this.#source.pause();
    response.once('drain', this.#onDrain);
  }

  readonly #onDrain = () => {
    this.#paused = false;
    this.#source.resume();
  };
}

/** The data of one frame as text, for the rare frame that is read as a whole. */
function dataOf(frame: Buffer): string {
  const lines = frame.toString().split(/\r\n|\r|\n/);
  return lines.flatMap((line) => (/^data(:|$)/.test(line) ? [line.replace(/^data:? ?/, '')] : [])).join('\n');
}
