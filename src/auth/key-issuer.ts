// The only writer of keys: makes, rotates and revokes them, and tells the authenticator of this process at once.
import { randomUUID } from 'node:crypto';
import type { Tier } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type {
  AddResult,
  ChangeResult,
  FreeGrant,
  HolderChange,
  HolderOf,
  KeyChange,
  KeyFilter,
  KeyRecord,
  KeySummary,
  NewKey,
  Prefix,
  RevokeResult,
} from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import { addressBlock } from './address-block.ts';
import type { Hasher } from './hashing/hasher.ts';
import type { KeySecret } from './hashing/hashing-secret.ts';
import { announceChanged, changeHolder } from './holder-change.ts';
import { Key } from './key/key.ts';
import { type CheckableKey, type Principal, principalOf } from './key/principal.ts';
import type { Announcer } from './records/announcer.ts';
import type { KeyListener } from './records/key-cache.ts';
import { storableText } from './stored-text.ts';

/** Of 2^32 prefixes: with a million keys the chance that all of these draws are taken is below 1 in 10^18. */
const DRAWS = 5;

/** A key in the one answer that has it whole. */
export interface IssuedKey {
  readonly key: Key;
  readonly prefix: Prefix;
  readonly holderId: string;
  readonly tier: Tier;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

interface RotatedKey extends IssuedKey {
  readonly replaces: Prefix;
}

interface KeyHistory {
  readonly key: KeySummary;
  /** Oldest first. */
  readonly events: readonly KeyChange[];
}

interface KeyIssuerOptions {
  readonly store: Store;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  /** The authenticator of this process, where there is one. */
  readonly listener?: KeyListener;
  /** Where there are other processes that listen. */
  readonly announcer?: Announcer | undefined;
  /** The wall clock. */
  readonly today?: () => Date;
  /** Source of bytes for new keys. */
  readonly random?: (size: number) => Uint8Array;
}

export class KeyIssuer {
  readonly #store: Store;
  readonly #secret: KeySecret;
  readonly #hasher: Hasher;
  readonly #listener: KeyListener | undefined;
  readonly #announcer: Announcer | undefined;
  readonly #today: () => Date;
  readonly #random: ((size: number) => Uint8Array) | undefined;
  readonly #rotations = new Map<Prefix, Promise<RotatedKey>>();

  constructor(parts: KeyIssuerOptions) {
    this.#store = parts.store;
    this.#secret = parts.secret;
    this.#hasher = parts.hasher;
    this.#listener = parts.listener;
    this.#announcer = parts.announcer;
    this.#today = parts.today ?? (() => new Date());
    this.#random = parts.random;
  }

  /**
   * A key for a new holder.
   *
   * @throws GatewayError `invalid_value` for a label that cannot be kept, `store_unavailable`
   */
  async issue(order: { readonly tier: Tier; readonly label?: string }): Promise<IssuedKey> {
    const label = order.label === undefined ? null : storableText(order.label, 'label');
    const holder: HolderOf = { kind: 'new', id: randomUUID(), tier: order.tier, label };
    const { key, outcome } = await this.#mint((added) => this.#store.addKey(added, holder, null));
    return this.#issued(key, addedRecord(outcome));
  }

  /**
   * One more key for the holder of `prefix`, whatever became of that key: limits, quota and usage go on.
   *
   * @returns undefined when there is no such key
   * @throws GatewayError `store_unavailable`
   */
  async issueFor(prefix: Prefix): Promise<IssuedKey | undefined> {
    if ((await this.#store.findKey(prefix)) === undefined) return undefined;
    const { key, outcome } = await this.#mint((added) =>
      this.#store.addKey(added, { kind: 'of', prefix }, `for the holder of ${prefix}`),
    );
    return this.#issued(key, addedRecord(outcome));
  }

  /**
   * A Free key, counted against the address (IPv6: its /64) for this day in UTC.
   *
   * @throws GatewayError `free_key_limit`, `store_unavailable`
   */
  async issueFree(order: { readonly address: string; readonly perDay: number }): Promise<IssuedKey> {
    const grant = await this.freeGrant(order);
    const holder: HolderOf = { kind: 'new', id: randomUUID(), tier: 'Free', label: null };
    const { key, outcome } = await this.#mint((added) => this.#store.addKey(added, holder, null, grant));
    return this.#issued(key, addedRecord(outcome));
  }

  /**
   * What a Free key for this address is counted by, today.
   *
   * @throws GatewayError `free_key_limit`, `store_unavailable`
   */
  async freeGrant(order: { readonly address: string; readonly perDay: number }): Promise<FreeGrant> {
    const address = this.#secret.addressDigest(addressBlock(order.address));
    const day = this.#today().toISOString().slice(0, 10);
    // The count in the transaction decides; this one only spares the hash when the answer is clear.
    if ((await this.#store.freeGrants(day, address)) >= order.perDay)
      throw new GatewayError('free_key_limit');
    return { day, address, perDay: order.perDay };
  }

  /**
   * Makes a key that `write` stores, in a transaction with more in it. Nobody is told that it is good: its first use is looked
   * up and proved like that of a strange key, and so it can be known whether it was ever used.
   *
   * @param write may be called again, with another key, where it answers `prefix_taken`
   * @throws GatewayError `store_unavailable`, and what `write` throws
   */
  mint<T extends { readonly kind: string }>(
    write: (key: NewKey) => Promise<T>,
  ): Promise<{ readonly key: Key; readonly outcome: T }> {
    return this.#mint(write);
  }

  /**
   * Replaces the caller's key. The old one is bad from the moment this resolves, in this process at once. The holder stays
   * what it is: a suspended one may rotate, and its new key is not served either.
   *
   * @throws GatewayError `invalid_api_key` when another rotation or a revocation came first, `store_unavailable`
   */
  async rotate(principal: Principal): Promise<RotatedKey> {
    const running = this.#rotations.get(principal.prefix);
    if (running !== undefined) {
      // Whatever it comes to, this one does not get the key: it goes out once. Without a result the old key still stands.
      await running;
      throw new GatewayError('invalid_api_key');
    }
    const rotation = this.#rotate(principal).finally(() => this.#rotations.delete(principal.prefix));
    this.#rotations.set(principal.prefix, rotation);
    return rotation;
  }

  /** Ends a key for good: see `revokeKey`. */
  revoke(prefix: Prefix, reason?: string): Promise<RevokeResult> {
    return revokeKey(
      {
        store: this.#store,
        today: this.#today,
        listener: this.#listener,
        announcer: this.#announcer,
      },
      prefix,
      reason,
    );
  }

  /** Another tier or standing for a holder, for the whole fleet at once: see `changeHolder`. */
  changeHolder(holderId: string, change: HolderChange, reason?: string): Promise<ChangeResult> {
    return changeHolder(
      {
        store: this.#store,
        today: this.#today,
        listener: this.#listener,
        announcer: this.#announcer,
      },
      holderId,
      change,
      reason,
    );
  }

  /** For whoever changed a holder in a transaction of its own: see `announceChanged`. */
  announceChanged(records: readonly CheckableKey[], at: string): Promise<void> {
    return announceChanged({ listener: this.#listener, announcer: this.#announcer }, records, at);
  }

  /** Keys in the order of issue. @throws GatewayError `store_unavailable` */
  list(filter: KeyFilter): Promise<readonly KeySummary[]> {
    return this.#store.listKeys(filter);
  }

  /** A key and what happened to it, or undefined. @throws GatewayError `store_unavailable` */
  async show(prefix: Prefix): Promise<KeyHistory | undefined> {
    const record = await this.#store.findKey(prefix);
    if (record === undefined) return undefined;
    const { argon2: _argon2, hmac: _hmac, ...key } = record;
    return { key, events: await this.#store.historyOf(prefix) };
  }

  async #rotate(principal: Principal): Promise<RotatedKey> {
    const rotate = (successor: NewKey) => this.#store.rotateKey(principal, successor);
    const { key, outcome } = await this.#mint(rotate, () => this.#requireActive(principal));
    if (outcome.kind !== 'rotated') throw new GatewayError('invalid_api_key');
    const { record, endedVersion } = outcome;
    const ended = { prefix: principal.prefix, kind: 'rotated', version: endedVersion } as const;
    this.#listener?.changed(ended);
    // Together: the successor is of no use while another replica takes the old key.
    const [issued] = await Promise.all([
      this.#issued(key, record),
      this.#announcer?.announce({ ...ended, at: record.createdAt }),
    ]);
    return { ...issued, replaces: principal.prefix };
  }

  /** Only the state counts. The version may have grown since the caller was checked, because the holder changed. */
  async #requireActive({ prefix }: Principal): Promise<void> {
    const current = await this.#store.findKey(prefix);
    if (current?.state !== 'active') throw new GatewayError('invalid_api_key');
  }

  /**
   * Draws a key, hashes it and hands it to `write`, again with another one when the prefix is taken.
   * @param check rejects where no key may be made; it is asked before the hash
   */
  async #mint<T extends { readonly kind: string }>(
    write: (key: NewKey) => Promise<T>,
    check = async () => {},
  ): Promise<{ readonly key: Key; readonly outcome: T }> {
    for (let draw = 0; draw < DRAWS; draw += 1) {
      const key = Key.generate(this.#random);
      // Before the hash, which is what a draw costs. The transaction decides.
      const [taken] = await Promise.all([this.#store.findKey(key.prefix), check()]);
      if (taken !== undefined) continue;
      const argon2 = await this.#hasher.hash(key);
      const outcome = await write({
        prefix: key.prefix,
        argon2,
        hmac: this.#secret.digest(key),
        createdAt: this.#today().toISOString(),
      });
      if (outcome.kind !== 'prefix_taken') return { key, outcome };
    }
    throw new GatewayError('store_unavailable', 'The gateway cannot make a key at the moment.', {
      cause: new Error(`${DRAWS} drawn prefixes were all taken`),
    });
  }

  async #issued(key: Key, record: KeyRecord): Promise<IssuedKey> {
    const { prefix, holderId, tier, version, createdAt } = record;
    const issued = { prefix, kind: 'issued', version } as const;
    this.#listener?.changed(issued);
    this.#listener?.learned(key, principalOf(record));
    await this.#announcer?.announce({ ...issued, at: createdAt }, record);
    return { key, prefix, holderId, tier, createdAt };
  }
}

/**
 * Ends a key for good. It needs neither the secret nor a hash, so that it works when they cannot be had.
 *
 * @throws GatewayError `invalid_value` for a reason that cannot be kept, `store_unavailable`
 */
export async function revokeKey(
  parts: {
    readonly store: Pick<Store, 'revokeKey'>;
    readonly listener?: KeyListener | undefined;
    readonly announcer?: Announcer | undefined;
    readonly today?: () => Date;
  },
  prefix: Prefix,
  reason?: string,
): Promise<RevokeResult> {
  const kept = reason === undefined ? null : storableText(reason, 'reason');
  const now = parts.today?.() ?? new Date();
  const outcome = await parts.store.revokeKey(prefix, kept, now.toISOString());
  if (outcome.kind === 'unknown') return outcome;
  // Also one that had ended before: who asks again may do so because not everybody was told.
  const { version, state, endedAt } = outcome.record;
  const ended = { prefix, kind: state === 'revoked' ? 'revoked' : 'rotated', version } as const;
  parts.listener?.changed(ended);
  await parts.announcer?.announce({ ...ended, at: endedAt ?? now.toISOString() });
  return outcome;
}

/** Whether a key was revoked for a reason that ends its running requests as well: one that begins with `compromised`. */
export function isCompromised(reason: string | null): boolean {
  return reason !== null && /^compromised\b/i.test(reason);
}

function addedRecord(outcome: AddResult): KeyRecord {
  if (outcome.kind === 'added') return outcome.record;
  if (outcome.kind === 'free_limit') throw new GatewayError('free_key_limit');
  // A holder that was found does not vanish, and a taken prefix was drawn again.
  throw new Error(`the store answered ${outcome.kind} to a new key`);
}
