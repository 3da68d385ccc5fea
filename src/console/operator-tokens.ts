// Tokens of operators: made, replaced, and verified like keys (HMAC first, then Argon2id once per process), with limited attempts.
import { hash, randomUUID } from 'node:crypto';
import { addressBlock } from '../auth/address-block.ts';
import { FailureLimit } from '../auth/failure-limits.ts';
import type { Hasher } from '../auth/hashing/hasher.ts';
import { isSameBytes, type KeySecret } from '../auth/hashing/hashing-secret.ts';
import { Key } from '../auth/key/key.ts';
import { GatewayError } from '../errors.ts';
import { RecentMap } from '../recent-map.ts';
import type { Authorship } from '../store/key-record.ts';
import type { NewOperatorEvent, OperatorRecord, StoredToken } from '../store/operator-record.ts';
import type { Store } from '../store/store.ts';

/** Differs from keys, so that secret scanners can tell it, and nobody uses one for the other. */
const TOKEN_PREFIX = 'tgo_';
const NAME = /^[a-z0-9](?:[a-z0-9._@+-]{0,98}[a-z0-9])?$/i;
const MAX_DRAWS = 5;
/** Attempts in a minute with tokens that this process has not verified before. */
const ATTEMPTS_OF_ADDRESS = 20;
const ATTEMPTS_OF_PREFIX = 60;
/** Verified tokens remembered by their digest. */
const MAX_VERIFIED = 1000;
/** A use is recorded at most this often, in milliseconds. */
const USE_MS = 60_000;

interface TokenParts {
  readonly store: Pick<Store, 'operators'>;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  /** Whether the caller records the change. */
  readonly isRecorded?: boolean;
}

/** The one time that a whole token is shown. */
interface IssuedToken {
  readonly token: string;
  readonly prefix: string;
}

/** Whether this can be the name of an operator; identity providers use mail addresses. */
export function isOperatorName(text: string): boolean {
  return NAME.test(text);
}

/** What the command line and events show of an operator. */
export function operatorFields(operator: OperatorRecord) {
  const { name, role, prefix, createdAt, expiresAt, usedAt } = operator;
  return { name, role, prefix, created_at: createdAt, expires_at: expiresAt, last_used: usedAt };
}

/** An event of the command line, which needs no answer. */
export function operatorEvent(
  what: string,
  target: string,
  { at, actor, reason }: Authorship,
  change: { readonly before?: object; readonly after?: object },
): NewOperatorEvent {
  return {
    at,
    actor: actor ?? 'unknown',
    address: null,
    what,
    target,
    reason,
    requestKey: null,
    digest: null,
    before: change.before === undefined ? null : JSON.stringify(change.before),
    after: change.after === undefined ? null : JSON.stringify(change.after),
    status: 200,
  };
}

/**
 * @param expiresAt RFC 3339, UTC; null: the token does not expire
 * @returns undefined when an operator has this name
 * @throws GatewayError `store_unavailable`, `key_hashing_overloaded`
 */
export async function addOperator(
  parts: TokenParts,
  { name, role, expiresAt }: Pick<OperatorRecord, 'name' | 'role' | 'expiresAt'>,
  by: Authorship,
): Promise<IssuedToken | undefined> {
  const { token, outcome } = await mint(parts, expiresAt, (stored) => {
    const operator = { id: randomUUID(), name, role, ...stored, createdAt: by.at, usedAt: null };
    const event = operatorEvent('operators.add', name, by, { after: operatorFields(operator) });
    return parts.store.operators.addOperator(operator, parts.isRecorded ? null : event);
  });
  return outcome === 'name_taken' ? undefined : token;
}

/**
 * Gives an operator a new token. The old one and all of its sessions end.
 * @returns undefined when the operator was removed meanwhile
 * @throws as `addOperator`
 */
export async function rotateOperator(
  parts: TokenParts,
  operator: OperatorRecord,
  expiresAt: string | null,
  by: Authorship,
): Promise<IssuedToken | undefined> {
  const { token, outcome } = await mint(parts, expiresAt, (stored) => {
    const after = operatorFields({ ...operator, ...stored });
    const change = { before: operatorFields(operator), after };
    const event = operatorEvent('operators.rotate', operator.name, by, change);
    return parts.store.operators.replaceToken(operator.id, stored, parts.isRecorded ? null : event);
  });
  return outcome === 'unknown' ? undefined : token;
}

async function mint<T extends string>(
  { secret, hasher }: TokenParts,
  expiresAt: string | null,
  write: (stored: StoredToken) => Promise<T | 'prefix_taken'>,
): Promise<{ readonly token: IssuedToken; readonly outcome: T }> {
  for (let draw = 0; draw < MAX_DRAWS; draw += 1) {
    const key = Key.generate();
    const { prefix } = key;
    const stored = { prefix, argon2: await hasher.hash(key), hmac: secret.operatorDigest(key), expiresAt };
    const outcome = await write(stored);
    if (outcome !== 'prefix_taken')
      return { token: { token: `${TOKEN_PREFIX}${key.reveal()}`, prefix }, outcome };
  }
  throw new GatewayError('store_unavailable', 'The gateway cannot make a token at the moment.', {
    cause: new Error(`all ${MAX_DRAWS} generated prefixes are taken`),
  });
}

/** Verifies tokens. */
export class OperatorTokens {
  readonly #parts: TokenParts;
  readonly #now: () => number;
  readonly #ofAddress: FailureLimit;
  readonly #ofPrefix: FailureLimit;
  readonly #verified = new RecentMap<string, true>(MAX_VERIFIED);
  readonly #uses = new RecentMap<string, number>(MAX_VERIFIED);

  constructor(parts: TokenParts, now: () => number) {
    this.#parts = parts;
    this.#now = now;
    this.#ofAddress = new FailureLimit(() => ATTEMPTS_OF_ADDRESS, now, addressBlock);
    this.#ofPrefix = new FailureLimit(() => ATTEMPTS_OF_PREFIX, now, String);
  }

  /** @throws GatewayError `invalid_operator`, `too_many_sign_ins`, `store_unavailable`, `key_hashing_overloaded` */
  async verify(text: string, address: string): Promise<OperatorRecord> {
    const digest = hash('sha256', text, 'base64');
    const key = text.startsWith(TOKEN_PREFIX) ? Key.parse(text.slice(TOKEN_PREFIX.length)) : undefined;
    const isVerified = this.#verified.has(digest);
    if (!isVerified) this.#countAttempt(address, key?.prefix);
    if (key === undefined) throw new GatewayError('invalid_operator');
    const { store, secret, hasher } = this.#parts;
    const operator = await store.operators.findOperator({ prefix: key.prefix });
    if (operator === undefined || !isSameBytes(operator.hmac, secret.operatorDigest(key)))
      throw new GatewayError('invalid_operator');
    if (!isVerified && !(await hasher.verify(operator.argon2, key)))
      throw new GatewayError('invalid_operator');
    this.requireValid(operator);
    this.#verified.set(digest, true);
    await this.used(operator);
    return operator;
  }

  /** @throws GatewayError `invalid_operator` when the token of the operator has expired */
  requireValid({ expiresAt }: OperatorRecord): void {
    if (expiresAt === null || Date.parse(expiresAt) > this.#now()) return;
    throw new GatewayError('invalid_operator', `The token of the operator expired at ${expiresAt}.`);
  }

  /** Records a use, at most once a minute. */
  async used({ id }: OperatorRecord): Promise<void> {
    const now = this.#now();
    if (now - (this.#uses.get(id) ?? Number.NEGATIVE_INFINITY) < USE_MS) return;
    this.#uses.set(id, now);
    await this.#parts.store.operators.recordUse(id, new Date(now).toISOString());
  }

  /** Before the look-up, so that attempts at the same time count too. A verified token is not an attempt. */
  #countAttempt(address: string, prefix: string | undefined): void {
    const waitMs = Math.max(
      this.#ofAddress.waitFor(address),
      prefix === undefined ? 0 : this.#ofPrefix.waitFor(prefix),
    );
    if (waitMs > 0) throw new GatewayError('too_many_sign_ins', undefined, { retryAfterMs: waitMs });
    this.#ofAddress.record(address);
    if (prefix !== undefined) this.#ofPrefix.record(prefix);
  }
}
