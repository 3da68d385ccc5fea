// The addresses behind the name of one upstream: looked up for every new connection, and kept for the time when the
// resolver fails. It makes no connection, and how old a connection may become is the pool's affair.
import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { startDeadline } from '../../deadline.ts';

/** So long after they were last found, addresses may still be used: they belong to somebody else one day. */
const KEPT_MS = 3_600_000;
/** Between two words about the same trouble. */
const TELL_EVERY_MS = 60_000;
/** A name has few addresses, and a connection has time for fewer. */
const MAX_ADDRESSES = 16;

export interface ResolverOptions {
  /** How long a lookup may take while there are addresses from an earlier one, in milliseconds. */
  readonly patienceMs: number;
  /** Asks the system, with `all: true`. Default: getaddrinfo, which knows /etc/hosts and search domains. */
  readonly lookup?: LookupFunction;
  /** Addresses from an earlier lookup are used. Called at most once a minute. `ageMs`: since they were found. */
  readonly onStale?: (ageMs: number, cause: unknown) => void;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/** For one name: whatever is asked, what is remembered are the addresses that were found last. */
export class Resolver {
  readonly #patienceMs: number;
  readonly #ask: LookupFunction;
  readonly #now: () => number;
  #found: { readonly addresses: LookupAddress[]; readonly at: number } | undefined;
  #asking: Promise<LookupAddress[]> | undefined;
  #askedAt = 0;
  readonly #onStale: ResolverOptions['onStale'];
  #staleToldAt = Number.NEGATIVE_INFINITY;

  constructor({ patienceMs, lookup, onStale, now = () => performance.now() }: ResolverOptions) {
    this.#onStale = onStale;
    this.#patienceMs = patienceMs;
    this.#ask = lookup ?? ((...words) => dns.lookup(...words));
    this.#now = now;
  }

  /**
   * For `net.connect` and `tls.connect`. It fails with the system's error (ENOTFOUND, EAI_AGAIN) where nothing is kept, and
   * then has no time limit of its own: that of the connection counts.
   */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    let isOver = false;
    const end = (outcome: LookupAddress[] | Error) => {
      if (isOver) return;
      isOver = true;
      stop();
      if (outcome instanceof Error) callback(outcome, '');
      else if (options.all === true) callback(null, outcome);
      else callback(null, outcome[0]?.address ?? '', outcome[0]?.family);
    };
    const resolving = this.#resolve(hostname, options);
    // Who joins a lookup that is slow already need not find that out again.
    const left = Math.max(0, this.#askedAt + this.#patienceMs - this.#now());
    const stop = startDeadline(left, () => {
      const kept = this.#kept;
      if (kept === undefined) return;
      this.#tellStale('the resolver is slow');
      end(kept);
    });
    resolving.then(end, (cause: unknown) => {
      const kept = this.#kept;
      if (kept !== undefined && !isOver) this.#tellStale(cause);
      end(kept ?? (cause instanceof Error ? cause : new Error('the lookup failed', { cause })));
    });
  };

  get #kept(): LookupAddress[] | undefined {
    const found = this.#found;
    return found !== undefined && this.#now() - found.at <= KEPT_MS ? found.addresses : undefined;
  }

  #tellStale(cause: unknown): void {
    const now = this.#now();
    if (now - this.#staleToldAt < TELL_EVERY_MS) return;
    this.#staleToldAt = now;
    this.#onStale?.(now - (this.#found?.at ?? now), cause);
  }

  /** One lookup at a time: each holds a thread that hashing keys and reading files wait for too. */
  #resolve(hostname: string, options: LookupOptions): Promise<LookupAddress[]> {
    if (this.#asking !== undefined) return this.#asking;
    this.#askedAt = this.#now();
    this.#asking = new Promise<LookupAddress[]>((resolve, reject) => {
      this.#ask(hostname, { ...options, all: true }, (error, found) => {
        if (error !== null) reject(error);
        else if (typeof found === 'string' || found.length === 0)
          reject(new Error('the name has no address'));
        else resolve(found.slice(0, MAX_ADDRESSES));
      });
    })
      .then((addresses) => {
        this.#found = { addresses, at: this.#now() };
        return addresses;
      })
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }
}
