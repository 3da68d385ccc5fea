// Proves unknown keys by Argon2id, each once in the whole fleet, and records their first use.
import type { GatewayError } from '../errors.ts';
import type { Prefix } from '../store/key-record.ts';
import type { Hasher } from './hashing/hasher.ts';
import { unavailable } from './key/auth-unavailable.ts';
import type { Key } from './key/key.ts';
import type { CheckableKey } from './key/principal.ts';
import type { Fingerprint } from './records/key-cache.ts';
import type { SharedRecords } from './records/shared-records.ts';

export interface KeyProofsOptions {
  /** The records that replicas share in Redis; undefined without Redis. */
  readonly shared?: SharedRecords | undefined;
  readonly hasher: Hasher;
  /**
   * Called before an unproven key is accepted for the first time; the key is accepted when this resolves. It records the
   * first use once per key and not with every request.
   */
  readonly onFirstUse?: ((prefix: Prefix) => Promise<void>) | undefined;
}

export class KeyProofs {
  readonly #parts: KeyProofsOptions;
  /** The errors for callers of keys that wait for Argon2, and wait no longer. */
  readonly #queued = new Map<Fingerprint, () => GatewayError>();

  constructor(parts: KeyProofsOptions) {
    this.#parts = parts;
  }

  /** The error for a caller that waits no longer for a key in the queue; undefined for a key that is not in it. */
  lateError(fingerprint: Fingerprint): GatewayError | undefined {
    return this.#queued.get(fingerprint)?.();
  }

  /**
   * Resolves when the key is proven and its first use recorded: only then it counts as proven here or, through Redis, on any replica.
   * @throws (rejects with) GatewayError `auth_unavailable`, `key_hashing_overloaded`
   */
  async prove(fingerprint: Fingerprint, record: CheckableKey, key: Key): Promise<void> {
    await this.#runArgon2(fingerprint, record, key);
    try {
      await this.#parts.onFirstUse?.(key.prefix);
    } catch (error) {
      throw unavailable('store', 'the first use of a key could not be recorded', error);
    }
  }

  /**
   * Runs Argon2id once in the whole fleet. A key claims its proof when its turn has come; where another replica has the claim,
   * the slot goes to the next key, and this one waits for the result.
   */
  async #runArgon2(fingerprint: Fingerprint, record: CheckableKey, key: Key): Promise<void> {
    const { shared, hasher } = this.#parts;
    const onQueued = (late: () => GatewayError) => void this.#queued.set(fingerprint, late);
    let hasClaim = false;
    const isNeeded = async () => {
      hasClaim = (await shared?.claimProof(record)) ?? true;
      return hasClaim;
    };
    try {
      let isMatch = await hasher.prove(record.argon2, key, { isNeeded, onQueued });
      if (isMatch === undefined && (await shared?.waitForProof(record)) === true) return;
      isMatch ??= await hasher.prove(record.argon2, key, { onQueued });
      if (isMatch === true) return;
    } catch (error) {
      if (hasClaim) void shared?.releaseProof(record);
      throw error;
    } finally {
      this.#queued.delete(fingerprint);
    }
    // The HMAC matches, so a hash that does not match is damage in the store and not a client error.
    throw unavailable('contradiction', `the HMAC of key ${key.prefix} matches and its Argon2 hash does not`);
  }
}
