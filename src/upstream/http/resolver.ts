// DNS resolution for one upstream: a lookup for every new connection, and the last addresses as a fallback (serve stale) while
// the resolver fails. The pool bounds the age of connections.
import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { startDeadline } from '../../deadline.ts';

/** Maximum age of stale addresses: some day they belong to another host. */
const MAX_STALE_MS = 3_600_000;
/** Minimum interval between notifications. */
const NOTIFY_EVERY_MS = 60_000;
/** A name has few addresses, and the connect timeout covers even fewer. */
const MAX_ADDRESSES = 16;

export interface ResolverOptions {
  /** Wait for a lookup before stale addresses are used, in milliseconds. */
  readonly patienceMs: number;
  /** Called with `all: true`. Default: getaddrinfo, which applies /etc/hosts and search domains. */
  readonly lookup?: LookupFunction;
  /** Stale addresses are used. Called at most once a minute. `ageMs`: since they were resolved. */
  readonly onStale?: (ageMs: number, cause: unknown) => void;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/** Resolver of one name: the hostname passed to `lookup` must always be the same. */
export class Resolver {
  readonly #patienceMs: number;
  readonly #lookup: LookupFunction;
  readonly #now: () => number;
  #found: { readonly addresses: LookupAddress[]; readonly at: number } | undefined;
  #pending: Promise<LookupAddress[]> | undefined;
  #pendingSince = 0;
  readonly #onStale: ResolverOptions['onStale'];
  #notifiedAt = Number.NEGATIVE_INFINITY;

  constructor({ patienceMs, lookup, onStale, now = () => performance.now() }: ResolverOptions) {
    this.#onStale = onStale;
    this.#patienceMs = patienceMs;
    this.#lookup = lookup ?? ((...args) => dns.lookup(...args));
    this.#now = now;
  }

  /**
   * Lookup function for `net.connect` and `tls.connect`. Without stale addresses it passes on the system's error (ENOTFOUND,
   * EAI_AGAIN) and has no timeout of its own; the connect timeout applies.
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
    // A caller that joins a slow lookup waits only for the remainder.
    const left = Math.max(0, this.#pendingSince + this.#patienceMs - this.#now());
    const stop = startDeadline(left, () => {
      const stale = this.#stale;
      if (stale === undefined) return;
      this.#notifyStale('the resolver is slow');
      end(stale);
    });
    resolving.then(end, (cause: unknown) => {
      const stale = this.#stale;
      if (stale !== undefined && !isOver) this.#notifyStale(cause);
      end(stale ?? (cause instanceof Error ? cause : new Error('the lookup failed', { cause })));
    });
  };

  get #stale(): LookupAddress[] | undefined {
    const found = this.#found;
    return found !== undefined && this.#now() - found.at <= MAX_STALE_MS ? found.addresses : undefined;
  }

  #notifyStale(cause: unknown): void {
    const now = this.#now();
    if (now - this.#notifiedAt < NOTIFY_EVERY_MS) return;
    this.#notifiedAt = now;
    this.#onStale?.(now - (this.#found?.at ?? now), cause);
  }

  /** Single-flight: each lookup occupies a libuv thread, which key hashing and file reads need too. */
  #resolve(hostname: string, options: LookupOptions): Promise<LookupAddress[]> {
    if (this.#pending !== undefined) return this.#pending;
    this.#pendingSince = this.#now();
    this.#pending = new Promise<LookupAddress[]>((resolve, reject) => {
      this.#lookup(hostname, { ...options, all: true }, (error, found) => {
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
        this.#pending = undefined;
      });
    return this.#pending;
  }
}
