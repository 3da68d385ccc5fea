// Client secrets without a network: what one keeps, for how long, and that nobody else can make or read one.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Principal } from '../../src/auth/key/principal.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { ClientSecrets, sessionAt } from '../../src/realtime/client-secret.ts';
import { isPrefix, type Prefix } from '../../src/store/key-record.ts';
import { maskKeys } from '../../src/telemetry/log/key-mask.ts';

const sealingKey = randomBytes(32);
const HOLDER = 'hld_1';
const bound = { model: 'm', isTranscription: false, session: { instructions: 'Be brief, Ünal.' } };

function prefix(): Prefix {
  const text = '0123abcd';
  if (!isPrefix(text)) throw new Error('no prefix');
  return text;
}

function secrets(now = 0, key = sealingKey, holderId = HOLDER) {
  const principal: Principal = {
    prefix: prefix(),
    lineage: prefix(),
    holderId,
    tier: 'Pro',
    standing: 'good',
    version: 1,
    teamId: null,
    holderTerms: {},
    terms: {},
    expiresAtMs: undefined,
  };
  const authenticator = { principalOf: async () => principal };
  return new ClientSecrets({ authenticator, sealingKey: key, clock: () => now });
}

function exchange(): Exchange {
  // Only its record of the log is used.
  const request: Partial<IncomingMessage> = { headers: {}, method: 'GET', url: '/' };
  return Reflect.construct(Exchange, [request, {} satisfies Partial<ServerResponse>, '']);
}

const make = (seconds = 600) => secrets().make({ prefix: prefix(), holderId: HOLDER }, bound, seconds);

describe('a client secret', () => {
  test('keeps its session, for any replica with the same secret', async () => {
    const { value, expiresAt } = make();
    expect(expiresAt).toBe(600);
    expect(value).toMatch(/^ek_[\w-]+$/);
    expect(Buffer.from(value.slice(3), 'base64url').toString('latin1')).not.toContain('brief');
    const found = await secrets(599_000).identify(exchange(), `Bearer ${value}`);
    expect(found?.bound).toEqual(bound);
    expect(found?.principal.holderId).toBe(HOLDER);
  });

  test('expires', async () => {
    const expired = secrets(600_000).identify(exchange(), `Bearer ${make().value}`);
    await expect(expired).rejects.toMatchObject({ code: 'api_key_expired' });
  });

  test('is not valid with another secret of the gateway, or for another holder of its key', async () => {
    for (const each of [secrets(0, randomBytes(32)), secrets(0, sealingKey, 'hld_2')])
      await expect(each.identify(exchange(), `Bearer ${make().value}`)).rejects.toMatchObject({
        code: 'invalid_api_key',
      });
  });

  test('cannot be changed anywhere', async () => {
    const { value } = make();
    const bytes = Buffer.from(value.slice(3), 'base64url');
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), async (at, bits) => {
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] ?? 0) ^ bits;
        const text = `Bearer ek_${changed.toString('base64url')}`;
        await expect(secrets().identify(exchange(), text)).rejects.toMatchObject({ code: 'invalid_api_key' });
      }),
      { numRuns: 50 },
    );
  });

  test('is anything else a key', async () => {
    for (const each of [undefined, '', 'Bearer sk-1', 'Bearer ek_short', 'Basic ek_'.padEnd(80, 'a')])
      expect(await secrets().identify(exchange(), each)).toBeUndefined();
  });

  test('fits into a header', () => {
    const session = { instructions: randomBytes(8_000).toString('hex') };
    const all = { ...bound, session };
    expect(() => secrets().make({ prefix: prefix(), holderId: HOLDER }, all, 10)).toThrow(
      expect.objectContaining({ code: 'invalid_value', param: 'session' }),
    );
  });

  test('is masked in the log', () => {
    expect(maskKeys(`model ${make().value} x`)).toBe('model ek_… x');
  });
});

test('a session names its model as the upstream does', () => {
  const audio = { input: { format: 'f', transcription: { model: 'a', language: 'de' } }, output: 1 };
  expect(sessionAt({ type: 'transcription', audio }, true, 'b')).toEqual({
    type: 'transcription',
    audio: { input: { format: 'f', transcription: { model: 'b', language: 'de' } }, output: 1 },
  });
  expect(sessionAt({ input_audio_transcription: { model: 'a', prompt: 'p' } }, true, 'b')).toEqual({
    input_audio_transcription: { model: 'b', prompt: 'p' },
  });
  expect(sessionAt({ type: 'realtime', model: 'a', voice: 'v' }, false, 'b')).toEqual({
    type: 'realtime',
    voice: 'v',
  });
});
