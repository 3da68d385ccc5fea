// The only writer of keys: issues, rotates and revokes them, and updates the authenticator of this process at once.
import { randomUUID } from 'node:crypto';
import type { Tier } from '../config/schema/config-schema.ts';
import type { Terms } from '../config/terms.ts';
import { GatewayError } from '../errors.ts';
import type {
  Authorship,
  FreeGrant,
  HolderOf,
  KeyFilter,
  KeyRecord,
  KeySummary,
  NewKey,
  OwnerLabels,
  Prefix,
  RevokeResult,
} from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import { addressBlock } from './address-block.ts';
import type { Hasher } from './hashing/hasher.ts';
import type { KeySecret } from './hashing/hashing-secret.ts';
import { announce, announceChanged, type ChangeNotifiers } from './holder-change.ts';
import { Key } from './key/key.ts';
import { type CheckableKey, type Principal, principalOf } from './key/principal.ts';
import { revokeKey } from './key-revocation.ts';
import { storableText } from './stored-text.ts';

/** Attempts to find a free prefix. With a million keys among 2^32 prefixes, all are taken with a chance below 1 in 10^18. */
const MAX_DRAWS = 5;

/** A new key, for the one response that shows it whole. */
export interface IssuedKey extends Pick<KeyRecord, 'prefix' | 'holderId' | 'tier' | 'createdAt'> {
  readonly key: Key;
}

interface RotatedKey extends IssuedKey {
  readonly replaces: Prefix;
  /** When the old key expires, RFC 3339, UTC; null: it has ended. */
  readonly validUntil: string | null;
}

export type NewKeyOptions = Pick<NewKey, 'name' | 'expiresAt' | 'terms'>;

interface KeyOrder {
  readonly key?: NewKeyOptions;
  /** Who orders it, and why, for its history. */
  readonly actor?: string;
  readonly reason?: string;
}

interface NewHolderOrder extends KeyOrder {
  readonly tier: Tier;
  readonly name?: string;
  readonly teamId?: string;
  readonly terms?: Terms;
  readonly labels?: OwnerLabels;
}

interface KeyIssuerOptions extends ChangeNotifiers {
  readonly store: Store;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  /** Announces the end of a rotated key. Default: `announcer` */
  readonly endAnnouncer?: ChangeNotifiers['announcer'];
  readonly today?: () => Date;
  /** Source of random bytes for new keys. */
  readonly random?: (size: number) => Uint8Array;
}

export class KeyIssuer {
  readonly #parts: KeyIssuerOptions;
  readonly #rotations = new Map<Prefix, Promise<RotatedKey>>();

  constructor(parts: KeyIssuerOptions) {
    this.#parts = parts;
  }

  /**
   * Issues a key for a new holder.
   *
   * @throws GatewayError `invalid_value` for a name that cannot be stored, `store_unavailable`
   */
  async issue(order: NewHolderOrder): Promise<IssuedKey> {
    const { tier, teamId, terms, labels, key } = order;
    const name = order.name === undefined ? null : storableText(order.name, 'name');
    const holder: HolderOf = {
      kind: 'new',
      id: randomUUID(),
      tier,
      name,
      ...(teamId !== undefined && { teamId }),
      ...(terms !== undefined && { terms }),
      ...(labels !== undefined && { labels }),
    };
    return this.#add(holder, order.reason ?? null, { ...key, actor: order.actor });
  }

  /**
   * Issues another key for the holder of `prefix`, whatever the state of that key. Limits, quota and usage continue.
   *
   * @returns undefined when there is no such key
   * @throws GatewayError `store_unavailable`
   */
  async issueFor(prefix: Prefix, order: KeyOrder = {}): Promise<IssuedKey | undefined> {
    if ((await this.#parts.store.findKey(prefix)) === undefined) return undefined;
    const [about, { reason: why }] = [`for the holder of ${prefix}`, order];
    const reason = why === undefined ? about : `${about}: ${why}`;
    return this.#add({ kind: 'of', prefix }, reason, { ...order.key, actor: order.actor });
  }

  /**
   * Issues a Free key, counted against the address (IPv6: its /64) for this day in UTC.
   *
   * @throws GatewayError `free_key_limit`, `store_unavailable`
   */
  async issueFree(order: { readonly address: string; readonly perDay: number }): Promise<IssuedKey> {
    const grant = await this.freeGrant(order);
    const holder: HolderOf = { kind: 'new', id: randomUUID(), tier: 'Free' };
    return this.#add(holder, null, {}, grant);
  }

  /**
   * The count that a Free key for this address falls under today.
   *
   * @throws GatewayError `free_key_limit`, `store_unavailable`
   */
  async freeGrant(order: { readonly address: string; readonly perDay: number }): Promise<FreeGrant> {
    const address = this.#parts.secret.addressDigest(addressBlock(order.address));
    const day = this.#now().slice(0, 10);
    // The count in the transaction decides; this one only saves the hash.
    if ((await this.#parts.store.freeGrants(day, address)) >= order.perDay)
      throw new GatewayError('free_key_limit');
    return { day, address, perDay: order.perDay };
  }

  /**
   * Replaces the principal's key, in this process at once. A suspended holder
   * may rotate and stays suspended.
   *
   * @param overlapMs how long the old key stays valid. Default 0: it is invalid when this resolves
   * @param by who rotates it, and why. Default: its holder
   * @throws GatewayError `invalid_api_key` when another rotation or a revocation came first, `key_already_rotated` during an overlap,
   *   `store_unavailable`
   */
  async rotate(
    principal: Pick<Principal, 'prefix'>,
    overlapMs = 0,
    by?: Omit<Authorship, 'at'>,
  ): Promise<RotatedKey> {
    const running = this.#rotations.get(principal.prefix);
    if (running !== undefined) {
      // The new key goes out once, to the first request. If that rotation fails, the old key stays valid.
      const { prefix, validUntil } = await running;
      throw validUntil === null ? new GatewayError('invalid_api_key') : alreadyRotated(prefix);
    }
    const rotation = this.#rotate(principal, overlapMs, by).finally(() =>
      this.#rotations.delete(principal.prefix),
    );
    this.#rotations.set(principal.prefix, rotation);
    return rotation;
  }

  revoke(prefix: Prefix, reason?: string): Promise<RevokeResult> {
    return revokeKey(this.#parts, prefix, reason);
  }

  /** Announces a change that a caller's own transaction made: see the function `announceChanged`. */
  announceChanged(records: readonly CheckableKey[], at: string): Promise<void> {
    return announceChanged(this.#parts, records, at);
  }

  /** Keys in the order of `Store.listKeys`. @throws GatewayError `store_unavailable` */
  async list(filter: KeyFilter): Promise<readonly KeySummary[]> {
    return (await this.#parts.store.listKeys(filter)).items;
  }

  async #add(
    holder: HolderOf,
    reason: string | null,
    { actor = null, ...own }: NewKeyOptions & { readonly actor?: string | null | undefined },
    grant?: FreeGrant,
  ): Promise<IssuedKey> {
    const { store } = this.#parts;
    const { key, outcome } = await this.mint((added) =>
      store.addKey({ ...added, ...own }, holder, reason, grant, actor),
    );
    if (outcome.kind === 'added') return this.#issued(key, outcome.record);
    if (outcome.kind === 'free_limit') throw new GatewayError('free_key_limit');
    // `unknown_holder` cannot follow a found holder, and `mint` handles `prefix_taken`.
    throw new Error(`the store answered ${outcome.kind} to a new key`);
  }

  async #rotate(
    principal: Pick<Principal, 'prefix'>,
    overlapMs: number,
    by: Omit<Authorship, 'at'> | undefined,
  ): Promise<RotatedKey> {
    const { store, listener, announcer, endAnnouncer = announcer } = this.#parts;
    const write = (successor: NewKey) => {
      const keepUntil =
        overlapMs > 0 ? new Date(Date.parse(successor.createdAt) + overlapMs).toISOString() : undefined;
      return store.rotateKey(principal, successor, keepUntil, by);
    };
    const requireFirst = async () => {
      const old = await store.findKey(principal.prefix);
      // Only the state: a change of the holder may have raised the version since authentication.
      if (old?.state !== 'active') throw new GatewayError('invalid_api_key');
      if (old.replacedBy !== null) throw alreadyRotated(old.replacedBy);
    };
    const { key, outcome } = await this.mint(write, requireFirst);
    if (outcome.kind !== 'rotated') {
      // Another process was first; with an overlap the key is still good.
      await requireFirst();
      throw new GatewayError('invalid_api_key');
    }
    const { record, endedVersion: version, validUntil, kept } = outcome;
    const notified = { listener, announcer: endAnnouncer };
    // Announce both before the response, so that no replica accepts the old key after it.
    const announced =
      kept === undefined
        ? announce(notified, { prefix: principal.prefix, kind: 'rotated', version, at: record.createdAt })
        : announceChanged(notified, [kept], record.createdAt);
    const [issued] = await Promise.all([this.#issued(key, record), announced]);
    return { ...issued, replaces: principal.prefix, validUntil };
  }

  /**
   * Makes a key that `write` stores. It is not cached or announced: its first use is looked up and proven, and is therefore
   * recorded.
   *
   * @param write called again with another key when it returns `prefix_taken`
   * @param check runs before the expensive hash; it rejects when no key may be made
   * @throws GatewayError `store_unavailable`, and what `write` throws
   */
  async mint<T extends { readonly kind: string }>(
    write: (key: NewKey) => Promise<T>,
    check = async () => {},
  ): Promise<{ readonly key: Key; readonly outcome: T }> {
    for (let draw = 0; draw < MAX_DRAWS; draw += 1) {
      const key = Key.generate(this.#parts.random);
      // Checked before the expensive hash; the transaction decides.
      const [taken] = await Promise.all([this.#parts.store.findKey(key.prefix), check()]);
      if (taken !== undefined) continue;
      const argon2 = await this.#parts.hasher.hash(key);
      const outcome = await write({
        prefix: key.prefix,
        argon2,
        hmac: this.#parts.secret.digest(key),
        createdAt: this.#now(),
      });
      if (outcome.kind !== 'prefix_taken') return { key, outcome };
    }
    throw new GatewayError('store_unavailable', 'The gateway cannot make a key at the moment.', {
      cause: new Error(`all ${MAX_DRAWS} generated prefixes are taken`),
    });
  }

  /** RFC 3339, UTC. */
  #now(): string {
    return (this.#parts.today?.() ?? new Date()).toISOString();
  }

  async #issued(key: Key, record: KeyRecord): Promise<IssuedKey> {
    const { prefix, holderId, tier, version, createdAt } = record;
    const announced = announce(this.#parts, { prefix, kind: 'issued', version, at: createdAt }, record);
    this.#parts.listener?.preload(key, principalOf(record));
    await announced;
    return { key, prefix, holderId, tier, createdAt };
  }
}

function alreadyRotated(successor: Prefix): GatewayError {
  return new GatewayError(
    'key_already_rotated',
    `This key was rotated already, and its successor is ${successor}. Rotate that one instead.`,
  );
}
