// How many bad keys an address may try. It is asked only about callers that this process has not verified before.
import { addressBlock } from './address-block.ts';

const MAX_ADDRESSES = 50_000;
const MINUTE_MS = 60_000;

interface Bucket {
  /** Failures, less what time has forgiven. */
  readonly used: number;
  /** When `used` was true, in milliseconds of the injected clock. */
  readonly at: number;
}

/** A bucket per address (IPv6: per /64) that failures fill and that empties steadily within a minute. */
export class FailureLimit {
  readonly #perMinute: () => number;
  readonly #now: () => number;
  readonly #buckets = new Map<string, Bucket>();

  /** @param perMinute the limit at this moment; it may change with the configuration */
  constructor(perMinute: () => number, now: () => number) {
    this.#perMinute = perMinute;
    this.#now = now;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Milliseconds until this address may try again; 0 when it may now. */
  waitFor(address: string): number {
    // Nothing to compute for an address without failures, which is nearly every one.
    if (this.#buckets.size === 0) return 0;
    const block = addressBlock(address);
    const used = this.#used(block);
    if (used === 0) {
      this.#buckets.delete(block);
      return 0;
    }
    const over = used - (this.#perMinute() - 1);
    return over <= 0 ? 0 : Math.max(1, Math.ceil((over / this.#perMinute()) * MINUTE_MS));
  }

  record(address: string): void {
    const block = addressBlock(address);
    const used = this.#used(block) + 1;
    // Not above the limit: time already spent waiting must count.
    const bucket = { used: Math.min(used, this.#perMinute()), at: this.#now() };
    this.#buckets.delete(block);
    this.#buckets.set(block, bucket);
    if (this.#buckets.size <= MAX_ADDRESSES) return;
    for (const oldest of this.#buckets.keys()) {
      this.#buckets.delete(oldest);
      break;
    }
  }

  #used(block: string): number {
    const bucket = this.#buckets.get(block);
    if (bucket === undefined) return 0;
    const forgiven = ((this.#now() - bucket.at) / MINUTE_MS) * this.#perMinute();
    return Math.max(0, bucket.used - forgiven);
  }
}
