// The key components of a gateway on a real SQLite file, with a clock that the test moves and a store that it can break.
import { createHash } from 'node:crypto';
import { Authenticator } from '../../src/auth/authenticator.ts';
import { type Argon2, Hasher } from '../../src/auth/hashing/hasher.ts';
import { type KeySecret, openSecret } from '../../src/auth/hashing/hashing-secret.ts';
import { changeHolder } from '../../src/auth/holder-change.ts';
import { Key } from '../../src/auth/key/key.ts';
import type { Principal } from '../../src/auth/key/principal.ts';
import { type IssuedKey, KeyIssuer } from '../../src/auth/key-issuer.ts';
import { ChangeFeed } from '../../src/auth/records/change-feed.ts';
import { GatewayError } from '../../src/errors.ts';
import type { HolderChange, KeyRecord, Prefix } from '../../src/store/key-record.ts';
import type { Store } from '../../src/store/store.ts';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';

/** How the store answers an authenticator: as it is, with an error, or never. */
export type StoreMood = 'well' | 'failing' | 'silent';

/** One process: what it shares with others is the file alone. */
export interface Replica {
  readonly authenticator: Authenticator;
  readonly issuer: KeyIssuer;
  readonly changeHolder: ReturnType<typeof holderChanger>;
  readonly changes: ChangeFeed;
  readonly metrics: Metrics;
}

export interface Setting extends Replica, AsyncDisposable {
  readonly dir: TempDir;
  readonly path: string;
  readonly store: Store;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  /** The store as authenticators see it, in its mood. */
  readonly moody: Pick<Store, 'findKey'>;
  readonly now: () => number;
  /** Moves monotonic time, in milliseconds. */
  advance(ms: number): void;
  mood: StoreMood;
  /** Look-ups of records so far, by authenticators. */
  readonly lookups: number;
  readonly argon2: { readonly hashes: number; readonly verifies: number };
  /** Another process on the same store, as far as caches go. */
  replica(): Promise<Replica>;
  issue(tier?: 'Free' | 'Lite' | 'Pro'): Promise<IssuedKey>;
}

/** In place of Argon2 where many keys are made: the same form, none of the work. */
export function quickArgon2(count: { hashes: number; verifies: number }): Argon2 {
  const hash = (text: string) => {
    const digest = createHash('sha256').update(text).digest('base64').replaceAll('=', '');
    return `$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$${digest}`;
  };
  return {
    hash: async (text) => {
      count.hashes += 1;
      return hash(text);
    },
    verify: async (phc, text) => {
      count.verifies += 1;
      return phc === hash(text);
    },
  };
}

export async function openSetting(
  options: {
    readonly failuresPerMinute?: () => number;
    /** undefined: Argon2 itself. */
    readonly argon2?: 'quick' | undefined;
    readonly random?: (size: number) => Uint8Array;
    readonly today?: () => Date;
  } = { argon2: 'quick' },
): Promise<Setting> {
  const dir = await tempDir();
  const path = dir.file('keys.db');
  const store = await openNewStore(path);
  const secret = await openSecret(undefined, { kind: 'sqlite', path }, store);
  const argon2 = { hashes: 0, verifies: 0 };
  let time = 1_000_000;
  let lookups = 0;
  let mood: StoreMood = 'well';
  const moody = {
    findKey: (prefix: Prefix): Promise<KeyRecord | undefined> => {
      lookups += 1;
      if (mood === 'silent') return new Promise(() => {});
      if (mood === 'failing') return Promise.reject(new GatewayError('store_unavailable'));
      return store.findKey(prefix);
    },
  };
  const replica = async (): Promise<Replica & { readonly hasher: Hasher }> => {
    const metrics = createMetrics();
    const hasher = new Hasher(metrics, options.argon2 === 'quick' ? quickArgon2(argon2) : undefined);
    const authenticator = new Authenticator({
      store: moody,
      secret,
      hasher,
      metrics,
      failuresPerMinute: options.failuresPerMinute ?? (() => 60),
      now: () => time,
    });
    const issuer = new KeyIssuer({
      store,
      secret,
      hasher,
      listener: authenticator,
      ...(options.random && { random: options.random }),
      ...(options.today && { today: options.today }),
    });
    const changeHolder = holderChanger({ store, listener: authenticator });
    const changes = new ChangeFeed({
      store,
      listener: authenticator,
      metrics,
      now: () => time,
      intervalMs: 3_600_000,
    });
    await changes.start();
    return { authenticator, issuer, changeHolder, changes, metrics, hasher };
  };
  const own = await replica();
  return {
    ...own,
    dir,
    path,
    store,
    secret,
    argon2,
    moody,
    now: () => time,
    advance: (ms) => {
      time += ms;
    },
    get mood() {
      return mood;
    },
    set mood(value) {
      mood = value;
    },
    get lookups() {
      return lookups;
    },
    replica,
    issue: (tier = 'Lite') => own.issuer.issue({ tier }),
    async [Symbol.asyncDispose]() {
      await own.changes.stop();
      await store.close();
      await dir.remove();
    },
  };
}

/** Changes holders as a process with these parts does. */
export const holderChanger =
  (parts: Parameters<typeof changeHolder>[0]) => (holderId: string, change: HolderChange, reason?: string) =>
    changeHolder(parts, holderId, change, reason);

export const bearer = (key: Key | string) => `Bearer ${typeof key === 'string' ? key : key.reveal()}`;

/** What an authentication came to: the prefix of the caller, or the code of the error. */
export async function outcome(
  authenticator: Authenticator,
  key: Key | string | undefined,
  address = '192.0.2.1',
): Promise<string> {
  const header = key === undefined || typeof key === 'string' ? key : bearer(key);
  try {
    return (await authenticator.authenticate(header, address)).prefix;
  } catch (error) {
    if (error instanceof GatewayError) return error.code;
    throw error;
  }
}

/** A caller that was returned at once, or an error when it took a promise. */
export function atOnce(caller: Principal | Promise<Principal>): Principal {
  if (caller instanceof Promise) throw new Error('this key was not in the cache');
  return caller;
}

/** A key that nobody issued, with the prefix of one that somebody did, if given. */
export function wrongKey(prefix?: Prefix): Key {
  const key = Key.generate();
  return prefix === undefined ? key : parsed(prefix + key.reveal().slice(8));
}

export function parsed(text: string): Key {
  const key = Key.parse(text);
  if (key === undefined) throw new Error('not a key');
  return key;
}

/** The series of a metric by the values of their labels, without those with labels that are still 0. */
export async function counted(metric: {
  get(): Promise<{ values: unknown }>;
}): Promise<Record<string, number>> {
  const { values } = await metric.get();
  const counts: Record<string, number> = {};
  for (const { labels, value } of Array.isArray(values) ? values : []) {
    const name = Object.values(labels).join(' ');
    if (name === '' || value !== 0) counts[name] = value;
  }
  return counts;
}
