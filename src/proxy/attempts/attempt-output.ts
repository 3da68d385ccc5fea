// The billable output of one attempt: the usage that the upstream reports, the output that no report covers, and the silence in
// which a model may have produced hidden reasoning, also while the client does not read. usage-meter.ts converts these to tokens.
import { ONE_REQUEST, type Quantities, type Usage } from '../../wire/token-usage.ts';
import type { RequestFacts } from '../contracts/endpoint.ts';
import type { AttemptUse, Unreported } from '../contracts/receiver.ts';

/** A shorter pause between two pieces of output is the pace of the model or the network. */
export const MIN_SILENCE_MS = 1_000;

export class AttemptOutput {
  usage: Usage | null = null;
  /** Output frames that the usage does not cover. */
  frames = 0;
  /** The first output arrived. */
  hasBegun = false;
  #textBytes = 0;
  #measured: Quantities | undefined;
  /** Start of the current silence; undefined before the request is sent. */
  #silentSince: number | undefined;
  #silentMs = 0;
  #wasSent = false;

  /** The request is sent in full. @param now monotonic milliseconds, here and below */
  sent(now: number): void {
    this.#wasSent = true;
    this.#silentSince = now;
  }

  /** Output arrived. @returns whether it is the first */
  progress(now: number): boolean {
    const isFirst = !this.hasBegun;
    this.#addSilence(now);
    this.#silentSince = now;
    this.hasBegun = true;
    return isFirst;
  }

  /** As `Source.used`. A new report covers the reasoning before it. */
  used(now: number, usage: Usage | null, frames: number, textBytes: number, measured?: Quantities): void {
    if (usage !== null && usage !== this.usage) {
      this.#silentMs = 0;
      if (this.#silentSince !== undefined) this.#silentSince = now;
    }
    this.usage = usage;
    this.frames = frames;
    this.#textBytes = textBytes;
    this.#measured = measured;
  }

  /** What the request asked for, and what is known of its answer. */
  counts({
    quantities = ONE_REQUEST,
  }: RequestFacts): Pick<AttemptUse, 'usage' | 'outputs' | 'quantities' | 'measured'> {
    return { usage: this.usage, outputs: this.frames, quantities, measured: this.#measured };
  }

  /** @param isAtOnce the output is visible only once it is complete */
  unreported(now: number, isAtOnce: boolean): Unreported {
    this.#addSilence(now);
    this.#silentSince = undefined;
    // The usage of a complete answer covers all of it.
    const isCovered = isAtOnce && this.usage !== null;
    return {
      textBytes: this.#textBytes,
      silentMs: isCovered ? 0 : this.#silentMs,
      isReserved: isAtOnce && this.#wasSent && !isCovered,
    };
  }

  /** All silence counts before the first output, and only long pauses after it. */
  #addSilence(now: number): void {
    if (this.#silentSince === undefined) return;
    const ms = now - this.#silentSince;
    if (!this.hasBegun || ms >= MIN_SILENCE_MS) this.#silentMs += ms;
  }
}
