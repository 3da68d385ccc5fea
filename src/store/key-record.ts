// What the store keeps of keys and of their holders. No type in this folder can hold a whole key: see auth/key/key.ts.
import type { Tier } from '../config/schema/config-schema.ts';

declare const prefixBrand: unique symbol;

/** The first 8 hexadecimal characters of a key: its public name. */
export type Prefix = string & { readonly [prefixBrand]: true };

export const PREFIX_LENGTH = 8;

/** Whether `text` has the form of a prefix; says nothing about whether such a key exists. */
export function isPrefix(text: string): text is Prefix {
  return /^[0-9a-f]{8}$/.test(text);
}

export const KEY_STATES = ['active', 'invalidated', 'revoked'] as const;

/** `invalidated` is by rotation, `revoked` by support; both are final. */
export type KeyState = (typeof KEY_STATES)[number];

export const BILLING_STATUSES = ['good', 'suspended'] as const;

/** Whether the keys of a holder are served. `suspended` is not final; the keys stay what they are. */
export type BillingStatus = (typeof BILLING_STATUSES)[number];

/** Whose keys they are. */
export interface Holder {
  readonly id: string;
  readonly tier: Tier;
  readonly standing: BillingStatus;
  readonly label: string | null;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

/** What is to be different about a holder. What is left out stays. */
export interface HolderChange {
  readonly tier?: Tier;
  readonly standing?: BillingStatus;
}

/** A key as support and its holder may see it. */
export interface KeySummary {
  readonly prefix: Prefix;
  readonly holderId: string;
  /** The holder's tier: two keys of one holder never differ in it. */
  readonly tier: Tier;
  /** The holder's standing. */
  readonly standing: BillingStatus;
  /** The holder's label. */
  readonly label: string | null;
  readonly state: KeyState;
  /** 1 when issued; grows with every change of the key. */
  readonly version: number;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /** RFC 3339, UTC; null exactly while the key is active. */
  readonly endedAt: string | null;
  /** The key that this one took over from by rotation. */
  readonly replaces: Prefix | null;
  /** The key that took over from this one by rotation. */
  readonly replacedBy: Prefix | null;
}

/** A key as the authenticator needs it. */
export interface KeyRecord extends KeySummary {
  /** Argon2id in PHC string format. */
  readonly argon2: string;
  /** HMAC-SHA-256 of the whole key under the keyed-hash secret: 32 bytes. */
  readonly hmac: Uint8Array;
}

/** What must be known of a key to store it. Its holder and its state follow from the operation. */
export interface NewKey {
  readonly prefix: Prefix;
  readonly argon2: string;
  readonly hmac: Uint8Array;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

/** Whom a new key is for: somebody new, or the holder of a key that exists, whatever its state. */
export type HolderOf =
  | { readonly kind: 'new'; readonly id: string; readonly tier: Tier; readonly label: string | null }
  | { readonly kind: 'of'; readonly prefix: Prefix };

/** A free key counts against its address, in the transaction that stores it. */
export interface FreeGrant {
  /** `YYYY-MM-DD`, UTC. */
  readonly day: string;
  /** Keyed digest of the address; the address itself is not stored. */
  readonly address: Uint8Array;
  readonly perDay: number;
}

export type AddResult =
  | { readonly kind: 'added'; readonly record: KeyRecord }
  | { readonly kind: 'prefix_taken' }
  | { readonly kind: 'unknown_holder' }
  | { readonly kind: 'free_limit' };

export type RotateResult =
  | {
      readonly kind: 'rotated';
      /** Of the successor. */
      readonly record: KeyRecord;
      /** Version of the old key, now that it has ended. */
      readonly endedVersion: number;
    }
  | { readonly kind: 'prefix_taken' }
  /** The old key had ended, or there is none. Nothing was written. */
  | { readonly kind: 'not_active' };

export type RevokeResult =
  | { readonly kind: 'revoked'; readonly record: KeyRecord }
  /** The key had ended before; nothing leaves that state, and nothing was written. */
  | { readonly kind: 'already'; readonly record: KeyRecord }
  | { readonly kind: 'unknown' };

export type ChangeResult =
  /** `records`: the holder's active keys after it, in the order of issue. */
  | { readonly kind: 'changed'; readonly records: readonly KeyRecord[] }
  /** The holder was like that before, and nothing was written. */
  | { readonly kind: 'same'; readonly records: readonly KeyRecord[] }
  | { readonly kind: 'unknown' };

export const CHANGE_KINDS = ['issued', 'rotated', 'revoked', 'changed'] as const;

/** `changed`: the holder has another tier or standing. The key is as active as before; only its version is another. */
export type ChangeKind = (typeof CHANGE_KINDS)[number];

/** One line of the change feed. Ids only grow, and a reader that saw id n has missed nothing below n. */
export interface KeyChange {
  readonly id: number;
  readonly prefix: Prefix;
  readonly kind: ChangeKind;
  /** Version of the key after the change. */
  readonly version: number;
  /** RFC 3339, UTC. */
  readonly at: string;
  readonly reason: string | null;
}

export interface KeyFilter {
  readonly tier?: Tier;
  readonly state?: KeyState;
  /** Only keys that were issued after this one. */
  readonly after?: Prefix;
  /** 1 to 1000. */
  readonly limit: number;
}
