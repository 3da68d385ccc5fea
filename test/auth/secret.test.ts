import { createHmac } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  isSameBytes,
  KeySecret,
  openSecret,
  SecretError,
  trySecret,
} from '../../src/auth/hashing/hashing-secret.ts';
import { Key } from '../../src/auth/key/key.ts';
import { openStore } from '../../src/store/open.ts';
import type { PinName, Store } from '../../src/store/store.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';

let dir: TempDir;
let store: Store;
let file: string;

beforeEach(async () => {
  dir = await tempDir();
  store = await openStore(config());
  file = `${dir.file('keys.db')}.secret`;
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

const config = () => ({ kind: 'sqlite', path: dir.file('keys.db') }) as const;
const key = Key.generate();

describe('the secret', () => {
  test('gives HMAC-SHA-256 of the whole key under its UTF-8 bytes', () => {
    const secret = new KeySecret('geheimnis-ü');
    const expected = createHmac('sha256', Buffer.from('geheimnis-ü', 'utf8')).update(key.reveal()).digest();
    expect(secret.digest(key)).toEqual(expected);
    expect(secret.digest(key)).toHaveLength(32);
  });

  test('derives a different value for each use, the same in every version, because stores have them', () => {
    const secret = new KeySecret('x');
    const hmac = (text: string) => createHmac('sha256', 'x').update(text).digest();
    expect([
      secret.operatorDigest(key),
      secret.addressDigest('192.0.2.1'),
      secret.sealingKey(),
      secret.recordDigest('a record'),
      secret.check(),
    ]).toEqual(
      [
        `operator ${key.reveal()}`,
        'address 192.0.2.1',
        'client secrets',
        'record a record',
        'secret check',
      ].map(hmac),
    );
    expect(secret.csrfToken('session')).toBe(hmac('csrf session').toString('base64url'));
  });

  test('does not print itself', () => {
    const secret = new KeySecret('very-secret-value');
    for (const shown of [
      inspect({ secret }, { showHidden: true }),
      JSON.stringify({ secret }),
      String(secret),
    ]) {
      expect(shown).not.toContain('very-secret');
    }
    expect([inspect({ secret }), JSON.stringify(secret)]).toEqual(['{ secret: KeySecret }', '"KeySecret"']);
  });

  test('cannot be empty', () => {
    expect(() => new KeySecret('')).toThrow(SecretError);
  });
});

describe('without a configured secret', () => {
  test('is created beside the store with mode 0600 and kept', async () => {
    const first = await openSecret(undefined, config(), store);
    expect(readFileSync(file, 'utf8')).toMatch(/^[0-9a-f]{64}\n$/);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readdirSync(dir.path).filter((name) => name.includes('secret'))).toEqual(['keys.db.secret']);
    const second = await openSecret(undefined, config(), store);
    expect(second.digest(key)).toEqual(first.digest(key));
  });

  test.each([
    ['and has not used it yet', false],
    ['and has used it', true],
  ])(
    'of two processes that create it at once, the second takes the file of the first, %s',
    async (_, isUsed) => {
      const first = 'f'.repeat(64);
      // Between the look at the file and its making, another process makes it.
      const overtaken: Store = Object.create(store, {
        pinned: {
          value: async () => {
            writeFileSync(file, `${first}\n`);
            if (isUsed) await store.pin('secret_check', new KeySecret(first).check());
            return await store.pinned('secret_check');
          },
        },
        pin: { value: (name: PinName, check: Uint8Array) => store.pin(name, check) },
      });
      const secret = await openSecret(undefined, config(), overtaken);
      expect(secret.digest(key)).toEqual(new KeySecret(first).digest(key));
      expect(readFileSync(file, 'utf8')).toBe(`${first}\n`);
      expect(readdirSync(dir.path).filter((name) => name.includes('secret'))).toEqual(['keys.db.secret']);
    },
  );

  test('the content of the file can be moved into the configuration', async () => {
    const first = await openSecret(undefined, config(), store);
    const moved = await openSecret(readFileSync(file, 'utf8').trim(), config(), store);
    expect(moved.digest(key)).toEqual(first.digest(key));
  });

  test('a lost file is not recreated, because every key would be invalid', async () => {
    await openSecret(undefined, config(), store);
    renameSync(file, `${file}.moved`);
    await expect(openSecret(undefined, config(), store)).rejects.toThrow(
      /keys\.db\.secret is missing.*restore it/,
    );
    expect(readdirSync(dir.path)).not.toContain('keys.db.secret');
    renameSync(`${file}.moved`, file);
    await openSecret(undefined, config(), store);
  });

  test('a different file is rejected', async () => {
    await openSecret(undefined, config(), store);
    writeFileSync(file, `${'0'.repeat(64)}\n`);
    await expect(openSecret(undefined, config(), store)).rejects.toThrow(
      /differs from the one that the keys/,
    );
  });

  test('an empty or unreadable file is an error', async () => {
    writeFileSync(file, '\n');
    await expect(openSecret(undefined, config(), store)).rejects.toThrow(/is empty/);
    rmSync(file);
    mkdirSync(file);
    await expect(openSecret(undefined, config(), store)).rejects.toThrow(/^cannot read .*\.secret: EISDIR/);
  });

  test('a file that cannot be created is an error that names the alternative', async () => {
    const elsewhere = { kind: 'sqlite', path: dir.file('no/such/folder/keys.db') } as const;
    await expect(openSecret(undefined, elsewhere, store)).rejects.toThrow(
      /^cannot create .*keys\.db\.secret: ENOENT.*; set `secret` instead$/,
    );
  });

  test('is required for a store that is not a file', async () => {
    const postgres = { kind: 'postgres', url: 'postgres://db/x' } as const;
    await expect(openSecret(undefined, postgres, store)).rejects.toThrow(/`secret` is not set/);
  });
});

describe('a configured secret', () => {
  test('creates no file', async () => {
    await openSecret('configured', config(), store);
    expect(readdirSync(dir.path)).not.toContain('keys.db.secret');
  });

  test('must not change after the first start', async () => {
    await openSecret('the first one', config(), store);
    const refused = openSecret('the second one', config(), store);
    await expect(refused).rejects.toThrow(SecretError);
    await expect(refused).rejects.toThrow(/^`secret` differs from the one.*; set the previous secret /);
    await expect(refused).rejects.not.toThrow(/second one/);
    await openSecret('the first one', config(), store);
  });
});

test('a trial says what a start would, and writes nothing', async () => {
  const check = (secret: string) => new KeySecret(secret).check();
  await trySecret('x', config(), check('x'));
  await expect(trySecret('x', config(), check('y'))).rejects.toThrow(/`secret` differs/);
  await trySecret('x', config(), undefined);
  const before = readdirSync(dir.path);
  await trySecret(undefined, config(), undefined);
  await trySecret(undefined, { kind: 'sqlite', path: dir.file('none/keys.db') }, undefined);
  await expect(trySecret(undefined, config(), check('x'))).rejects.toThrow(/is missing/);
  expect(readdirSync(dir.path)).toEqual(before);
});

test('bytes of different lengths, contents and classes are compared', () => {
  const bytes = Buffer.from('0123456789');
  expect(isSameBytes(bytes, new Uint8Array(bytes))).toBe(true);
  expect(isSameBytes(bytes, Buffer.from('0123456780'))).toBe(false);
  expect(isSameBytes(bytes, bytes.subarray(0, 9))).toBe(false);
  expect(isSameBytes(bytes.subarray(0, 9), bytes)).toBe(false);
});
