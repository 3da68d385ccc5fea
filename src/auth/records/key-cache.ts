// The positive and negative caches of keys, and the clock of key changes. All are bounded, and none contains a key: entries
// are found by fingerprint. authenticator.ts uses them.

import { hash, randomBytes } from 'node:crypto';
import { RecentMap } from '../../recent-map.ts';
import type { KeyChange, Prefix } from '../../store/key-record.ts';
import type { Key } from '../key/key.ts';
import type { Principal } from '../key/principal.ts';

/** Lifetime of a confirmed key without another look-up, in milliseconds. */
export const FRESH_MS = 5000;
/** The same while messages from other processes may be missed. */
export const UNLINKED_FRESH_MS = 1000;
/** Maximum age of a confirmation to serve stale while the store does not answer, in milliseconds. */
export const STALE_MS = 60_000;
/** While the store is unavailable: pause between look-ups of one key, in milliseconds. */
const STALE_PAUSE_MS = 1000;
/** Lifetime of an entry in the negative cache, in milliseconds. */
const NEGATIVE_MS = 10_000;

const MAX_KNOWN = 50_000;
const MAX_NEGATIVE = 100_000;
const MAX_CHANGED = 10_000;

declare const fingerprintBrand: unique symbol;
/** Identifies a whole key in the memory of this process. */
export type Fingerprint = string & { readonly [fingerprintBrand]: true };

/**
 * Computes a SHA-256 digest with a salt of this process. The HMAC under the secret would cost six times as much on the hot
 * path. The 128 random bits of a key cannot be guessed from the digest.
 */
export class Fingerprints {
  readonly #salt = randomBytes(16).toString('base64');

  of(key: Key): Fingerprint {
    const digest = hash('sha256', this.#salt + key.reveal(), 'base64');
    if (!isFingerprint(digest)) throw new TypeError('SHA-256 has 32 bytes');
    return digest;
  }
}

function isFingerprint(text: string): text is Fingerprint {
  return text.length === 44;
}

/** Notification of one change of a key. */
export type KeyNotice = Pick<KeyChange, 'prefix' | 'kind' | 'version'>;

export type Announcement = KeyNotice & Pick<KeyChange, 'at'>;

/**
 * A logical clock of key changes: the tick and the version of the last change of each key. An answer that was requested
 * before a change must not be cached after it, and an answer with an older version is ignored.
 */
export class ChangeClock {
  /** Least recently changed first. */
  readonly #changed = new RecentMap<Prefix, { readonly tick: number; readonly version: number }>(
    MAX_CHANGED,
    (_, { tick }) => {
      this.#floor = tick;
    },
  );
  /** The map is bounded: keys that are not in it count as changed at this tick. */
  #floor = 0;
  #tick = 0;
  #caughtUpAt = Number.NEGATIVE_INFINITY;

  /** When the change feed was last read to its end, in milliseconds of the injected clock. */
  get caughtUpAt(): number {
    return this.#caughtUpAt;
  }

  caughtUp(at: number): void {
    this.#caughtUpAt = Math.max(at, this.#caughtUpAt);
  }

  /** The current position; read it before a look-up in the store. */
  now(): number {
    return this.#tick;
  }

  /** Records a change. @returns whether this version is new */
  record(prefix: Prefix, version: number): boolean {
    this.#tick += 1;
    const known = this.#changed.get(prefix)?.version ?? 0;
    // A late notification over another channel does not lower the version.
    this.#changed.set(prefix, { tick: this.#tick, version: Math.max(version, known) });
    return version > known;
  }

  /** Whether the key has not changed since `position`, so that an answer from then is valid. */
  isUnchangedSince(prefix: Prefix, position: number): boolean {
    return (this.#changed.get(prefix)?.tick ?? this.#floor) <= position;
  }

  /** Whether a record of this version can be current: no newer version is known. */
  allows(prefix: Prefix, version: number): boolean {
    return version >= (this.#changed.get(prefix)?.version ?? 0);
  }
}

export interface KnownKey {
  readonly principal: Principal;
  /** When the key was last confirmed, in milliseconds of the injected clock. */
  readonly confirmedAt: number;
  /** When confirmation was last requested, with or without an answer. */
  readonly soughtAt: number;
  /** Until when the key is accepted without a look-up. */
  readonly freshUntil: number;
  /** The day of its last recorded use, as days since 1970. */
  usedOn?: number | undefined;
}

/**
 * The positive cache. An expired entry stays until it is evicted: it proves that Argon2 has run for this key, can be served
 * stale while the store is unavailable, and exempts the key from the failure limit.
 */
export class KeyCache {
  readonly #byFingerprint = new RecentMap<Fingerprint, KnownKey>(MAX_KNOWN, (_, { principal }) =>
    this.#byPrefix.delete(principal.prefix),
  );
  readonly #byPrefix = new Map<Prefix, Fingerprint>();
  #freshMs = FRESH_MS;
  /** Entries that were requested before this time are not fresh. */
  #floor = Number.NEGATIVE_INFINITY;

  get size(): number {
    return this.#byFingerprint.size;
  }

  get(fingerprint: Fingerprint): KnownKey | undefined {
    return this.#byFingerprint.get(fingerprint);
  }

  /** Whether the key is accepted without a look-up. */
  isFresh({ freshUntil, soughtAt }: KnownKey, now: number): boolean {
    return now <= freshUntil && soughtAt >= this.#floor;
  }

  /**
   * Makes all entries not fresh, because changes may have been missed. They stay as proofs and can be served stale.
   * @param freshMs lifetime of later confirmations, in milliseconds
   */
  expire(now: number, freshMs: number): void {
    this.#floor = now;
    this.#freshMs = freshMs;
  }

  /**
   * Stores a confirmation.
   * @param validAt the time for which the key is known to be valid; an earlier entry of the same version may have a later one
   * @param soughtAt when it was requested; may be later than `validAt` while the store is unavailable
   */
  refresh(fingerprint: Fingerprint, principal: Principal, validAt: number, soughtAt = validAt): void {
    const known = this.#byFingerprint.get(fingerprint);
    const at =
      known?.principal.version === principal.version ? Math.max(validAt, known.confirmedAt) : validAt;
    const pause = Math.min(soughtAt + STALE_PAUSE_MS, at + STALE_MS);
    const freshUntil = Math.max(at + this.#freshMs, soughtAt === validAt ? at : pause);
    this.#put(fingerprint, { principal, confirmedAt: at, soughtAt, freshUntil, usedOn: known?.usedOn });
  }

  /**
   * Serves stale: extends the entry while the store does not answer. A suspension is not extended, because it may have ended.
   * @returns false when the key cannot be accepted any longer
   */
  serveStale(fingerprint: Fingerprint, known: KnownKey, now: number): boolean {
    const end = known.confirmedAt + STALE_MS;
    // If the key changed meanwhile, the entry is gone or replaced.
    if (now > end || known.principal.standing !== 'good') return false;
    if (this.#byFingerprint.get(fingerprint) !== known) return false;
    this.#put(fingerprint, { ...known, soughtAt: now, freshUntil: Math.min(now + STALE_PAUSE_MS, end) });
    return true;
  }

  /**
   * Invalidates the entry of a valid key whose holder has changed: it is neither accepted nor served stale. It still proves
   * that Argon2 has run, because the hash of a key never changes, and exempts the key from the failure limit.
   */
  invalidate(prefix: Prefix): void {
    const fingerprint = this.#byPrefix.get(prefix);
    const known = fingerprint === undefined ? undefined : this.#byFingerprint.get(fingerprint);
    if (fingerprint === undefined || known === undefined) return;
    const never = Number.NEGATIVE_INFINITY;
    this.#put(fingerprint, { ...known, confirmedAt: never, freshUntil: never });
  }

  drop(prefix: Prefix): void {
    const fingerprint = this.#byPrefix.get(prefix);
    if (fingerprint === undefined) return;
    this.#byFingerprint.delete(fingerprint);
    this.#byPrefix.delete(prefix);
  }

  #put(fingerprint: Fingerprint, known: KnownKey): void {
    // Evicts the least recently confirmed entry.
    this.#byFingerprint.set(fingerprint, known);
    this.#byPrefix.set(known.principal.prefix, fingerprint);
  }
}

/** The negative cache: rejected keys by fingerprint. A later change of a key with the same prefix invalidates the entry. */
export class NegativeCache {
  readonly #clock: ChangeClock;
  readonly #entries = new RecentMap<Fingerprint, { readonly until: number; readonly position: number }>(
    MAX_NEGATIVE,
  );

  constructor(clock: ChangeClock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** @param position position of the change clock before the look-up */
  add(fingerprint: Fingerprint, now: number, position: number): void {
    this.#entries.set(fingerprint, { until: now + NEGATIVE_MS, position });
  }

  has(fingerprint: Fingerprint, prefix: Prefix, now: number): boolean {
    const entry = this.#entries.get(fingerprint);
    if (entry === undefined) return false;
    if (now < entry.until && this.#clock.isUnchangedSince(prefix, entry.position)) return true;
    this.#entries.delete(fingerprint);
    return false;
  }
}

/** Receives key changes: those of this process at once, those of others when they are announced. */
export interface KeyListener {
  /** @returns whether the change is new */
  changed(change: KeyNotice): boolean;
  /** The change feed was read to its end at this time, in milliseconds of the process's monotonic clock. */
  caughtUp(at: number): void;
  /**
   * Caches a key that this process has issued and stored, so that its first use needs no proof. Ignored when a newer version
   * is known.
   */
  preload(key: Key, principal: Principal): void;
}
