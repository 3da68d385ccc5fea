// The secret under which keys are hashed for comparison: where it comes from, what it computes, and the check that it is
// the one this store's keys were made with. It is never in the store.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { inspect } from 'node:util';
import type { StaticConfig } from '../../config/schema/config-schema.ts';
import type { Store } from '../../store/store.ts';
import type { Key } from '../key/key.ts';

/** The secret cannot be had, or is not the right one. The message is for the operator and does not hold it. */
export class SecretError extends Error {
  override readonly name = 'SecretError';
}

export class KeySecret {
  readonly #secret: string;

  /** @param secret its UTF-8 bytes are the HMAC key */
  constructor(secret: string) {
    if (secret === '') throw new SecretError('the secret is empty');
    this.#secret = secret;
  }

  /** HMAC-SHA-256 of the whole key: what a presented key is compared with before Argon2 runs. */
  digest(key: Key): Buffer {
    return this.#hmac(key.reveal());
  }

  /** Names an address where free keys are counted. @param block from address-block.ts */
  addressDigest(block: string): Buffer {
    return this.#hmac(`address ${block}`);
  }

  /** Marks a key's record in Redis as written by a replica. */
  recordDigest(text: string): Buffer {
    return this.#hmac(`record ${text}`);
  }

  /** A value that tells one secret from another and nothing about either. */
  check(): Buffer {
    return this.#hmac('secret check');
  }

  toJSON(): string {
    return 'KeySecret';
  }

  [inspect.custom](): string {
    return 'KeySecret';
  }

  // No key has the form of the other texts, so the uses cannot meet.
  #hmac(text: string): Buffer {
    return createHmac('sha256', this.#secret).update(text).digest();
  }
}

/**
 * The configured secret, or the one beside the SQLite file (`PATH.secret`, mode 0600), which the first process makes.
 * The store remembers a check value: under another secret every key would look wrong, and wrong keys are answered 401.
 *
 * @throws SecretError when there is none, or it is another than the keys were made with
 * @throws GatewayError `store_unavailable`
 */
export async function openSecret(
  configured: string | undefined,
  config: StaticConfig['store'],
  store: Store,
): Promise<KeySecret> {
  if (configured !== undefined) {
    const secret = new KeySecret(configured);
    if (!(await isPinned(secret, store))) {
      throw new SecretError(
        '`secret` is not the one that the keys in this store were made with, and none of them would be accepted; ' +
          'set the former one (it may be in the file PATH.secret beside a SQLite store)',
      );
    }
    return secret;
  }
  if (config.kind !== 'sqlite')
    throw new SecretError('`secret` must be set when the store is not a SQLite file');
  const file = `${resolve(config.path)}.secret`;
  let text = readSecret(file);
  if (text === undefined) {
    if ((await store.secretCheck()) !== undefined) {
      throw new SecretError(
        `${file} is missing, and the keys in this store were made with what it held (or with a \`secret\` that is no ` +
          'longer set); restore it: no key can be checked without it',
      );
    }
    text = createSecret(file);
  }
  const secret = new KeySecret(text);
  if (!(await isPinned(secret, store))) {
    throw new SecretError(
      `${file} is not the secret that the keys in this store were made with; restore the former one`,
    );
  }
  return secret;
}

async function isPinned(secret: KeySecret, store: Store): Promise<boolean> {
  const check = secret.check();
  const pinned = await store.pinSecret(check);
  return pinned.byteLength === check.byteLength && timingSafeEqual(pinned, check);
}

function readSecret(file: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new SecretError(`cannot read ${file}: ${describe(error)}`, { cause: error });
  }
  if (text === '') throw new SecretError(`${file} is empty`);
  return text;
}

/**
 * Writes a new secret in full and durably under a name of its own, then links it to its place: of two processes that do
 * this at once one link succeeds, and no process ever reads half a secret.
 */
function createSecret(file: string): string {
  const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    writeDurably(draft, `${randomBytes(32).toString('hex')}\n`);
    try {
      linkSync(draft, file);
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    } finally {
      rmSync(draft, { force: true });
    }
    syncFolder(dirname(file));
  } catch (error) {
    throw new SecretError(`cannot create ${file}: ${describe(error)}; set \`secret\` instead`, {
      cause: error,
    });
  }
  const text = readSecret(file);
  if (text === undefined) throw new SecretError(`${file} vanished`);
  return text;
}

function writeDurably(file: string, text: string): void {
  const descriptor = openSync(file, 'wx', 0o600);
  try {
    writeSync(descriptor, text);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** A new name in a folder survives a power failure only when the folder itself was written. */
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
