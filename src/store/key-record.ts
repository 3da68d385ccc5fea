// Records of keys and their holders. No type in this folder can contain a whole key: see auth/key/key.ts.
import type { Tier } from '../config/schema/config-schema.ts';
import type { Terms, TermsChange } from '../config/terms.ts';

declare const prefixBrand: unique symbol;

/** The first 8 hexadecimal characters of a key, which identify it publicly. */
export type Prefix = string & { readonly [prefixBrand]: true };

export const PREFIX_LENGTH = 8;

/** Whether `text` has the form of a prefix. The key need not exist. */
export function isPrefix(text: string): text is Prefix {
  return /^[0-9a-f]{8}$/.test(text);
}

export const KEY_STATES = ['active', 'invalidated', 'revoked'] as const;

/** `invalidated` by rotation, `revoked` by support; both are final. */
export type KeyState = (typeof KEY_STATES)[number];

export const BILLING_STATUSES = ['good', 'suspended'] as const;

/** Whether the keys of a holder are served. `suspended` is reversible and does not change the state of the keys. */
export type BillingStatus = (typeof BILLING_STATUSES)[number];

/** The owner of keys. */
export interface Holder {
  readonly id: string;
  readonly tier: Tier;
  readonly standing: BillingStatus;
  /** For people; not unique. */
  readonly name: string | null;
  readonly teamId: string | null;
  readonly terms: Terms;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

/** A change of a holder. Omitted fields stay unchanged. */
export interface HolderChange {
  readonly tier?: Tier;
  readonly standing?: BillingStatus;
  readonly name?: string | null;
  readonly teamId?: string | null;
  readonly terms?: TermsChange;
  /** Those that change; a value of null removes the label. */
  readonly labels?: LabelChange;
}

/** Name → value, such as `env` → `prod`. */
export type OwnerLabels = Readonly<Record<string, string>>;

/** A value of null removes the label. */
export type LabelChange = Readonly<Record<string, string | null>>;

/** A change of an active key. Omitted fields stay unchanged. */
export interface ActiveKeyChange {
  readonly name?: string | null;
  readonly expiresAt?: string | null;
  readonly terms?: TermsChange;
}

/** Who changes something, when and why. */
export interface Authorship {
  /** Such as `cli:alice`, or `holder` for a rotation; null if unknown. */
  readonly actor: string | null;
  readonly reason: string | null;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** The part of a key that support and its holder may see. */
export interface KeySummary {
  readonly prefix: Prefix;
  readonly holderId: string;
  /** The holder's tier, the same for all of its keys. */
  readonly tier: Tier;
  readonly standing: BillingStatus;
  readonly holderName: string | null;
  readonly teamId: string | null;
  /** For people; not unique. */
  readonly name: string | null;
  readonly state: KeyState;
  /** 1 when issued; every change of the key raises it. */
  readonly version: number;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /** RFC 3339, UTC; null exactly while the key is active. */
  readonly endedAt: string | null;
  /** The key that this one replaced by rotation. */
  readonly replaces: Prefix | null;
  /** The key that replaced this one by rotation. */
  readonly replacedBy: Prefix | null;
  /** The first key of the chain of rotations that this one belongs to: itself if it was issued. */
  readonly lineage: Prefix;
  /** From then on the key is not accepted. RFC 3339, UTC; null: it does not expire. */
  readonly expiresAt: string | null;
  readonly terms: Terms;
  readonly holderTerms: Terms;
}

/** A key as lists show it. */
export interface ListedKey extends KeySummary {
  /** The last day of use, `YYYY-MM-DD`, UTC; null before the first use. */
  readonly lastUsed: string | null;
}

/** A key with the hashes that the authenticator needs. */
export interface KeyRecord extends KeySummary {
  /** Argon2id in PHC string format. */
  readonly argon2: string;
  /** HMAC-SHA-256 of the whole key under the secret: 32 bytes. */
  readonly hmac: Uint8Array;
}

/** The fields to store a new key. The operation determines its holder and state. */
export interface NewKey {
  readonly prefix: Prefix;
  readonly argon2: string;
  readonly hmac: Uint8Array;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /** Default: none. */
  readonly name?: string | null;
  /** Default: it does not expire. */
  readonly expiresAt?: string | null;
  readonly terms?: Terms;
}

/** The holder of a new key: a new one, or the holder of an existing key in any state. */
export type HolderOf =
  | {
      readonly kind: 'new';
      readonly id: string;
      readonly tier: Tier;
      readonly name?: string | null;
      readonly teamId?: string | null;
      readonly terms?: Terms;
      readonly labels?: OwnerLabels;
    }
  | { readonly kind: 'of'; readonly prefix: Prefix }
  | { readonly kind: 'existing'; readonly id: string };

/** The count of Free keys per address, raised in the transaction that stores the key. */
export interface FreeGrant {
  /** `YYYY-MM-DD`, UTC. */
  readonly day: string;
  /** HMAC of the address; the address itself is not stored. */
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
      readonly record: KeyRecord;
      /** Version of the old key after it ended, or after its expiry was set. */
      readonly endedVersion: number;
      /** When the old key expires; null: it has ended. RFC 3339, UTC */
      readonly validUntil: string | null;
      /** The old key where it stays valid. */
      readonly kept?: KeyRecord;
    }
  | { readonly kind: 'prefix_taken' }
  /** The old key has ended or a successor, or does not exist. Nothing was written. */
  | { readonly kind: 'not_active' };

export type RevokeResult =
  | { readonly kind: 'revoked'; readonly record: KeyRecord }
  /** The key had already ended, which is final. Nothing was written. */
  | { readonly kind: 'already'; readonly record: KeyRecord }
  | { readonly kind: 'unknown' };

export type ChangeResult =
  /** `records`: the holder's active keys after the change, in the order of issue. */
  | { readonly kind: 'changed'; readonly records: readonly KeyRecord[] }
  /** The holder already had these values. Nothing was written. */
  | { readonly kind: 'same'; readonly records: readonly KeyRecord[] }
  | { readonly kind: 'unknown' };

export type KeyChangeResult =
  | { readonly kind: 'changed' | 'same'; readonly record: KeyRecord }
  /** The key has ended. Nothing was written. */
  | { readonly kind: 'ended'; readonly record: KeyRecord }
  | { readonly kind: 'unknown' };

export const CHANGE_KINDS = ['issued', 'rotated', 'revoked', 'changed'] as const;

/** `changed`: the holder has another tier or standing. The key stays active; only its version changes. */
export type ChangeKind = (typeof CHANGE_KINDS)[number];

/** An entry of the change feed. Ids only grow, and a reader that has read id n has not missed a lower one. */
export interface KeyChange {
  readonly id: number;
  readonly prefix: Prefix;
  readonly kind: ChangeKind;
  /** Version of the key after the change. */
  readonly version: number;
  /** RFC 3339, UTC. */
  readonly at: string;
  readonly reason: string | null;
  /** As in `Authorship`; null where an earlier version made it. */
  readonly actor: string | null;
}

/** Where a page of a search ends: the values of its order, and an id. */
export type SearchPosition = readonly (string | number)[];

/** What a page of a search has. It may be less than was asked for: only without `next` nothing follows. */
export interface SearchPage<Item> {
  readonly items: readonly Item[];
  /** Where the next page begins. */
  readonly next: SearchPosition | undefined;
}

/** Conditions on a holder. All that are given hold. */
export interface HolderFilter {
  /** Beginning of the name, ignoring the case of ASCII letters. */
  readonly name?: string | undefined;
  /** OwnerLabels with these values; a value that ends with `*` is a beginning. */
  readonly labels?: OwnerLabels | undefined;
  readonly teamId?: string | undefined;
  readonly tier?: Tier | undefined;
  readonly standing?: BillingStatus | undefined;
}

/** Conditions on a key and on its holder. */
export interface KeyFilter extends HolderFilter {
  readonly state?: KeyState | undefined;
  readonly prefix?: Prefix | undefined;
  readonly holderId?: string | undefined;
  /** Last used before this day, or never. `YYYY-MM-DD`, UTC */
  readonly unusedSince?: string | undefined;
  /** RFC 3339, UTC */
  readonly expiresBefore?: string | undefined;
  /** `next` of the page before. */
  readonly after?: SearchPosition | undefined;
  /** 1 to 1000. */
  readonly limit: number;
}
