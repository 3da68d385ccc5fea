// What one attempt has put out, as far as it must be paid for: the usage that its upstream reports, what came that no report
// covers, and the time in which a model may have thought unseen. What that comes to in tokens is for usage-meter.ts.
import type { Usage } from '../../wire/chat-chunk.ts';
import type { Unreported } from '../contracts/receiver.ts';

/** Between two pieces of output. A shorter pause is the pace of the model or of the network. */
export const MIN_SILENCE_MS = 1_000;

export class AttemptOutput {
  usage: Usage | null = null;
  /** Frames of output that the usage does not cover. */
  frames = 0;
  /** The first output came. */
  hasBegun = false;
  #textBytes = 0;
  /** From when the upstream shows nothing; undefined before it has the request, and while the client does not read. */
  #silentSince: number | undefined;
  #silentMs = 0;
  #wasSent = false;

  /** The upstream has all of the request. @param now monotonic milliseconds, as in all that follows */
  sent(now: number): void {
    this.#wasSent = true;
    this.#silentSince = now;
  }

  /** Output came. @returns whether it is the first */
  progress(now: number): boolean {
    const isFirst = !this.hasBegun;
    this.#addSilence(now);
    this.#silentSince = now;
    this.hasBegun = true;
    return isFirst;
  }

  /** The client does not read, so the upstream is not read either. */
  hold(now: number): void {
    this.#addSilence(now);
    this.#silentSince = undefined;
  }

  resume(now: number): void {
    this.#silentSince = now;
  }

  /** As `Source.used`. A new report covers what was thought before it. */
  used(now: number, usage: Usage | null, frames: number, textBytes: number): void {
    if (usage !== null && usage !== this.usage) {
      this.#silentMs = 0;
      if (this.#silentSince !== undefined) this.#silentSince = now;
    }
    this.usage = usage;
    this.frames = frames;
    this.#textBytes = textBytes;
  }

  /** @param isAtOnce nothing of the output shows before all of it is there */
  unreported(now: number, isAtOnce: boolean): Unreported {
    this.#addSilence(now);
    this.#silentSince = undefined;
    // A whole answer reports for all of itself.
    const isCovered = isAtOnce && this.usage !== null;
    return {
      textBytes: this.#textBytes,
      silentMs: isCovered ? 0 : this.#silentMs,
      isReserved: isAtOnce && this.#wasSent && !isCovered,
    };
  }

  /** Until the first output all of it counts, and from then on the long pauses. */
  #addSilence(now: number): void {
    if (this.#silentSince === undefined) return;
    const ms = now - this.#silentSince;
    if (!this.hasBegun || ms >= MIN_SILENCE_MS) this.#silentMs += ms;
  }
}
