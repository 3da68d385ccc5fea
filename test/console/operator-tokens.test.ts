// Tokens of operators: which are accepted, until when, and that neither the row of a key nor a copied hash makes one.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Hasher } from '../../src/auth/hashing/hasher.ts';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import { KeyIssuer } from '../../src/auth/key-issuer.ts';
import { addOperator, OperatorTokens, operatorEvent } from '../../src/console/operator-tokens.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { quickArgon2 } from '../auth/setting.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';

const START = Date.parse('2030-01-01T00:00:00.000Z');
const BY = { actor: 'cli:ann', reason: null, at: new Date(START).toISOString() };

let dir: TempDir;
let store: Store;
let now = START;
const secret = new KeySecret('a secret of this test');
// Argon2 itself may reject a verification on a busy machine.
const hasher = new Hasher(createMetrics(), quickArgon2({ hashes: 0, verifies: 0 }));

beforeAll(async () => {
  dir = await tempDir();
  store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
});
afterAll(async () => {
  await store.close();
  await dir.remove();
});

const tokensOf = (own = secret) => new OperatorTokens({ store, secret: own, hasher }, () => now);
const codeOf = (text: string, tokens = tokensOf()) =>
  tokens.verify(text, '192.0.2.1').then(
    ({ name }) => name,
    (error: unknown) => Reflect.get(Object(error), 'code'),
  );

async function newToken(name: string, expiresAt: string | null = null): Promise<string> {
  const issued = await addOperator({ store, secret, hasher }, { name, role: 'viewer', expiresAt }, BY);
  return issued?.token ?? '';
}

test('only the exact token is accepted', async () => {
  const token = await newToken('exact');
  expect(await codeOf(token)).toBe('exact');
  const digits = token.slice(4);
  const wrong = [
    '',
    'tgo_',
    digits,
    token.toUpperCase(),
    ` ${token}`,
    `${token}0`,
    token.slice(0, -1),
    `tgo_${digits.slice(0, 8)}${'0'.repeat(24)}`,
    `xyz_${digits}`,
  ];
  for (const text of wrong) expect([text, await codeOf(text)]).toEqual([text, 'invalid_operator']);
});

test('a token is accepted until it expires, also where it was verified before', async () => {
  now = START;
  const token = await newToken('expiring', '2030-01-01T01:00:00.000Z');
  const tokens = tokensOf();
  expect(await codeOf(token, tokens)).toBe('expiring');
  now = START + 3_600_000 - 1;
  expect(await codeOf(token, tokens)).toBe('expiring');
  now = START + 3_600_000;
  expect(await codeOf(token, tokens)).toBe('invalid_operator');
  now = START;
});

test('a token that was removed is not accepted where it was verified before', async () => {
  const token = await newToken('removed');
  const tokens = tokensOf();
  expect(await codeOf(token, tokens)).toBe('removed');
  const operator = await store.operators.findOperator({ name: 'removed' });
  await store.operators.removeOperator(
    operator?.id ?? '',
    operatorEvent('operators.remove', 'removed', BY, {}),
  );
  expect(await codeOf(token, tokens)).toBe('invalid_operator');
});

test('the row of a key among the operators is no token, and another secret accepts none', async () => {
  const { key } = await new KeyIssuer({ store, secret, hasher }).issue({ tier: 'Pro' });
  const record = await store.findKey(key.prefix);
  if (record === undefined) throw new Error('no key');
  const { prefix, argon2, hmac } = record;
  const copied = {
    id: 'copied',
    name: 'copied',
    role: 'admin' as const,
    prefix,
    argon2,
    hmac,
    createdAt: BY.at,
    expiresAt: null,
    usedAt: null,
  };
  await store.operators.addOperator(copied, operatorEvent('operators.add', 'copied', BY, {}));
  expect(await codeOf(`tgo_${key.reveal()}`)).toBe('invalid_operator');
  expect(await codeOf(await newToken('elsewhere'), tokensOf(new KeySecret('another one')))).toBe(
    'invalid_operator',
  );
});

test('the last use is written at most once a minute', async () => {
  const token = await newToken('used');
  const tokens = tokensOf();
  const usedAt = async () => (await store.operators.findOperator({ name: 'used' }))?.usedAt;
  for (const [seconds, written] of [
    [0, '2030-01-01T00:00:00.000Z'],
    [59, '2030-01-01T00:00:00.000Z'],
    [61, '2030-01-01T00:01:01.000Z'],
  ] as const) {
    now = START + seconds * 1000;
    expect(await codeOf(token, tokens)).toBe('used');
    expect(await usedAt()).toBe(written);
  }
});
