// From an Authorization header to a caller, cheapest check first. It writes nothing: keys are made and ended in key-issuer.ts.
//
//   form → known good (fresh) → known bad → failures of the address → record by prefix → HMAC → Argon2id
//
// Everything before the record is in memory. A wrong key never gets as far as Argon2, because it fails the comparison of the
// HMAC; a good key gets there once. What cannot be checked is answered 503, never 401, and never let in.
import { timingSafeEqual } from 'node:crypto';
import { GatewayError } from '../errors.ts';
import type { Prefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { addressBlock } from './address-block.ts';
import { FailureLimit } from './failure-limits.ts';
import type { Hasher } from './hashing/hasher.ts';
import type { KeySecret } from './hashing/hashing-secret.ts';
import { reasonOf, unavailable } from './key/auth-unavailable.ts';
import { Key } from './key/key.ts';
import { type CheckableKey, type Principal, principalOf } from './key/principal.ts';
import {
  ChangeClock,
  type Fingerprint,
  Fingerprints,
  FRESH_MS,
  KeyCache,
  type KeyListener,
  type KeyNotice,
  type KnownKey,
  NegativeCache,
  UNLINKED_FRESH_MS,
} from './records/key-cache.ts';
import { RecordLookup } from './records/record-lookup.ts';
import type { SharedRecords } from './records/shared-records.ts';

/** A key may change while it is being checked; then it is checked again, but not for ever. */
const ROUNDS = 3;

interface AuthenticatorOptions {
  readonly store: Pick<Store, 'findKey'>;
  /** What replicas share in Redis, when there are several. */
  readonly shared?: SharedRecords | undefined;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  readonly metrics: Pick<Metrics, 'authOutcomes' | 'authUnavailable' | 'authCacheEntries'>;
  /** `auth.failures_per_minute` of the configuration in force. */
  readonly failuresPerMinute: () => number;
  /**
   * Called before a key that nobody has proved yet is let in. It is let in when this resolves: whoever needs to know that a key
   * was never used can write it down here, once for each key, and not with every request.
   */
  readonly onFirstUse?: ((prefix: Prefix) => Promise<void>) | undefined;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/** Which holders are let in. */
type RequiredStanding = 'good' | 'any';

interface Check {
  readonly key: Key;
  readonly fingerprint: Fingerprint;
  readonly known: KnownKey | undefined;
  readonly address: string;
  readonly standing: RequiredStanding;
}

interface Verdict {
  readonly principal: Principal;
  readonly outcome: 'verified' | 'cached';
}

export class Authenticator implements KeyListener {
  readonly #secret: KeySecret;
  readonly #hasher: Hasher;
  readonly #now: () => number;
  readonly #fingerprints = new Fingerprints();
  readonly #clock = new ChangeClock();
  readonly #known = new KeyCache();
  readonly #refused = new NegativeCache(this.#clock);
  readonly #shared: SharedRecords | undefined;
  readonly #onFirstUse: AuthenticatorOptions['onFirstUse'];
  readonly #failures: FailureLimit;
  readonly #prefixFailures: FailureLimit;
  readonly #lookup: RecordLookup;
  /** Checks under way: many requests with one key are one check. */
  readonly #checks = new Map<Fingerprint, Promise<Verdict>>();
  readonly #outcomes: AuthenticatorOptions['metrics']['authOutcomes'];
  readonly #unavailable: AuthenticatorOptions['metrics']['authUnavailable'];
  readonly #entries: AuthenticatorOptions['metrics']['authCacheEntries'];
  readonly #cachedOutcome: { inc(): void };

  constructor(parts: AuthenticatorOptions) {
    const now = parts.now ?? (() => performance.now());
    this.#now = now;
    this.#secret = parts.secret;
    this.#hasher = parts.hasher;
    this.#shared = parts.shared;
    this.#onFirstUse = parts.onFirstUse;
    this.#failures = new FailureLimit(parts.failuresPerMinute, now, addressBlock);
    this.#prefixFailures = new FailureLimit(parts.failuresPerMinute, now, (prefix) => prefix);
    this.#lookup = new RecordLookup({
      store: parts.store,
      shared: parts.shared,
      clock: this.#clock,
      now,
      onMark: (notice) => void this.changed(notice),
    });
    this.#outcomes = parts.metrics.authOutcomes;
    this.#unavailable = parts.metrics.authUnavailable;
    this.#entries = parts.metrics.authCacheEntries;
    this.#cachedOutcome = this.#outcomes.cell({ outcome: 'cached' });
  }

  /**
   * @param authorization value of the request's one Authorization header
   * @param address of the client; failures are counted by it
   * @returns the caller at once when the key was checked within the last 5 s, a promise otherwise
   * @throws GatewayError (or rejects with it) `missing_api_key`, `invalid_api_key`, `too_many_failed_keys`,
   *   `billing_not_active` for a good key whose holder is suspended, or `auth_unavailable`
   */
  authenticate(authorization: string | undefined, address: string): Principal | Promise<Principal> {
    return this.#authenticate(authorization, address, 'good');
  }

  /**
   * The same for what a holder may do while suspended: it knows who asks, and throws no `billing_not_active`.
   * `standing` of the caller says how the holder stands.
   */
  identify(authorization: string | undefined, address: string): Principal | Promise<Principal> {
    return this.#authenticate(authorization, address, 'any');
  }

  #authenticate(
    authorization: string | undefined,
    address: string,
    standing: RequiredStanding,
  ): Principal | Promise<Principal> {
    if (!Key.isOffered(authorization)) {
      this.#outcomes.inc({ outcome: 'refused' });
      if (authorization) this.#recordFailure(address);
      throw new GatewayError('missing_api_key');
    }
    const key = Key.fromHeader(authorization);
    if (key === undefined) {
      this.#outcomes.inc({ outcome: 'refused' });
      this.#recordFailure(address);
      throw new GatewayError('invalid_api_key');
    }
    const fingerprint = this.#fingerprints.of(key);
    const known = this.#known.get(fingerprint);
    if (known === undefined) {
      this.#admit(fingerprint, key.prefix, address);
    } else if (this.#known.isFresh(known, this.#now())) {
      if (standing === 'good' && known.principal.standing !== 'good') throw this.#suspended();
      this.#cachedOutcome.inc();
      return known.principal;
    }
    return this.#check({ key, fingerprint, known, address, standing });
  }

  /** A change of a key, by this process or another. */
  changed({ prefix, kind, version }: KeyNotice): boolean {
    const isNews = this.#clock.mark(prefix, version);
    if (kind === 'changed') this.#known.invalidate(prefix);
    // An `issued` key may be one that this process made and knows already.
    else if (kind !== 'issued') this.#known.drop(prefix);
    this.#showEntries();
    return isNews;
  }

  caughtUp(at: number): void {
    this.#clock.caughtUp(at);
  }

  /** Nobody tells this process of changes by others at the moment: what it knows may be old, and is asked about more often. */
  unlinked(): void {
    this.#known.expire(this.#now(), UNLINKED_FRESH_MS);
  }

  /** It is told again; of what it was not told meanwhile it knows nothing. */
  linked(): void {
    this.#known.expire(this.#now(), FRESH_MS);
  }

  learned(key: Key, principal: Principal): void {
    // Another process may have ended or changed it since it was stored.
    if (!this.#clock.allows(principal.prefix, principal.version)) return;
    this.#known.refresh(this.#fingerprints.of(key), principal, this.#now());
    this.#showEntries();
  }

  #suspended(): GatewayError {
    this.#outcomes.inc({ outcome: 'suspended' });
    return new GatewayError('billing_not_active');
  }

  /** Lets a key that is not known to be good go on to the store, unless it is known to be bad or the address tried too many. */
  #admit(fingerprint: Fingerprint, prefix: Prefix, address: string): void {
    // Repeating one bad key costs nothing and is not counted: a forgotten program with an old key must not use up the
    // attempts of everybody behind the same address.
    if (this.#refused.has(fingerprint, prefix, this.#now())) {
      this.#outcomes.inc({ outcome: 'refused_cached' });
      throw new GatewayError('invalid_api_key');
    }
    const retryAfterMs = this.#failures.waitFor(address);
    if (retryAfterMs > 0) {
      this.#outcomes.inc({ outcome: 'limited' });
      throw new GatewayError('too_many_failed_keys', undefined, { retryAfterMs });
    }
  }

  async #check({ key, fingerprint, known, address, standing }: Check): Promise<Principal> {
    let check = this.#checks.get(fingerprint);
    const leads = check === undefined;
    if (check === undefined) {
      check = this.#decide(key, fingerprint, known).finally(() => this.#checks.delete(fingerprint));
      this.#checks.set(fingerprint, check);
    }
    let verdict: Verdict;
    try {
      verdict = await check;
    } catch (error) {
      this.#countFailure(error, leads ? { address, prefix: key.prefix } : undefined);
      throw error;
    }
    const { principal, outcome } = verdict;
    if (standing === 'good' && principal.standing !== 'good') throw this.#suspended();
    this.#outcomes.inc({ outcome });
    return principal;
  }

  /** @param blamed whose failure it is when the key was bad; undefined when it was counted already */
  #countFailure(
    error: unknown,
    blamed: { readonly address: string; readonly prefix: Prefix } | undefined,
  ): void {
    const code = error instanceof GatewayError ? error.code : undefined;
    if (code === 'invalid_api_key') {
      this.#outcomes.inc({ outcome: 'refused' });
      if (blamed !== undefined) this.#recordFailure(blamed.address, blamed.prefix);
    } else if (code === 'too_many_failed_keys') this.#outcomes.inc({ outcome: 'limited' });
    else {
      this.#outcomes.inc({ outcome: 'unavailable' });
      this.#unavailable.inc({ reason: reasonOf(error) });
    }
  }

  async #decide(key: Key, fingerprint: Fingerprint, known: KnownKey | undefined): Promise<Verdict> {
    for (let round = 0; round < ROUNDS; round += 1) {
      let found: Awaited<ReturnType<RecordLookup['find']>>;
      try {
        found = await this.#lookup.find(key.prefix, known !== undefined);
      } catch (error) {
        if (known !== undefined && this.#known.serveStale(fingerprint, known, this.#now())) {
          return { principal: known.principal, outcome: 'cached' };
        }
        throw error;
      }
      const { record, position, soughtAt, at, isProved } = found;
      if (record === undefined || record.state !== 'active' || !this.#matches(record, key)) {
        if (!this.#clock.holds(key.prefix, position)) continue;
        this.#refused.add(fingerprint, this.#now(), position);
        this.#showEntries();
        this.#throwIfTriedTooOften(key.prefix);
        throw new GatewayError('invalid_api_key');
      }
      // Whatever its version is by now: the hash of a key never changes.
      const needsProof = !isProved && known === undefined;
      if (needsProof && !(await this.#prove(record, key))) {
        // The HMAC proves that this is the key; a hash that denies it is damage in the store, and not the caller's fault.
        throw unavailable('contradiction', `HMAC and Argon2 hash of key ${key.prefix} contradict each other`);
      }
      if (needsProof) await this.#markUse(key.prefix);
      if (!this.#clock.holds(key.prefix, position)) continue;
      // Not waited for: Redis may be slow, and the next replica can ask the store too.
      if (!isProved) void this.#shared?.keep(record);
      const principal = principalOf(record);
      this.#known.refresh(fingerprint, principal, at, soughtAt);
      this.#showEntries();
      return { principal, outcome: 'verified' };
    }
    throw unavailable('changing', `key ${key.prefix} changed ${ROUNDS} times while it was checked`);
  }

  /** Before the key is taken for proved here or, by way of Redis, anywhere. */
  async #markUse(prefix: Prefix): Promise<void> {
    try {
      await this.#onFirstUse?.(prefix);
    } catch (error) {
      throw unavailable('store', 'the first use of a key could not be written down', error);
    }
  }

  /** Argon2id, once in the whole fleet: the others wait for the one that began, and take its word. */
  async #prove(record: CheckableKey, key: Key): Promise<boolean> {
    const shared = this.#shared;
    if (shared === undefined) return this.#hasher.verify(record.argon2, key);
    if (!(await shared.claimProof(record)) && (await shared.isProvedSoon(record))) return true;
    try {
      return await this.#hasher.verify(record.argon2, key);
    } catch (error) {
      void shared.disclaimProof(record);
      throw error;
    }
  }

  #matches(record: CheckableKey, key: Key): boolean {
    const digest = this.#secret.digest(key);
    return record.hmac.byteLength === digest.byteLength && timingSafeEqual(record.hmac, digest);
  }

  /** After many failures with one prefix; whoever has the right key for it has passed by then. */
  #throwIfTriedTooOften(prefix: Prefix): void {
    const retryAfterMs = this.#prefixFailures.waitFor(prefix);
    if (retryAfterMs > 0) throw new GatewayError('too_many_failed_keys', undefined, { retryAfterMs });
  }

  #recordFailure(address: string, prefix?: Prefix): void {
    this.#failures.record(address);
    if (prefix !== undefined) this.#prefixFailures.record(prefix);
    this.#entries.set({ cache: 'failures' }, this.#failures.size);
  }

  #showEntries(): void {
    this.#entries.set({ cache: 'positive' }, this.#known.size);
    this.#entries.set({ cache: 'negative' }, this.#refused.size);
  }
}
