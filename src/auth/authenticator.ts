// Authenticates the Authorization header to a principal, cheapest check first. It is read-only: key-issuer.ts writes keys.
//
//   syntax → positive cache (fresh) → negative cache → failure limit of the address → record by prefix → HMAC → Argon2id
//
// Everything before the record is in memory. A wrong key never reaches Argon2, because it fails the HMAC comparison; a valid
// key reaches it once. A key that cannot be checked fails closed with 503, never 401.
import { withDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import { singleFlight } from '../single-flight.ts';
import type { Prefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { addressBlock } from './address-block.ts';
import { FailureLimit } from './failure-limits.ts';
import { isSameBytes, type KeySecret } from './hashing/hashing-secret.ts';
import { reasonOf, unavailable } from './key/auth-unavailable.ts';
import { Key } from './key/key.ts';
import { type Principal, principalOf, rejectionOfKey } from './key/principal.ts';
import { KeyProofs, type KeyProofsOptions } from './key-proofs.ts';
import type { KeyUses } from './key-uses.ts';
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
import { type FoundRecord, RecordLookup } from './records/record-lookup.ts';

/** How long a request waits for the check of its key, in milliseconds. */
const CHECK_MS = 10_000;
/** Maximum number of checks for a key that changes during its check. */
const MAX_ROUNDS = 3;

interface AuthenticatorOptions extends KeyProofsOptions {
  readonly store: Pick<Store, 'findKey'>;
  readonly secret: KeySecret;
  readonly metrics: Pick<Metrics, 'authOutcomes' | 'authUnavailable' | 'authCacheEntries'>;
  /** `auth.failures_per_minute` of the current configuration. */
  readonly failuresPerMinute: () => number;
  /** Records the days of use. Default: nothing does. */
  readonly uses?: Pick<KeyUses, 'record'> | undefined;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

interface Verdict {
  readonly principal: Principal;
  readonly outcome: 'verified' | 'cached';
}

export class Authenticator implements KeyListener {
  readonly #parts: AuthenticatorOptions;
  readonly #now: () => number;
  readonly #fingerprints = new Fingerprints();
  readonly #clock = new ChangeClock();
  readonly #positive = new KeyCache();
  readonly #negative = new NegativeCache(this.#clock);
  readonly #failures: FailureLimit;
  readonly #prefixFailures: FailureLimit;
  readonly #lookup: RecordLookup;
  /** Concurrent requests with one key share one check. */
  readonly #checked = singleFlight((fingerprint: Fingerprint, key: Key, known: KnownKey | undefined) =>
    this.#decide(fingerprint, key, known),
  );
  readonly #proofs: KeyProofs;
  readonly #cachedOutcome: { inc(): void };

  constructor(parts: AuthenticatorOptions) {
    const now = parts.now ?? (() => performance.now());
    this.#parts = parts;
    this.#now = now;
    this.#failures = new FailureLimit(parts.failuresPerMinute, now, addressBlock);
    this.#prefixFailures = new FailureLimit(parts.failuresPerMinute, now, (prefix) => prefix);
    this.#proofs = new KeyProofs(parts);
    const onTombstone = (notice: KeyNotice) => void this.changed(notice);
    this.#lookup = new RecordLookup({ ...parts, clock: this.#clock, now, onTombstone });
    this.#cachedOutcome = parts.metrics.authOutcomes.child({ outcome: 'cached' });
  }

  /**
   * @param authorization value of the request's one Authorization header
   * @param address client address, by which failures are counted
   * @param standing `any` for operations that suspended holders may use: it does not throw `billing_not_active`
   * @returns the principal synchronously when the key was checked within the last 5 s, otherwise a promise
   * @throws GatewayError (or rejects with it) `missing_api_key`, `invalid_api_key`, `api_key_expired`, `too_many_failed_keys`,
   *   `billing_not_active` for a valid key with a suspended holder, or `auth_unavailable`
   */
  authenticate(
    authorization: string | undefined,
    address: string,
    standing: 'good' | 'any' = 'good',
  ): Principal | Promise<Principal> {
    const key = Key.isOffered(authorization) ? Key.fromHeader(authorization) : undefined;
    if (key === undefined) {
      this.#count('refused');
      if (authorization) this.#recordFailure(address);
      throw new GatewayError(Key.isOffered(authorization) ? 'invalid_api_key' : 'missing_api_key');
    }
    const fingerprint = this.#fingerprints.of(key);
    const known = this.#positive.get(fingerprint, key.prefix);
    if (known === undefined) {
      this.#rejectKnownBad(fingerprint, key.prefix, address);
    } else if (this.#positive.isFresh(known, this.#now(), this.#clock.caughtUpAt)) {
      this.#accept(standing, known.principal, known);
      this.#cachedOutcome.inc();
      return known.principal;
    }
    return this.#check(key, fingerprint, known, address).then(({ principal, outcome }) => {
      this.#accept(standing, principal, this.#positive.get(fingerprint, key.prefix));
      this.#count(outcome);
      return principal;
    });
  }

  /**
   * The principal of a key that this gateway itself vouches for, as by a client secret.
   * @throws (rejects with) GatewayError `invalid_api_key` when the key has ended, `api_key_expired`, `billing_not_active` or
   *   `auth_unavailable`
   */
  async principalOf(prefix: Prefix): Promise<Principal> {
    const { record } = await this.#lookup.find(prefix, true);
    if (record?.state !== 'active') throw new GatewayError('invalid_api_key');
    const principal = principalOf(record);
    this.#accept('good', principal, undefined);
    return principal;
  }

  /** Handles a change of a key by this process or another. */
  changed({ prefix, kind, version }: KeyNotice): boolean {
    const isNews = this.#clock.record(prefix, version);
    if (kind === 'changed') this.#positive.invalidate(prefix);
    // Keep an `issued` key: this process may have issued and cached it.
    else if (kind !== 'issued') this.#positive.drop(prefix);
    this.#updateMetrics();
    return isNews;
  }

  caughtUp(at: number): void {
    this.#clock.caughtUp(at);
  }

  lost(): void {
    this.#positive.expire(this.#now());
  }

  /** Messages from other processes may be missed from now on: expires the cache and shortens its freshness. */
  unlinked(): void {
    this.#positive.expire(this.#now(), UNLINKED_FRESH_MS);
  }

  /** Messages arrive again. Those sent in between were missed, so the cache expires. */
  linked(): void {
    this.#positive.expire(this.#now(), FRESH_MS);
  }

  preload(key: Key, principal: Principal): void {
    // Another process may have revoked or changed the key since it was stored.
    if (!this.#clock.allows(principal.prefix, principal.version)) return;
    this.#positive.refresh(this.#fingerprints.of(key), principal, this.#now());
    this.#updateMetrics();
  }

  /** @throws GatewayError for a valid key that is not served */
  #accept(required: 'good' | 'any', principal: Principal, known: KnownKey | undefined): void {
    const rejection = rejectionOfKey(principal, required);
    if (rejection !== undefined) {
      this.#count(rejection.code === 'api_key_expired' ? 'expired' : 'suspended');
      throw rejection;
    }
    if (known !== undefined)
      known.usedOn = this.#parts.uses?.record(principal.prefix, known.usedOn) ?? known.usedOn;
  }

  #count(outcome: string): void {
    this.#parts.metrics.authOutcomes.inc({ outcome });
  }

  /** Rejects an uncached key that the negative cache has or whose address has too many failures. */
  #rejectKnownBad(fingerprint: Fingerprint, prefix: Prefix, address: string): void {
    // Repeats of one bad key are cheap and do not count: a forgotten program with an old key must not use up the
    // attempts of all clients behind the same address.
    if (this.#negative.has(fingerprint, prefix, this.#now())) {
      this.#count('refused_cached');
      throw new GatewayError('invalid_api_key');
    }
    const retryAfterMs = this.#failures.waitFor(address);
    if (retryAfterMs === 0) return;
    this.#count('limited');
    throw new GatewayError('too_many_failed_keys', undefined, { retryAfterMs });
  }

  async #check(
    key: Key,
    fingerprint: Fingerprint,
    known: KnownKey | undefined,
    address: string,
  ): Promise<Verdict> {
    const isLeader = this.#checked.running(fingerprint) === undefined;
    try {
      // The check goes on without the caller, who finds the key verified when he returns.
      return await withDeadline(this.#checked(fingerprint, key, known), CHECK_MS, () => {
        const late = this.#proofs.lateError(fingerprint);
        return late ?? unavailable('late', `the check did not end within ${CHECK_MS} ms`);
      });
    } catch (error) {
      this.#countFailure(error, address, key.prefix, isLeader);
      throw error;
    }
  }

  /** @param isLeader whether this caller began the check: an invalid key counts once against its address and prefix */
  #countFailure(error: unknown, address: string, prefix: Prefix, isLeader: boolean): void {
    const code = error instanceof GatewayError ? error.code : undefined;
    if (code === 'invalid_api_key') {
      this.#count('refused');
      if (isLeader) this.#recordFailure(address, prefix);
    } else if (code === 'too_many_failed_keys') this.#count('limited');
    else {
      this.#count('unavailable');
      this.#parts.metrics.authUnavailable.inc({ reason: reasonOf(error) });
    }
  }

  async #decide(fingerprint: Fingerprint, key: Key, verified: KnownKey | undefined): Promise<Verdict> {
    let known = verified;
    let provenHash: string | undefined;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      let found: FoundRecord;
      try {
        // A key that was proved in this check has waited patiently, and does so again.
        found = await this.#lookup.find(key.prefix, verified !== undefined);
      } catch (error) {
        if (
          known !== undefined &&
          this.#positive.serveStale(fingerprint, key.prefix, this.#now(), this.#clock.caughtUpAt)
        ) {
          return { principal: known.principal, outcome: 'cached' };
        }
        throw error;
      }
      const { record, position, soughtAt, at, isProved } = found;
      if (
        record === undefined ||
        record.state !== 'active' ||
        !isSameBytes(record.hmac, this.#parts.secret.digest(key))
      ) {
        if (!this.#clock.isUnchangedSince(key.prefix, position)) continue;
        this.#negative.add(fingerprint, this.#now(), position);
        this.#updateMetrics();
        // Limits failures per prefix: a valid key for the prefix does not come here.
        const retryAfterMs = this.#prefixFailures.waitFor(key.prefix);
        if (retryAfterMs === 0) throw new GatewayError('invalid_api_key');
        throw new GatewayError('too_many_failed_keys', undefined, { retryAfterMs });
      }
      // The hash of a key never changes, so a proof holds for every version.
      const needsProof = !isProved && known === undefined && provenHash !== record.argon2;
      if (needsProof) {
        await this.#proofs.prove(fingerprint, record, key);
        provenHash = record.argon2;
      }
      if (!this.#clock.isUnchangedSince(key.prefix, position)) continue;
      const principal = principalOf(record);
      this.#positive.refresh(fingerprint, principal, at, soughtAt);
      this.#updateMetrics();
      if (needsProof) {
        known = this.#positive.get(fingerprint, key.prefix);
        // The key may have waited so long for its proof that a cached one would have been looked up again.
        if (known !== undefined && !this.#positive.isFresh(known, this.#now(), this.#clock.caughtUpAt))
          continue;
      }
      // Not awaited: Redis may be slow, and other replicas can read the store.
      if (!isProved) void this.#parts.shared?.publish(record);
      return { principal, outcome: 'verified' };
    }
    throw unavailable('changing', `key ${key.prefix} changed ${MAX_ROUNDS} times while it was checked`);
  }

  #recordFailure(address: string, prefix?: Prefix): void {
    this.#failures.record(address);
    if (prefix !== undefined) this.#prefixFailures.record(prefix);
    this.#parts.metrics.authCacheEntries.set({ cache: 'failures' }, this.#failures.size);
  }

  #updateMetrics(): void {
    this.#parts.metrics.authCacheEntries.set({ cache: 'positive' }, this.#positive.size);
    this.#parts.metrics.authCacheEntries.set({ cache: 'negative' }, this.#negative.size);
  }
}
