// What this process remembers of keys: which are good, which are bad, and what changed since it looked. All of it is bounded
// and none of it holds a key: a key is named by its fingerprint. Who asks and when is authenticator.ts.
import { hash, randomBytes } from 'node:crypto';
import type { ChangeKind, Prefix } from '../store/record.ts';
import type { Caller } from './caller.ts';
import type { Key } from './key.ts';

/** How long a good key is good without asking the store again, in milliseconds. */
export const FRESH_MS = 5000;
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

/**
 * When each key last changed, in ticks of this process. An answer of the store that was asked for before a change must not
 * be remembered after it, however late it comes.
 */
export class ChangeClock {
  readonly #changed = new Map<Prefix, number>();
  /** Keys that are not in the map count as changed at this tick, because the map is bounded. */
  #floor = 0;
  #tick = 0;

  /** The position to note before the store is asked. */
  now(): number {
    return this.#tick;
  }

  mark(prefix: Prefix): void {
    this.#tick += 1;
    this.#changed.set(prefix, this.#tick);
    if (this.#changed.size > MAX_CHANGED) {
      this.#floor = this.#tick;
      this.#changed.clear();
    }
  }

  /** Whether what the store said at `position` still counts for this key. */
  holds(prefix: Prefix, position: number): boolean {
    return (this.#changed.get(prefix) ?? this.#floor) <= position;
  }
}

export interface Known {
  readonly caller: Caller;
  /** When the store last confirmed the key, in milliseconds of the injected clock. */
  readonly confirmedAt: number;
  /** Until when the key is accepted without asking. */
  readonly freshUntil: number;
}

/**
 * Keys that proved good. An entry stays after its time is up, until it is pushed out: as the proof that Argon2 has run for
 * this very key and version, as what is accepted while the store is away, and as what the failure limit spares.
 */
export class KnownKeys {
  readonly #byFingerprint = new Map<Fingerprint, Known>();
  readonly #byPrefix = new Map<Prefix, Fingerprint>();

  get size(): number {
    return this.#byFingerprint.size;
  }

  get(fingerprint: Fingerprint): Known | undefined {
    return this.#byFingerprint.get(fingerprint);
  }

  /** @param at when the store was asked */
  confirm(fingerprint: Fingerprint, caller: Caller, at: number): void {
    this.#put(fingerprint, { caller, confirmedAt: at, freshUntil: at + FRESH_MS });
  }

  /** The store did not answer: accepts the key a while longer, or returns false when its time is up. */
  stretch(fingerprint: Fingerprint, known: Known, now: number): boolean {
    const end = known.confirmedAt + STALE_MS;
    // Not when the key changed meanwhile: then the entry is gone or another.
    if (now > end || this.#byFingerprint.get(fingerprint) !== known) return false;
    this.#put(fingerprint, { ...known, freshUntil: Math.min(now + STALE_PAUSE_MS, end) });
    return true;
  }

  drop(prefix: Prefix): void {
    const fingerprint = this.#byPrefix.get(prefix);
    if (fingerprint === undefined) return;
    this.#byFingerprint.delete(fingerprint);
    this.#byPrefix.delete(prefix);
  }

  #put(fingerprint: Fingerprint, known: Known): void {
    // Last in the order of the map: the one that was confirmed longest ago goes first.
    this.#byFingerprint.delete(fingerprint);
    this.#byFingerprint.set(fingerprint, known);
    this.#byPrefix.set(known.caller.prefix, fingerprint);
    if (this.#byFingerprint.size <= MAX_KNOWN) return;
    for (const oldest of this.#byFingerprint.values()) {
      this.drop(oldest.caller.prefix);
      break;
    }
  }
}

/** Keys that the store did not have, each by its whole fingerprint. A key that is issued later ends the memory of its prefix. */
export class RefusedKeys {
  readonly #clock: ChangeClock;
  readonly #refused = new Map<Fingerprint, { readonly until: number; readonly position: number }>();

  constructor(clock: ChangeClock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#refused.size;
  }

  /** @param position of the change clock when the store was asked */
  add(fingerprint: Fingerprint, now: number, position: number): void {
    this.#refused.delete(fingerprint);
    this.#refused.set(fingerprint, { until: now + REFUSED_MS, position });
    if (this.#refused.size <= MAX_REFUSED) return;
    for (const oldest of this.#refused.keys()) {
      this.#refused.delete(oldest);
      break;
    }
  }

  has(fingerprint: Fingerprint, prefix: Prefix, now: number): boolean {
    const entry = this.#refused.get(fingerprint);
    if (entry === undefined) return false;
    if (now < entry.until && this.#clock.holds(prefix, entry.position)) return true;
    this.#refused.delete(fingerprint);
    return false;
  }
}

/** Takes note of changes of keys: those of this process at once, those of others when the store tells. */
export interface KeyListener {
  changed(prefix: Prefix, kind: ChangeKind): void;
  /** This process made the key and has seen it stored: it need not be proved on first use. */
  learned(key: Key, caller: Caller): void;
}
