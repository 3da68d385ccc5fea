// What one stream used: the usage that the upstream reported, the output since then, and the finish reasons. It changes no frame.
import { type ChunkFacts, textOfChunk } from '../../../wire/chat-chunk.ts';
import { laterUsage, type Usage } from '../../../wire/token-usage.ts';
import type { FrameReader } from '../../contracts/endpoint.ts';
import type { RelayRequest, Source } from '../../contracts/receiver.ts';
import { BYTES_PER_TOKEN } from '../../request/token-estimate.ts';
import type { FinishedChoices } from './usage-strip.ts';

export class StreamUsage {
  readonly #choices: number;
  /** Each finish is an image. */
  readonly #countsImages: boolean;
  readonly #source: Source;
  readonly #reader: FrameReader | undefined;
  /** Frames with a finish reason. */
  #finishes = 0;
  #usage: Usage | null = null;
  /** Output frames and their text since the last usage report. Most frames hold one token. */
  #outputs = 0;
  #text = 0;
  /** The reported usage covers the whole answer. */
  isFinal = false;

  /** @param reader of an endpoint with its own frames */
  constructor({ facts, endpoint }: RelayRequest, source: Source, reader: FrameReader | undefined) {
    this.#choices = facts.estimate.choices ?? 1;
    this.#countsImages = endpoint.measures === 'images';
    this.#source = source;
    this.#reader = reader;
  }

  /** A finish reason arrived: an upstream without `[DONE]` may end now. */
  get isFinished(): boolean {
    return this.#finishes > 0;
  }

  get finishedChoices(): FinishedChoices {
    if (this.#finishes === 0) return 'none';
    return this.#finishes >= this.#choices ? 'all' : 'some';
  }

  /** Whether the frame counted last has the last finish reason, and its usage is still to come. */
  isLastBeforeUsage({ finish, hasError }: ChunkFacts): boolean {
    return finish !== null && !hasError && !this.isFinal && this.#finishes === this.#choices;
  }

  /** @param size of the frame */
  count(facts: ChunkFacts, size: number): void {
    if (facts.finish !== null && !facts.hasError) this.#finishes += 1;
    if (facts.hasOutput) this.#countOutput(this.#reader === undefined ? textOfChunk() : this.#reader.text);
    // A frame that is not valid JSON here (NaN, for example) may still be output for the client.
    else if (facts.kind === 'other' && !facts.usageOnly) this.#countOutput(size);
    if (facts.usage !== null) this.#takeUsage(facts.usage, facts);
  }

  /** Reports at the end of the attempt. */
  end(): void {
    const measured = this.#countsImages && this.#finishes > 0 ? { images: this.#finishes } : undefined;
    this.#source.used(this.#usage, this.#outputs, this.#text, measured);
    // Silence after the final usage is not reasoning: report the usage again to reset it.
    if (this.isFinal && this.#usage !== null)
      this.#source.used({ ...this.#usage }, this.#outputs, this.#text, measured);
  }

  #countOutput(text: number): void {
    this.#outputs += 1;
    this.#text += text;
    this.isFinal = false;
  }

  #takeUsage(reported: Usage, { kind, usageOnly }: ChunkFacts): void {
    // Some upstreams do not count, and some send zeros on every chunk until the end.
    if (reported.total === 0) return;
    const usage = laterUsage(this.#usage, reported);
    this.#usage = usage;
    // Some report cumulative usage: later output is not included.
    if (usage.isInputOnly !== true || this.#text < BYTES_PER_TOKEN) {
      this.#outputs = 0;
      this.#text = 0;
    }
    this.#source.used(usage, this.#outputs, this.#text);
    const isEach = this.#finishes >= this.#choices;
    this.isFinal = kind === 'done' || isEach || (usageOnly && this.#finishes > 0);
  }
}
