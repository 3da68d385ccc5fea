// The reader of the rest of a stream whose client has left: it relays nothing, and ends with the final usage.
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
  #readBytes = 0;

  /** @param scanner and what follows: of the relay, which has read the stream up to here */
  constructor(source: Source, scanner: SseFrameScanner, usage: StreamUsage, reader: FrameReader | undefined) {
    this.#source = source;
    this.#scanner = scanner;
    this.#usage = usage;
    this.#reader = reader;
  }

  data(chunk: Buffer): void {
    this.#readBytes += chunk.length;
    try {
      this.#read(this.#scanner.push(chunk));
    } catch (error) {
      this.#source.unusable(error);
    }
  }

  #read({ bytes, ends }: FrameBatch): void {
    let start = 0;
    for (const end of ends) {
      const facts = this.#reader?.read(bytes, start, end) ?? readChunk(bytes, start, end);
      this.#usage.count(facts, end - start);
      if (facts.kind === 'done' || facts.hasError || this.#usage.isFinal) {
        this.#source.finish(CLIENT_LEFT);
        return;
      }
      start = end;
    }
    if (this.#readBytes > MAX_USAGE_READ_BYTES) this.#source.unusable('too many bytes after the client left');
  }

  end(): void {
    this.#source.finish(CLIENT_LEFT);
  }

  broken(): AttemptResult {
    return CLIENT_LEFT;
  }

  dispose(): void {
    this.#usage.end();
  }
}
