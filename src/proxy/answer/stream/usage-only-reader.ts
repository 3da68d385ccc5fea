// The reader of a stream that no client gets, because its client has left or did not request a stream: it relays nothing, and ends with
// the final usage.
import { MAX_USAGE_READ_BYTES } from '../../../upstream/usage-reads.ts';
import { readChunk } from '../../../wire/chat-chunk.ts';
import type { FrameBatch, SseFrameScanner } from '../../../wire/sse-frames.ts';
import type { FrameReader } from '../../contracts/endpoint.ts';
import type { AttemptResult, Receiver, Source } from '../../contracts/receiver.ts';
import type { StreamUsage } from './stream-usage.ts';

export const CLIENT_LEFT: AttemptResult = { kind: 'answered', outcome: 'client_closed' };

export class UsageOnlyReader implements Receiver {
  readonly #source: Source;
  readonly #scanner: SseFrameScanner;
  readonly #usage: StreamUsage;
  readonly #reader: FrameReader | undefined;
  readonly #fault: string | undefined;
  #readBytes = 0;

  /**
   * @param scanner and what follows: of the relay, if it has read the stream up to here
   * @param fault why the answer cannot be relayed. Default: its client has left
   */
  constructor(
    source: Source,
    scanner: SseFrameScanner,
    usage: StreamUsage,
    reader: FrameReader | undefined,
    fault?: string,
  ) {
    this.#source = source;
    this.#scanner = scanner;
    this.#usage = usage;
    this.#reader = reader;
    this.#fault = fault;
  }

  data(chunk: Buffer): void {
    this.#readBytes += chunk.length;
    try {
      this.#read(this.#scanner.push(chunk));
    } catch (error) {
      this.#fail(error);
    }
  }

  #read({ bytes, ends }: FrameBatch): void {
    let start = 0;
    for (const end of ends) {
      const facts = this.#reader?.read(bytes, start, end) ?? readChunk(bytes, start, end);
      this.#usage.count(facts, end - start);
      if (facts.hasOutput && this.#fault !== undefined) this.#source.progress();
      if (facts.kind === 'done' || facts.hasError || this.#usage.isFinal) return void this.end();
      start = end;
    }
    if (this.#readBytes > MAX_USAGE_READ_BYTES) this.#fail('too many bytes that no client gets');
  }

  end(): void {
    if (this.#fault === undefined) this.#source.finish(CLIENT_LEFT);
    else this.#source.unrelayable(this.#fault);
  }

  #fail(cause: unknown): void {
    if (this.#fault === undefined) this.#source.unusable(cause);
    else this.#source.unrelayable(this.#fault);
  }

  broken(): AttemptResult | undefined {
    return this.#fault === undefined ? CLIENT_LEFT : undefined;
  }

  dispose(): void {
    this.#usage.end();
  }
}
