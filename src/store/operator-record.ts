// Records of operators, of their sessions in browsers, and of what they do. No type here can contain a whole token.
import type { Prefix } from './key-record.ts';

export const ROLES = ['viewer', 'support', 'admin'] as const;

/** Each role may do what the ones before it may. */
export type Role = (typeof ROLES)[number];

/** A person who operates the gateway. */
export interface OperatorRecord {
  readonly id: string;
  /** Unique, ignoring the case of ASCII letters. */
  readonly name: string;
  readonly role: Role;
  /** The first 8 hexadecimal characters of the token. */
  readonly prefix: Prefix;
  /** Argon2id in PHC string format. */
  readonly argon2: string;
  /** HMAC-SHA-256 of the whole token under the secret: 32 bytes. */
  readonly hmac: Uint8Array;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /** From then on the token is not accepted. RFC 3339, UTC; null: it does not expire. */
  readonly expiresAt: string | null;
  /** The last use, to the minute. RFC 3339, UTC; null before the first. */
  readonly usedAt: string | null;
}

/** What a token is stored as. */
export type StoredToken = Pick<OperatorRecord, 'prefix' | 'argon2' | 'hmac' | 'expiresAt'>;

/** A session of an operator in a browser. */
export interface OperatorSession {
  readonly id: string;
  readonly operatorId: string;
  /** SHA-256 of the cookie. */
  readonly hash: Uint8Array;
  /** SHA-256 of the cookie before the last rotation. */
  readonly previous: Uint8Array | null;
  /** RFC 3339, UTC, as the following ones. */
  readonly rotatedAt: string;
  readonly createdAt: string;
  readonly usedAt: string;
  /** Of the browser at sign-in. */
  readonly address: string;
}

/** Something that an operator does. It is recorded before it is done, so `status` is null until it has ended. */
export interface OperatorEvent {
  readonly id: number;
  /** RFC 3339, UTC. */
  readonly at: string;
  /** Such as `operator:ann`, or `cli:ann`. */
  readonly actor: string;
  readonly address: string | null;
  /** Such as `keys.revoke`. */
  readonly what: string;
  /** What it is done to: a prefix, an id or a name. */
  readonly target: string | null;
  readonly reason: string | null;
  /** JSON of the record before. */
  readonly before: string | null;
  /** JSON of the answer, without secrets. */
  readonly after: string | null;
  /** HTTP status of the answer. */
  readonly status: number | null;
  /** `Idempotency-Key` of the request, unique for the actor. */
  readonly requestKey: string | null;
  /** SHA-256 of method, target and body, in hexadecimal: another request with this key is an error. */
  readonly digest: string | null;
}

export type NewOperatorEvent = Omit<OperatorEvent, 'id'>;

/** Operators in the store. The guarantees of `Store` apply to its methods. The event of a change is null where the caller records it. */
export interface OperatorStore {
  /** Adds an operator with its event. */
  addOperator(
    operator: OperatorRecord,
    event: NewOperatorEvent | null,
  ): Promise<'added' | 'name_taken' | 'prefix_taken'>;
  /** Gives an operator another token, with its event, and ends its sessions. */
  replaceToken(
    id: string,
    token: StoredToken,
    event: NewOperatorEvent | null,
  ): Promise<'replaced' | 'prefix_taken' | 'unknown'>;
  /** Removes an operator with its sessions. */
  removeOperator(id: string, event: NewOperatorEvent | null): Promise<'removed' | 'unknown'>;
  /** Ordered by name. */
  listOperators(limit: number): Promise<readonly OperatorRecord[]>;
  findOperator(
    whose: { readonly name: string } | { readonly prefix: string },
  ): Promise<OperatorRecord | undefined>;
  recordUse(id: string, at: string): Promise<void>;

  /** Adds a session, and deletes those last used before `idleBefore` or begun before `begunBefore`. */
  addSession(session: OperatorSession, idleBefore: string, begunBefore: string): Promise<void>;
  /** The session whose cookie has this hash, or had it before the last rotation. */
  findSession(
    hash: Uint8Array,
  ): Promise<{ readonly session: OperatorSession; readonly operator: OperatorRecord } | undefined>;
  /** Replaces the hash `from`. @returns false when another request has done so */
  rotateSession(id: string, from: Uint8Array, to: Uint8Array, at: string): Promise<boolean>;
  touchSession(id: string, at: string): Promise<void>;
  endSession(id: string): Promise<void>;

  /** @returns the id of the event; or the one that has the same `requestKey` and actor, and nothing is added. Deletes the oldest beyond 400 days */
  addEvent(event: NewOperatorEvent): Promise<{ readonly id: number } | { readonly known: OperatorEvent }>;
  settleEvent(id: number, outcome: Pick<OperatorEvent, 'status' | 'after'>): Promise<void>;
  /** Deletes an event of a request that was refused before it could change something. */
  dropEvent(id: number): Promise<void>;
  /** Newest first. */
  events(filter: {
    readonly actor?: string | undefined;
    readonly what?: string | undefined;
    readonly target?: string | undefined;
    /** Only older ones than the event with this id. */
    readonly before?: number | undefined;
    readonly limit: number;
  }): Promise<readonly OperatorEvent[]>;
}
