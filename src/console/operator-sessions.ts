// Sessions of operators in browsers. They are in the store, which all replicas share; the cookie has the only copy of its secret.
import { hash, randomBytes, randomUUID } from 'node:crypto';
import type { OperatorRecord, OperatorSession } from '../store/operator-record.ts';
import type { Store } from '../store/store.ts';
import { operatorEvent } from './operator-tokens.ts';

const COOKIE = /^[A-Za-z0-9_-]{43}$/;
/** A session ends without a request for this long. */
const IDLE_MS = 30 * 60_000;
/** A session ends this long after sign-in. */
const LIFETIME_MS = 12 * 3_600_000;
/** The cookie gets a new secret after this time. */
const ROTATE_MS = 10 * 60_000;
/** The previous secret stays valid for requests that were under way. */
const GRACE_MS = 60_000;
/** The last use is written at most this often. */
const TOUCH_MS = 60_000;

interface FoundSession {
  readonly session: OperatorSession;
  readonly operator: OperatorRecord;
  /** The new secret of the cookie, to be sent with the answer. */
  readonly replacement: string | undefined;
}

export class OperatorSessions {
  readonly #store: Store['operators'];
  readonly #now: () => number;

  constructor(store: Store['operators'], now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /** @returns the secret for the cookie */
  async begin(operator: OperatorRecord, address: string): Promise<string> {
    const now = this.#now();
    const at = new Date(now).toISOString();
    const secret = newSecret();
    await this.#store.addSession(
      {
        id: randomUUID(),
        operatorId: operator.id,
        hash: hashOf(secret),
        previous: null,
        rotatedAt: at,
        createdAt: at,
        usedAt: at,
        address,
      },
      new Date(now - IDLE_MS).toISOString(),
      new Date(now - LIFETIME_MS).toISOString(),
    );
    return secret;
  }

  /**
   * The session of a cookie; undefined when there is none, or when it is over. A secret that was replaced a while ago is a copy in
   * other hands, or the browser has one: the session ends.
   */
  async find(secret: string, address: string): Promise<FoundSession | undefined> {
    if (!COOKIE.test(secret)) return undefined;
    const digest = hashOf(secret);
    const found = await this.#store.findSession(digest);
    if (found === undefined) return undefined;
    const { session, operator } = found;
    const now = this.#now();
    const at = new Date(now).toISOString();
    const since = (time: string) => now - Date.parse(time);
    if (since(session.usedAt) > IDLE_MS || since(session.createdAt) > LIFETIME_MS) {
      await this.#store.endSession(session.id);
      return undefined;
    }
    if (!digest.equals(session.hash)) {
      if (since(session.rotatedAt) <= GRACE_MS) return { session, operator, replacement: undefined };
      await this.#store.endSession(session.id);
      const by = { actor: `operator:${operator.name}`, reason: 'a replaced cookie was sent again', at };
      const event = operatorEvent('session.end', operator.name, by, {});
      await this.#store.addEvent({ ...event, address });
      return undefined;
    }
    if (since(session.rotatedAt) > ROTATE_MS) {
      const replacement = newSecret();
      const isOurs = await this.#store.rotateSession(session.id, digest, hashOf(replacement), at);
      return { session, operator, replacement: isOurs ? replacement : undefined };
    }
    if (since(session.usedAt) > TOUCH_MS) await this.#store.touchSession(session.id, at);
    return { session, operator, replacement: undefined };
  }

  end({ id }: OperatorSession): Promise<void> {
    return this.#store.endSession(id);
  }
}

function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

/** It has 256 random bits, so a slow hash is not needed. */
function hashOf(secret: string): Buffer {
  return hash('sha256', secret, 'buffer');
}
