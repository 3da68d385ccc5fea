// The secret for the HMAC of keys: its source, its uses, and the check that the keys in the store were made with it. It is
// never stored in the database.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, resolve } from 'node:path';
import { inspect } from 'node:util';
import type { StaticConfig } from '../../config/schema/config-schema.ts';
import type { PinName, Store } from '../../store/store.ts';
import type { Key } from '../key/key.ts';

/** The secret is missing or wrong. The message is for the operator and does not contain it. */
export class SecretError extends Error {
  override readonly name = 'SecretError';
}

export class KeySecret {
  readonly #secret: string;

  /** @param secret its UTF-8 bytes are the HMAC key */
  constructor(secret: string) {
    if (secret === '') throw new SecretError('`secret` is empty; set it to a long random text');
    this.#secret = secret;
  }

  /** HMAC-SHA-256 of the whole key, which is compared before Argon2 runs. */
  digest(key: Key): Buffer {
    return this.#hmac(key.reveal());
  }

  /** HMAC-SHA-256 of the token of an operator: not that of a key with the same digits. */
  operatorDigest(token: Key): Buffer {
    return this.#hmac(`operator ${token.reveal()}`);
  }

  /** The CSRF token of a session, which needs no place in the store. */
  csrfToken(session: string): string {
    return this.#hmac(`csrf ${session}`).toString('base64url');
  }

  /** Pseudonym of an address, for the count of Free keys. @param block from `addressBlock` */
  addressDigest(block: string): Buffer {
    return this.#hmac(`address ${block}`);
  }

  /** The key by which client secrets are encrypted. */
  sealingKey(): Buffer {
    return this.#hmac('client secrets');
  }

  /** Signs a key record in Redis, to show that a replica wrote it. */
  recordDigest(text: string): Buffer {
    return this.#hmac(`record ${text}`);
  }

  /** A check value that identifies the secret without revealing it. */
  check(): Buffer {
    return this.#hmac('secret check');
  }

  toJSON(): string {
    return 'KeySecret';
  }

  [inspect.custom](): string {
    return 'KeySecret';
  }

  // No key has the form of the other texts, so the uses cannot collide.
  #hmac(text: string): Buffer {
    return createHmac('sha256', this.#secret).update(text).digest();
  }
}

/** Compares digests or secrets in constant time. Those of different lengths are not the same. */
export function isSameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.byteLength === other.byteLength && timingSafeEqual(one, other);
}

/**
 * The configured secret, or the one beside the SQLite file (`PATH.secret`, mode 0600), which the first process creates.
 * The store has a check value, because under another secret every valid key would get a 401.
 *
 * @param create creates the file and returns its secret
 * @throws SecretError when it is missing or differs from the one that the keys were made with
 * @throws GatewayError `store_unavailable`
 */
export async function openSecret(
  configured: string | undefined,
  config: StaticConfig['store'],
  store: Pick<Store, 'pinned' | 'pin'>,
  create: (file: string) => string = createSecret,
): Promise<KeySecret> {
  if (configured !== undefined) {
    return await pinned(
      configured,
      store,
      '`secret` differs from the one that the keys in this store were made with, so no key would be accepted; ' +
        'set the previous secret (for a SQLite store it may be in the file PATH.secret beside it)',
    );
  }
  if (!('path' in config))
    throw new SecretError('`secret` is not set; it is required when the store is not a SQLite file');
  const file = `${resolve(config.path)}.secret`;
  let text = readSecret(file);
  if (text === undefined && (await store.pinned('secret_check')) !== undefined) {
    // Another process may have created both since then, first the file.
    text = readSecret(file);
    if (text === undefined) {
      throw new SecretError(
        `${file} is missing, and the keys in this store need the secret in it (or a \`secret\` that is no longer ` +
          'set); restore it: no key can be checked without it',
      );
    }
  }
  text ??= create(file);
  return await pinned(
    text,
    store,
    `the secret in ${file} differs from the one that the keys in this store were made with; restore the previous file`,
  );
}

/**
 * Checks that `openSecret` would succeed, and writes nothing.
 * @param stored the check value in the store
 * @throws SecretError as `openSecret`
 */
export async function trySecret(
  configured: string | undefined,
  config: StaticConfig['store'],
  stored: Uint8Array | undefined,
): Promise<void> {
  const store = {
    pinned: async () => stored,
    pin: async (_name: PinName, check: Uint8Array) => stored ?? check,
  };
  await openSecret(configured, config, store, (file) => {
    try {
      // A folder that is missing is created with the store.
      if (existsSync(dirname(file))) rmdirSync(mkdtempSync(`${file}.`));
    } catch (error) {
      throw notCreated(file, error);
    }
    return 'a new secret';
  });
}

async function pinned(text: string, store: Pick<Store, 'pin'>, otherwise: string): Promise<KeySecret> {
  const secret = new KeySecret(text);
  const check = secret.check();
  const stored = await store.pin('secret_check', check);
  if (!isSameBytes(stored, check)) throw new SecretError(otherwise);
  return secret;
}

function readSecret(file: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new SecretError(`cannot read ${file}: ${describe(error)}`, { cause: error });
  }
  if (text === '') throw new SecretError(`${file} is empty; restore the secret from a backup`);
  return text;
}

/**
 * Writes a new secret to a temporary file and links that atomically: of two concurrent processes one link succeeds, and no
 * process reads a partial secret.
 */
function createSecret(file: string): string {
  const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    const text = `${randomBytes(32).toString('hex')}\n`;
    writeFileSync(draft, text, { flag: 'wx', mode: 0o600, flush: true });
    try {
      linkSync(draft, file);
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    } finally {
      rmSync(draft, { force: true });
    }
    syncFolder(dirname(file));
  } catch (error) {
    throw notCreated(file, error);
  }
  const text = readSecret(file);
  if (text === undefined)
    throw new SecretError(`${file} was removed while the gateway started; start it again`);
  return text;
}

function notCreated(file: string, cause: unknown): SecretError {
  return new SecretError(`cannot create ${file}: ${describe(cause)}; set \`secret\` instead`, { cause });
}

/** fsync of the folder: without it a power failure can lose a new name. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
