// The support desk: issues, revokes and changes tiers as `tollgate keys` does, with the same parts in this process, because the command takes
// a second to start. Now and then it is the command itself.

import { Hasher } from '../../../src/auth/hashing/hasher.ts';
import { type KeySecret, openSecret } from '../../../src/auth/hashing/hashing-secret.ts';
import { changeHolder } from '../../../src/auth/holder-change.ts';
import { KeyIssuer } from '../../../src/auth/key-issuer.ts';
import { revokeKey } from '../../../src/auth/key-revocation.ts';
import { KeyAnnouncer } from '../../../src/auth/records/key-broadcast.ts';
import { SharedRecords } from '../../../src/auth/records/shared-records.ts';
import type { Tier } from '../../../src/config/schema/config-schema.ts';
import { type Confirmation, publish, sendAndConfirm } from '../../../src/redis/broadcast.ts';
import { RedisClient } from '../../../src/redis/redis-client.ts';
import { isPrefix, type KeySummary, type SearchPosition } from '../../../src/store/key-record.ts';
import { openStore } from '../../../src/store/open.ts';
import type { Store } from '../../../src/store/store.ts';
import { createLogger } from '../../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../../src/telemetry/metrics/all-metrics.ts';
import type { Fleet } from '../../helpers/fleet.ts';
import { field } from '../holder.ts';
import type { Revoke, StoredKey } from './operation.ts';
import type { Roster } from './roster.ts';

/** The command waits 5 s. One that was killed is waited for in vain, and clients have other things to do. */
const CONFIRM_MS = 700;
const PAGE = 500;

export type Revocation = Pick<Revoke, 'outcome' | 'storedAt' | 'confirmedBy'>;

export class Desk implements AsyncDisposable {
  readonly #fleet: Fleet;
  readonly #roster: Roster;
  readonly #store: Store;
  readonly #redis: RedisClient;
  readonly #announcer: KeyAnnouncer;
  readonly #issuer: KeyIssuer;
  readonly #logger = createLogger(undefined, 'silent');

  static async open(fleet: Fleet, roster: Roster): Promise<Desk> {
    const address = { kind: 'postgres', url: fleet.database } as const;
    const store = await openStore(address);
    const desk = new Desk(fleet, roster, store, await openSecret(fleet.secret, address, store));
    await desk.#redis.start();
    return desk;
  }

  private constructor(fleet: Fleet, roster: Roster, store: Store, secret: KeySecret) {
    this.#fleet = fleet;
    this.#roster = roster;
    this.#store = store;
    const metrics = createMetrics();
    const redis = new RedisClient({ url: fleet.redis.url, logger: this.#logger });
    const shared = new SharedRecords({ redis, secret, metrics });
    const announcer = new KeyAnnouncer({ redis, shared, send: (body) => publish(redis, { body }) });
    this.#redis = redis;
    this.#announcer = announcer;
    this.#issuer = new KeyIssuer({ store, secret, hasher: new Hasher(metrics), announcer });
  }

  /** @returns the whole key, or undefined when the desk cannot say that there is one */
  async issue(): Promise<string | undefined> {
    try {
      return (await this.#issuer.issue({ tier: 'Pro' })).key.reveal();
    } catch {
      return undefined;
    }
  }

  /** The same by the command. */
  async issueByCommand(): Promise<string | undefined> {
    const { code, stdout } = await this.#fleet.keys('issue', '--tier', 'Pro');
    return code === 0 ? stdout.trim() : undefined;
  }

  /** Another tier for the holder of a key, with the secret or without, if the store can be had. */
  async changeTier(name: string, tier: Tier, isSecretKnown: boolean): Promise<void> {
    const record = isPrefix(name) ? await this.#store.findKey(name).catch(() => undefined) : undefined;
    if (record === undefined) return;
    const redis = this.#redis;
    const unsigned = new KeyAnnouncer({ redis, send: (body) => publish(redis, { body }) });
    const announcer = isSecretKnown ? this.#announcer : unsigned;
    const change = changeHolder({ store: this.#store, announcer }, record.holderId, { tier });
    // Whether it came about is of no matter: keys are as good as before.
    await change.catch(() => {});
  }

  /** Makes Redis forget the record of one key, as it does when its memory is full. */
  async forget(name: string): Promise<void> {
    await this.#redis.run((commands) => commands.del(`tollgate:key:{${name}}`)).catch(() => {});
  }

  async revoke(name: string): Promise<Revocation> {
    if (!isPrefix(name)) throw new Error(`${name} is no prefix`);
    let storedAt: number | undefined;
    let confirmation: Confirmation | undefined;
    const store: Pick<Store, 'revokeKey'> = {
      revokeKey: async (...args) => {
        const outcome = await this.#store.revokeKey(...args);
        storedAt = performance.now();
        return outcome;
      },
    };
    const parts = { redis: this.#redis, url: this.#fleet.redis.url, logger: this.#logger };
    const send = async (body: string) => {
      confirmation = await sendAndConfirm(parts, body, CONFIRM_MS);
    };
    try {
      const { kind } = await revokeKey({ store, announcer: new KeyAnnouncer({ ...parts, send }) }, name);
      if (kind === 'unknown') throw new Error(`the store does not know ${name}, which it has issued`);
      return { outcome: kind, storedAt, confirmedBy: this.#numbers(confirmation) };
    } catch (error) {
      if (storedAt !== undefined) throw error;
      return { outcome: 'unknown', storedAt, confirmedBy: [] };
    }
  }

  async revokeByCommand(name: string): Promise<Revocation> {
    const { code, stdout } = await this.#fleet.keys('revoke', name, '--json');
    // 3: revoked, and not confirmed by all.
    const told = code === 0 || code === 3 ? field(JSON.parse(stdout), 'outcome') : undefined;
    const outcome = told === 'revoked' || told === 'already' ? told : 'unknown';
    return { outcome, storedAt: undefined, confirmedBy: [] };
  }

  /** All keys that the store holds. */
  async inventory(): Promise<readonly StoredKey[]> {
    const all: KeySummary[] = [];
    for (let after: SearchPosition | undefined; ; ) {
      const { items, next } = await this.#store.listKeys({ limit: PAGE, after });
      all.push(...items);
      if (next === undefined) break;
      after = next;
    }
    return all.map(({ prefix, holderId, state, replacedBy }) => {
      return { key: prefix, holder: holderId, state, replacedBy };
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#redis.close();
    await this.#store.close();
  }

  /** The process id is the second part of the name of a replica. */
  #numbers(confirmation: Confirmation | undefined): readonly number[] {
    return (confirmation?.confirmed ?? []).flatMap(({ id }) => {
      const member = this.#roster.byPid(Number(/:(\d+):[0-9a-f]{6}$/.exec(id)?.[1]));
      return member === undefined ? [] : [member.number];
    });
  }
}
