// The relay of an event stream: whole frames, the model name spliced, nothing sent before the first output, and an end that reflects
// what happened. Frames are never decoded to be relayed. client-stream.ts writes to the client.
import { GatewayError } from '../../../errors.ts';
import { batchWrite } from '../../../http/exchange/write-batch.ts';
import { filteredAnswer } from '../../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../../upstream/transport.ts';
import { isContentFilter } from '../../../wire/answer-shape.ts';
import { readChunk } from '../../../wire/chat-chunk.ts';
import { sealsIn } from '../../../wire/created-objects.ts';
import { surplusFields } from '../../../wire/sse-fields.ts';
import { type FrameBatch, SseFrameScanner } from '../../../wire/sse-frames.ts';
import { tooLarge } from '../../contracts/answer-bounds.ts';
import type { FrameReader } from '../../contracts/endpoint.ts';
import type { AttemptResult, Receiver, RelayRequest, Source } from '../../contracts/receiver.ts';
import { ClientStream, EVENTS } from './client-stream.ts';
import { FinishHold } from './finish-hold.ts';
import { append, differs, endsWithComment, rewritten } from './frame-edits.ts';
import { StreamErrors } from './stream-errors.ts';
import { StreamUsage } from './stream-usage.ts';
import { CLIENT_LEFT, UsageOnlyReader } from './usage-only-reader.ts';
import { withoutUsage } from './usage-strip.ts';

/** Held back before the first output; a longer stream without output is committed. */
const MAX_HELD_BYTES = 256 * 1024;

const LF = 0x0a;
const CR = 0x0d;
const NO_BYTES: Buffer = Buffer.alloc(0);
const NO_SEALS: readonly string[] = [];

export class StreamRelay implements Receiver {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #client: ClientStream;
  readonly #hold: FinishHold;
  readonly #usage: StreamUsage;
  readonly #errors: StreamErrors;
  readonly #scanner: SseFrameScanner;
  /** For endpoints with their own frames; chat frames go to `readChunk` directly. */
  readonly #reader: FrameReader | undefined;
  #commitTimer: NodeJS.Timeout | undefined;
  #isDisposed = false;
  /** `commitAfter` has passed while another attempt of the race may still win. */
  #isCommitDue = false;
  /** `[DONE]` arrived. Later bytes are not relayed: clients stop there. */
  #done = false;
  /** The content filter ended the answer before any output, and another target may be tried. */
  #isFiltered = false;
  /** The last frame ended with a CR and was hidden: a following LF is the second half of its line end. */
  #hidesLf = false;

  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
    this.#scanner = new SseFrameScanner(request.config.max_answer.frame);
    // The record is not awaited: it is written long before the client reaches the end and uses the id.
    this.#reader = request.endpoint.frames?.((created) => void source.created?.(created));
    this.#usage = new StreamUsage(request, source, this.#reader);
    this.#errors = new StreamErrors({ request, headers, source, reader: this.#reader });
    this.#client = new ClientStream(request, headers, source);
    this.#hold = new FinishHold(this.#client);
    // Most upstreams send the first output together with the head: those streams need no timer.
    batchWrite(() => {
      if (!this.#client.isOpen && !this.#isDisposed)
        this.#commitTimer = setTimeout(this.#onSilence, request.config.stream.commit_after);
    });
  }

  readonly #onSilence = () => {
    try {
      // Silence wins no race: the first output decides it.
      if (this.#source.isUndecided) this.#isCommitDue = true;
      else this.#commit();
    } catch (error) {
      this.#source.crashed(error);
    }
  };

  /** The client has received the head. */
  get isOpen(): boolean {
    return this.#client.isOpen;
  }

  data(chunk: Buffer): void {
    if (this.#client.isOver) return;
    try {
      const batch = this.#scanner.push(chunk);
      if (batch.ends.length > 0) this.#relay(batch);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      if (error.code === 'upstream_unusable_response')
        this.#source.unrelayable(tooLarge('frame', this.#request.config.max_answer));
      else this.#source.unusable(error.cause);
    }
  }

  end(): void {
    const client = this.#client;
    if (!client.isOver && !this.#done) this.#relayIncomplete();
    if (client.isOver) return;
    if (this.#done || this.#usage.isFinished || this.#errors.relayed !== undefined) {
      // The upstream reported the error itself, so end cleanly: some clients hang on a cut stream after an error frame.
      if (!this.#isFiltered) this.#commit();
      this.#endAnswer();
    } else this.#source.incomplete('the stream ended without a finish reason or [DONE]');
  }

  leave(): boolean {
    const client = this.#client;
    const isNearEnd = this.#usage.isFinished || this.#reader?.mayBeLast === true;
    // Under the client's backpressure the gateway did not read either, so the upstream may be finished.
    const mayBeWhole = isNearEnd || client.isPaused;
    if (!client.isOpen || client.isOver || this.#done || this.#errors.relayed !== undefined) return false;
    if (!mayBeWhole || this.#usage.isFinal) return false;
    client.drop();
    client.dispose();
    this.#source.reads(new UsageOnlyReader(this.#source, this.#scanner, this.#usage, this.#reader));
    return true;
  }

  broken(error: GatewayError): AttemptResult | undefined {
    const client = this.#client;
    if (!client.isOpen) {
      client.drop();
      return undefined;
    }
    if (client.isOver) return this.#errors.answered();
    if (this.#done) {
      // Complete; only the second half of a line end was missing.
      client.end();
      return this.#errors.answered();
    }
    if (error.code === 'client_closed') {
      client.drop();
      return CLIENT_LEFT;
    }
    this.#hold.release();
    const { relayed } = this.#errors;
    client.cut(relayed ?? error, relayed === undefined ? this.#errors.frameOf(error) : undefined);
    return relayed === undefined ? { kind: 'answered', outcome: error.code } : this.#errors.answered();
  }

  soleAttempt(): void {
    if (this.#isCommitDue) this.#commit();
  }

  dispose(): void {
    this.#isDisposed = true;
    clearTimeout(this.#commitTimer);
    this.#hold.take();
    this.#client.dispose();
    this.#usage.end();
  }

  /** Reads every frame of the batch. Unchanged frames are written in one piece. */
  #relay({ bytes, ends }: FrameBatch): void {
    const { alias, keepsSeals = false } = this.#request;
    const seals = keepsSeals ? sealsIn(bytes) : NO_SEALS;
    // As with the created objects, the record is not awaited.
    if (seals.length > 0) void this.#source.created?.({ isStored: true, items: [], seals });
    const hold = this.#hold;
    // Endpoints with their own frames mark what to hide in their reader.
    const hidesUsage = this.#request.hideUsage === true && this.#reader === undefined;
    const isLfAlone = ends[0] === 1 && bytes[0] === LF;
    if (this.#done) {
      // Only the second half of its line end still belongs to it.
      if (isLfAlone) this.#client.pass(bytes.subarray(0, 1));
      this.#endAnswer();
      return;
    }
    let out: Buffer[] | undefined;
    /** The batch is copied to `out` or dropped up to here. */
    let copiedTo = this.#hidesLf && isLfAlone ? 1 : 0;
    this.#hidesLf = false;
    let start = 0;
    let hasOutput = false;
    const hasCr = bytes.includes(CR);
    for (const end of ends) {
      const facts =
        this.#reader === undefined ? readChunk(bytes, start, end) : this.#reader.read(bytes, start, end);
      if (facts.hasError) {
        if (!this.#client.isOpen && !hasOutput && !this.#usage.isFinished) {
          // It is the whole answer, and another target may still be tried.
          this.#client.drop();
          const failure = this.#errors.judge(bytes.subarray(start, end));
          this.#source.finish({ kind: 'failed', failure });
          return;
        }
        this.#errors.markRelayed();
      }
      this.#usage.count(facts, end - start);
      const replacement = facts.hasError ? this.#errors.replacementOf(bytes.subarray(start, end)) : undefined;
      const usage =
        hidesUsage && facts.usage !== null && !facts.hasError
          ? withoutUsage(bytes, start, end, this.#usage.finishedChoices)
          : undefined;
      if (hold.isHolding && facts.kind !== 'comment') out = [...hold.take(usage?.hidden), ...(out ?? [])];
      const isHeld = hidesUsage && facts.finish !== null && this.#usage.isLastBeforeUsage(facts);
      const surplus = surplusFields(bytes, start, end, facts.kind === 'comment', hasCr);
      // Requested by the gateway or without meaning for the client.
      const isHidden =
        usage?.hidden !== undefined || surplus === 'all' || (facts.usageOnly && this.#reader !== undefined);
      if (replacement !== undefined || isHidden) {
        if (copiedTo < start) out = append(out, bytes.subarray(copiedTo, start));
        if (replacement !== undefined) out = append(out, replacement);
        else this.#hidesLf = end === bytes.length && bytes[end - 1] !== LF;
        copiedTo = end;
      } else if (surplus !== undefined || usage !== undefined || isHeld) {
        const edits = [
          ...(surplus ?? []).map((span) => ({ span, bytes: NO_BYTES })),
          ...(usage?.edits ?? []),
        ];
        if (copiedTo < start) out = append(out, bytes.subarray(copiedTo, start));
        if (alias !== undefined && facts.modelSpan !== null)
          edits.push({ span: facts.modelSpan, bytes: alias });
        const frame = rewritten(bytes, start, end, edits);
        copiedTo = end;
        if (isHeld) {
          if (out !== undefined) this.#client.passAll(out);
          out = undefined;
          hold.begin(frame);
        } else out = append(out, frame);
      } else if (alias !== undefined && differs(bytes, facts.modelSpan, alias)) {
        out = append(out, bytes.subarray(copiedTo, facts.modelSpan.start));
        out.push(alias);
        copiedTo = facts.modelSpan.end;
      }
      if (facts.hasOutput) hasOutput = true;
      if (facts.finish !== null) this.#isFiltered ||= this.#isFilter(facts.finish);
      start = end;
      if (facts.kind === 'done') {
        this.#done = true;
        break;
      }
    }
    if (copiedTo < start) {
      const last = copiedTo === 0 && start === bytes.length ? bytes : bytes.subarray(copiedTo, start);
      out = append(out, last);
    }
    if (out !== undefined) (hold.isHolding ? hold : this.#client).passAll(out);
    this.#afterBatch(hasOutput, bytes[start - 1] === LF);
  }

  #afterBatch(hasOutput: boolean, endsWithLf: boolean): void {
    if (hasOutput) {
      const { exchange } = this.#request;
      exchange.markFirstOutput();
      this.#source.progress();
    }
    if (hasOutput || this.#client.isOpen) this.#isFiltered = false;
    const isEnding = (this.#usage.isFinished || this.#done) && !this.#isFiltered;
    if (hasOutput || isEnding || this.#client.heldBytes > MAX_HELD_BYTES) this.#commit();
    if (!this.#done) return;
    if (endsWithLf) this.#endAnswer();
    else this.#source.lastFrame();
  }

  /**
   * Relays a last frame without its blank line if it ends the stream: some clients read it. Before an error frame it is
   * omitted, because the two would merge.
   */
  #relayIncomplete(): void {
    const rest = this.#scanner.rest();
    if (rest.length === 0) return;
    const facts = this.#reader?.read(rest, 0, rest.length) ?? readChunk(rest);
    if (facts.kind === 'other' || (facts.kind === 'comment' && !endsWithComment(rest))) return;
    if (facts.hasError && this.#client.isOpen) {
      this.#source.incomplete('an incomplete error frame');
      return;
    }
    const ends = this.#usage.isFinished || facts.finish !== null || facts.kind === 'done' || facts.hasError;
    if (ends) this.#relay({ bytes: rest, ends: [rest.length] });
  }

  #isFilter(finish: string): boolean {
    const { fallbackOn } = this.#request;
    return !this.#client.isOpen && fallbackOn?.includes('content_filter') === true && isContentFilter(finish);
  }

  /** Commits: the client receives the 200 and the held bytes, and no other target is tried. */
  readonly #commit = () => {
    clearTimeout(this.#commitTimer);
    this.#isFiltered = false;
    this.#client.open();
  };

  /** Ends cleanly as early as possible: some clients read on after `[DONE]`. */
  #endAnswer(): void {
    this.#hold.release();
    if (this.#isFiltered) {
      const failure = filteredAnswer(this.#headers, this.#client.takeHeld(), EVENTS);
      this.#source.finish({ kind: 'failed', failure });
      return;
    }
    this.#client.end();
    this.#source.finish(this.#errors.answered());
  }
}
