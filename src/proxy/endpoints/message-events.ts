// The frames of a message stream of Anthropic's API: which are output, which ends it, and where usage, error and model name are.
import type { GatewayError } from '../../errors.ts';
import { anthropicErrorBody, statusOfError } from '../../http/exchange/anthropic-error.ts';
import { type Failure, judgeErrorObject } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { isErrorList } from '../../wire/answer-shape.ts';
import { type ChunkFacts, NO_CHUNK_FACTS, skipTruthy } from '../../wire/chat-chunk.ts';
import { decodeString, JsonScanner, type Span } from '../../wire/json/json.ts';
import { TextCount } from '../../wire/output-text.ts';
import { dataOf, readFields, type SseData, spanEquals, spanInFrame } from '../../wire/sse-fields.ts';
import { cumulativeUsage, parseUsage, type Usage } from '../../wire/token-usage.ts';
import type { FrameReader } from '../contracts/endpoint.ts';

const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;
const ERROR = Buffer.from('error');
const REFUSAL = Buffer.from('"refusal"');

export class MessageReader implements FrameReader {
  readonly #scanner = new JsonScanner();
  readonly #count = new TextCount();
  /** Of the current event. */
  #type: Span | null = null;
  #model: Span | null = null;
  #usageSpan: Span | null = null;
  #stop: Span | null = null;
  #hasError = false;
  #hasPiece = false;
  /** Of the events so far. */
  #usage: Usage | null = null;
  #isRefused = false;
  #hasEnded = false;
  readonly errorSign = 'name';
  text = 0;
  mayBeLast = false;

  read(bytes: Buffer, start: number, end: number): ChunkFacts {
    const { values, event } = readFields(bytes, start, end);
    const isErrorEvent = event !== null && spanEquals(bytes, event, ERROR);
    this.text = 0;
    const data = dataOf(bytes, values);
    if (data === null) return { ...NO_CHUNK_FACTS, hasError: isErrorEvent };
    // A convention of the other API that some servers add. Before the last event it is no end, so it is hidden.
    if (data.isDone)
      return { ...NO_CHUNK_FACTS, kind: this.#hasEnded ? 'done' : 'other', usageOnly: !this.#hasEnded };
    if (!this.#scan(data))
      return {
        ...NO_CHUNK_FACTS,
        kind: 'other',
        hasError: isErrorEvent || isErrorList(data.bytes, data.start, data.end),
      };
    const type = this.#type === null ? '' : decodeString(data.bytes, this.#type);
    const hasError = isErrorEvent || type === 'error' || this.#hasError;
    const isEnd = type === 'message_stop';
    const isPiece = type === 'content_block_delta' || type === 'content_block_start';
    const hasOutput = isPiece && this.#hasPiece;
    if (hasOutput) this.text = this.#count.bytes;
    // Usage may still follow the last block.
    if (type === 'content_block_stop' || type === 'message_delta') this.mayBeLast = true;
    else if (isPiece) this.mayBeLast = false;
    if (this.#stop !== null) this.#isRefused = spanEquals(data.bytes, this.#stop, REFUSAL);
    if (this.#usageSpan !== null)
      this.#usage = cumulativeUsage(this.#usage, parseUsage(data.bytes, this.#usageSpan));
    this.#hasEnded ||= isEnd;
    return {
      ...NO_CHUNK_FACTS,
      kind: isEnd || hasError ? 'done' : 'json',
      hasError,
      modelSpan: this.#model === null ? null : spanInFrame(this.#model, values),
      hasOutput,
      finish: isEnd && this.#isRefused ? 'content_filter' : null,
      // The last event confirms what the events before it have said.
      usage: this.#usageSpan === null && !isEnd ? null : this.#usage,
    };
  }

  errorFrame(error: GatewayError, requestId: string): Buffer {
    return Buffer.from(`event: error\ndata: ${anthropicErrorBody(error, requestId)}\n\n`);
  }

  judge(frame: Buffer, headers: ResponseHeaders): Failure {
    const data = dataOf(frame, readFields(frame, 0, frame.length).values);
    const text = data === null ? '' : data.bytes.toString('utf8', data.start, data.end);
    return judgeErrorObject(text, headers, statusOfError(text));
  }

  /** @returns whether the data is a JSON object */
  #scan({ bytes, start, end }: SseData): boolean {
    const scanner = this.#scanner;
    scanner.reset(bytes, start, end);
    this.#type = this.#model = this.#usageSpan = this.#stop = null;
    this.#hasError = this.#hasPiece = false;
    this.#count.begin();
    if (!scanner.enterObject()) return false;
    while (scanner.nextMember()) {
      if (scanner.keyIs('type')) this.#type = scanner.skipIf(QUOTE);
      else if (scanner.keyIs('delta') || scanner.keyIs('content_block')) this.#piece(bytes);
      else if (scanner.keyIs('message')) this.#message();
      else if (scanner.keyIs('usage')) this.#usageSpan = scanner.skipIf(OPEN_OBJECT);
      else if (scanner.keyIs('error')) this.#hasError = skipTruthy(scanner, bytes);
      else scanner.skipValue();
    }
    return scanner.finish();
  }

  /** Reads a block, or a piece of one or of the message. Output is all but its type. */
  #piece(bytes: Buffer): void {
    const scanner = this.#scanner;
    if (!scanner.enterObjectOrSkip()) return;
    while (scanner.nextMember()) {
      if (scanner.keyIs('type')) scanner.skipValue();
      else if (scanner.keyIs('stop_reason')) this.#stop = scanner.skipIf(QUOTE);
      else if (this.#count.member(scanner, bytes)) this.#hasPiece = true;
    }
  }

  #message(): void {
    const scanner = this.#scanner;
    if (!scanner.enterObjectOrSkip()) return;
    while (scanner.nextMember()) {
      if (scanner.keyIs('model')) this.#model = scanner.skipIf(QUOTE);
      else if (scanner.keyIs('usage')) this.#usageSpan = scanner.skipIf(OPEN_OBJECT);
      else scanner.skipValue();
    }
  }
}
