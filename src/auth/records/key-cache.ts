// The positive and negative caches of keys, and the clock of key changes. All are bounded, and none contains a key: entries
// are found by fingerprint. authenticator.ts uses them.

import { hash, randomBytes } from 'node:crypto';
import { RecentMap } from '../../recent-map.ts';
import type { KeyChange, Prefix } from '../../store/key-record.ts';
import type { Key } from '../key/key.ts';
import type { Principal } from '../key/principal.ts';

/** Lifetime of a confirmed key without another look-up, in milliseconds. */
export const FRESH_MS = 5000;
/**
 * How long a confirmed key can be confirmed again by the change feed alone, in milliseconds. A look-up after it restores the record in Redis,
 * which expires after some hours.
 */
const FOLLOWED_MS = 60 * 60_000;
/** The same as `FRESH_MS` while messages from other processes may be missed. */
export const UNLINKED_FRESH_MS = 1000;
/** Maximum age of a confirmation to serve stale while the store does not answer, in milliseconds. */
export const STALE_MS = 60_000;
/** While the store is unavailable: pause between look-ups of one key, in milliseconds. */
const STALE_PAUSE_MS = 1000;
/** Lifetime of an entry in the negative cache, in milliseconds. */
const NEGATIVE_MS = 10_000;

/** About 430 bytes each: 107 MB. */
const MAX_KNOWN = 250_000;
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
  /** Confirmed again since it was added, or since it was last spared from eviction. */
  isRecent: boolean;
}

/** An entry. It changes in place, because a map that is rewritten with each confirmation is rehashed again and again. */
interface Entry extends KnownKey {
  readonly fingerprint: Fingerprint;
  principal: Principal;
  confirmedAt: number;
  soughtAt: number;
  freshUntil: number;
  usedOn: number | undefined;
}

/**
 * The positive cache. An expired entry stays until it is evicted: it proves that Argon2 has run for this key, can be served
 * stale while the store is unavailable, and exempts the key from the failure limit.
 */
export class KeyCache {
  /** Only verified keys are here, and a prefix has one, so the fingerprint of the whole key is in the entry and compared. */
  readonly #entries = new RecentMap<Prefix, Entry>(MAX_KNOWN, undefined, (entry) => {
    const { isRecent } = entry;
    entry.isRecent = false;
    return isRecent;
  });
  #freshMs = FRESH_MS;
  /** Entries that were requested before this time are not fresh. */
  #floor = Number.NEGATIVE_INFINITY;

  get size(): number {
    return this.#entries.size;
  }

  get(fingerprint: Fingerprint, prefix: Prefix): KnownKey | undefined {
    const entry = this.#entries.get(prefix);
    return entry?.fingerprint === fingerprint ? entry : undefined;
  }

  /**
   * Whether the key is accepted without a look-up. A change of a key invalidates its entry, so reading the change feed to its end
   * confirms all others. Such a confirmation spares the entry from eviction as a look-up does.
   * @param caughtUpAt when the feed was last read to its end. Default: never
   */
  isFresh(known: KnownKey, now: number, caughtUpAt = Number.NEGATIVE_INFINITY): boolean {
    const { freshUntil, soughtAt, confirmedAt } = known;
    if (now <= freshUntil && soughtAt >= this.#floor) return true;
    const isRead = now <= caughtUpAt + this.#freshMs && caughtUpAt >= this.#floor;
    if (!isRead || now > confirmedAt + FOLLOWED_MS) return false;
    known.isRecent = true;
    return true;
  }

  /**
   * Makes all entries not fresh, because changes may have been missed. They stay as proofs and can be served stale.
   * @param freshMs lifetime of later confirmations, in milliseconds; default: as before
   */
  expire(now: number, freshMs = this.#freshMs): void {
    this.#floor = now;
    this.#freshMs = freshMs;
  }

  /**
   * Stores a confirmation.
   * @param validAt the time for which the key is known to be valid; an earlier entry of the same version may have a later one
   * @param soughtAt when it was requested; may be later than `validAt` while the store is unavailable
   */
  refresh(fingerprint: Fingerprint, principal: Principal, validAt: number, soughtAt = validAt): void {
    const held = this.#entries.get(principal.prefix);
    const known = held?.fingerprint === fingerprint ? held : undefined;
    const isSame = known?.principal.version === principal.version;
    const at = isSame ? Math.max(validAt, known.confirmedAt) : validAt;
    const pause = Math.min(soughtAt + STALE_PAUSE_MS, at + STALE_MS);
    const freshUntil = Math.max(at + this.#freshMs, soughtAt === validAt ? at : pause);
    if (known === undefined) {
      const times = { confirmedAt: at, soughtAt, freshUntil };
      const entry = { fingerprint, principal, ...times, usedOn: undefined, isRecent: false };
      this.#entries.set(principal.prefix, entry);
      return;
    }
    known.principal = principal;
    known.confirmedAt = at;
    known.soughtAt = soughtAt;
    known.freshUntil = freshUntil;
    known.isRecent = true;
  }

  /**
   * Serves stale: extends the entry while the store does not answer. A suspension is not extended, because it may have ended.
   * @param caughtUpAt as for `isFresh`
   * @returns false when the key cannot be accepted any longer
   */
  serveStale(
    fingerprint: Fingerprint,
    prefix: Prefix,
    now: number,
    caughtUpAt = Number.NEGATIVE_INFINITY,
  ): boolean {
    const entry = this.#entries.get(prefix);
    // If the key ended meanwhile, the entry is gone.
    if (entry?.fingerprint !== fingerprint) return false;
    const { confirmedAt } = entry;
    const isFollowed = now <= confirmedAt + FOLLOWED_MS + STALE_MS;
    const end = (isFollowed ? Math.max(confirmedAt, caughtUpAt) : confirmedAt) + STALE_MS;
    if (now > end || entry.principal.standing !== 'good') return false;
    entry.soughtAt = now;
    entry.freshUntil = Math.min(now + STALE_PAUSE_MS, end);
    return true;
  }

  /**
   * Invalidates the entry of a valid key whose holder has changed: it is neither accepted nor served stale. It still proves
   * that Argon2 has run, because the hash of a key never changes, and exempts the key from the failure limit.
   */
  invalidate(prefix: Prefix): void {
    const entry = this.#entries.get(prefix);
    if (entry === undefined) return;
    entry.confirmedAt = Number.NEGATIVE_INFINITY;
    entry.freshUntil = Number.NEGATIVE_INFINITY;
  }

  drop(prefix: Prefix): void {
    this.#entries.delete(prefix);
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
  /** Changes may have been missed for good. */
  lost(): void;
  /**
   * Caches a key that this process has issued and stored, so that its first use needs no proof. Ignored when a newer version
   * is known.
   */
  preload(key: Key, principal: Principal): void;
}
