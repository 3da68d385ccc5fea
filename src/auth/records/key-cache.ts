// What this process remembers of keys: which are good, which are bad, and what changed since it looked. All of it is bounded
// and none of it holds a key: a key is named by its fingerprint. Who asks and when is authenticator.ts.

import { hash, randomBytes } from 'node:crypto';
import { RecentMap } from '../../recent-map.ts';
import type { ChangeKind, Prefix } from '../../store/key-record.ts';
import type { Key } from '../key/key.ts';
import type { Principal } from '../key/principal.ts';

/** How long a good key is good without asking again, in milliseconds. */
export const FRESH_MS = 5000;
/** The same while nobody tells this process what others change. */
export const UNLINKED_FRESH_MS = 1000;
/** How long after its last confirmation a good key is still accepted while the store does not answer. */
export const STALE_MS = 60_000;
/** With the store away, how long until it is asked about the same key again. */
const STALE_PAUSE_MS = 1000;
/** How long a bad key is bad without asking the store again. */
const REFUSED_MS = 10_000;

const MAX_KNOWN = 50_000;
const MAX_REFUSED = 100_000;
const MAX_CHANGED = 10_000;

declare const fingerprintBrand: unique symbol;
/** Names a whole key in the memory of this process. */
export type Fingerprint = string & { readonly [fingerprintBrand]: true };

/**
 * A digest under a salt of this process: one call of SHA-256, where the HMAC under the secret costs six times as much on
 * the path of every request. Of 128 random bits no digest is guessed back.
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

/** One change of a key, as everyone who remembers keys hears of it. */
export interface KeyNotice {
  readonly prefix: Prefix;
  readonly kind: ChangeKind;
  /** Version of the key after the change. */
  readonly version: number;
}

/**
 * When each key last changed, in ticks of this process, and to which version. An answer that was asked for before a change
 * must not be remembered after it, however late it comes; and one that shows an older version is no answer at all.
 */
export class ChangeClock {
  /** The key that changed longest ago comes first. */
  readonly #changed = new RecentMap<Prefix, { readonly tick: number; readonly version: number }>(
    MAX_CHANGED,
    (_, { tick }) => {
      this.#floor = tick;
    },
  );
  /** Keys that are not in the map count as changed at this tick, because the map is bounded. */
  #floor = 0;
  #tick = 0;
  #caughtUpAt = Number.NEGATIVE_INFINITY;

  /** When the store last said all that had changed, in milliseconds of the injected clock. */
  get caughtUpAt(): number {
    return this.#caughtUpAt;
  }

  caughtUp(at: number): void {
    this.#caughtUpAt = Math.max(at, this.#caughtUpAt);
  }

  /** The position to note before the store is asked. */
  now(): number {
    return this.#tick;
  }

  /** @returns whether this version is news */
  mark(prefix: Prefix, version: number): boolean {
    this.#tick += 1;
    const known = this.#changed.get(prefix)?.version ?? 0;
    // A notice that comes late, by another way, does not take a version back.
    this.#changed.set(prefix, { tick: this.#tick, version: Math.max(version, known) });
    return version > known;
  }

  /** Whether what the store said at `position` still counts for this key. */
  holds(prefix: Prefix, position: number): boolean {
    return (this.#changed.get(prefix)?.tick ?? this.#floor) <= position;
  }

  /** Whether a record of this version can be the present one, as far as this process has heard. */
  allows(prefix: Prefix, version: number): boolean {
    return version >= (this.#changed.get(prefix)?.version ?? 0);
  }
}

export interface KnownKey {
  readonly principal: Principal;
  /** When the key was last confirmed, in milliseconds of the injected clock. */
  readonly confirmedAt: number;
  /** When confirmation was last sought, with or without an answer. */
  readonly soughtAt: number;
  /** Until when the key is accepted without asking. */
  readonly freshUntil: number;
}

/**
 * Keys that proved good. An entry stays after its time is up, until it is pushed out: as the proof that Argon2 has run for
 * this very key, as what is accepted while the store is away, and as what the failure limit spares.
 */
export class KeyCache {
  readonly #byFingerprint = new RecentMap<Fingerprint, KnownKey>(MAX_KNOWN, (_, { principal }) =>
    this.#byPrefix.delete(principal.prefix),
  );
  readonly #byPrefix = new Map<Prefix, Fingerprint>();
  #freshMs = FRESH_MS;
  /** What was sought before this moment is not fresh, whatever it says. */
  #floor = Number.NEGATIVE_INFINITY;

  get size(): number {
    return this.#byFingerprint.size;
  }

  get(fingerprint: Fingerprint): KnownKey | undefined {
    return this.#byFingerprint.get(fingerprint);
  }

  /** Whether the key is accepted without asking. */
  isFresh({ freshUntil, soughtAt }: KnownKey, now: number): boolean {
    return now <= freshUntil && soughtAt >= this.#floor;
  }

  /**
   * Nothing is fresh any more: changes may have been missed. All of it stays as proof, and as what is stretched.
   * @param freshMs how long what is confirmed from now on is fresh
   */
  expire(now: number, freshMs: number): void {
    this.#floor = now;
    this.#freshMs = freshMs;
  }

  /**
   * @param heardAt as of when it is known to be good; what was known before, of the same version, may be newer
   * @param soughtAt when that was asked for; with the store away that may be later
   */
  refresh(fingerprint: Fingerprint, principal: Principal, heardAt: number, soughtAt = heardAt): void {
    const known = this.#byFingerprint.get(fingerprint);
    const at =
      known?.principal.version === principal.version ? Math.max(heardAt, known.confirmedAt) : heardAt;
    const pause = Math.min(soughtAt + STALE_PAUSE_MS, at + STALE_MS);
    const freshUntil = Math.max(at + this.#freshMs, soughtAt === heardAt ? at : pause);
    this.#put(fingerprint, { principal, confirmedAt: at, soughtAt, freshUntil });
  }

  /**
   * The store did not answer: accepts the key a while longer, or returns false when its time is up. That a holder is suspended
   * may have ended meanwhile, so it is not said for longer than it is known.
   */
  serveStale(fingerprint: Fingerprint, known: KnownKey, now: number): boolean {
    const end = known.confirmedAt + STALE_MS;
    // Not when the key changed meanwhile: then the entry is gone or another.
    if (now > end || known.principal.standing !== 'good') return false;
    if (this.#byFingerprint.get(fingerprint) !== known) return false;
    this.#put(fingerprint, { ...known, soughtAt: now, freshUntil: Math.min(now + STALE_PAUSE_MS, end) });
    return true;
  }

  /**
   * The key is good and its holder has changed: what is known of it is neither accepted nor stretched any more. It stays as
   * the proof that Argon2 has run, since a key never changes its hash, and as what the failure limit spares.
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
    // The one that was confirmed longest ago makes room.
    this.#byFingerprint.set(fingerprint, known);
    this.#byPrefix.set(known.principal.prefix, fingerprint);
  }
}

/** Keys that the store did not have, each by its whole fingerprint. A key that is issued later ends the memory of its prefix. */
export class NegativeCache {
  readonly #clock: ChangeClock;
  readonly #refused = new RecentMap<Fingerprint, { readonly until: number; readonly position: number }>(
    MAX_REFUSED,
  );

  constructor(clock: ChangeClock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#refused.size;
  }

  /** @param position of the change clock when the store was asked */
  add(fingerprint: Fingerprint, now: number, position: number): void {
    this.#refused.set(fingerprint, { until: now + REFUSED_MS, position });
  }

  has(fingerprint: Fingerprint, prefix: Prefix, now: number): boolean {
    const entry = this.#refused.get(fingerprint);
    if (entry === undefined) return false;
    if (now < entry.until && this.#clock.holds(prefix, entry.position)) return true;
    this.#refused.delete(fingerprint);
    return false;
  }
}

/** Takes note of changes of keys: those of this process at once, those of others when it is told. */
export interface KeyListener {
  /** @returns whether it had not heard of this before */
  changed(change: KeyNotice): boolean;
  /** The store has said all that had changed at this moment, in milliseconds of the process's monotonic clock. */
  caughtUp(at: number): void;
  /**
   * This process made the key and has seen it stored: it need not be proved on first use. Unless something newer was heard of it
   * by now, it is known as this says.
   */
  learned(key: Key, principal: Principal): void;
}
