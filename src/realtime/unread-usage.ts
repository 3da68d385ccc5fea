// The usage of a running answer after its client has left: the upstream is read on for it, and a Close of the client, which would end
// the answer, is held back meanwhile.
import type { Duplex } from 'node:stream';
import { MAX_USAGE_READ_BYTES, type UsageRead, type UsageReads } from '../upstream/usage-reads.ts';
import type { WebSocketFrameReader } from './websocket/websocket-frames.ts';

interface UnreadUsageOptions {
  readonly upstream: Duplex;
  /** Reads the frames of the upstream. */
  readonly frames: WebSocketFrameReader;
  readonly usage: { readonly awaitsUsage: boolean };
  readonly usageReads: Pick<UsageReads, 'begin'>;
  /** The upstream is no longer read. */
  readonly onEnd: () => void;
}

/** At most once per session. */
export class UnreadUsage {
  readonly #options: UnreadUsageOptions;
  #read: UsageRead | undefined;
  #bytes = 0;
  #heldClose: Buffer | undefined;
  #hasBegun = false;

  constructor(options: UnreadUsageOptions) {
    this.#options = options;
  }

  get isReading(): boolean {
    return this.#read !== undefined;
  }

  get holdsClose(): boolean {
    return this.#heldClose !== undefined;
  }

  /** Whether the usage of an answer is still to come, and the upstream was not read for it before. */
  get isExpected(): boolean {
    const { usage, frames } = this.#options;
    return !this.#hasBegun && usage.awaitsUsage && !frames.hasClosed;
  }

  /** Call it if `isExpected`. @returns whether the upstream is read on; not if too many others are */
  begin(): boolean {
    this.#hasBegun = true;
    this.#read = this.#options.usageReads.begin(() => this.end());
    return this.#read !== undefined;
  }

  /** Holds the client's Close back: the upstream would end at once and report nothing. */
  hold(close: Buffer): void {
    this.#heldClose = Buffer.from(close);
  }

  /** Ends the reading if the usage has arrived. */
  endIfReported(): void {
    if (!this.#options.usage.awaitsUsage) this.end();
  }

  /** Bytes of the upstream that no client gets. */
  push(bytes: Buffer): void {
    if (this.#read === undefined) return;
    this.#bytes += bytes.length;
    this.#options.frames.push(bytes);
    if (this.#bytes > MAX_USAGE_READ_BYTES) this.end();
    else this.endIfReported();
  }

  end(): void {
    const read = this.#read;
    if (read === undefined) return;
    const { usage, upstream, onEnd } = this.#options;
    this.#read = undefined;
    read.end(!usage.awaitsUsage);
    if (this.#heldClose !== undefined && upstream.writable) upstream.write(this.#heldClose);
    this.#heldClose = undefined;
    onEnd();
  }
}
