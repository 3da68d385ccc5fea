// What clients see of keys that expire and of rotations with an overlap, and that the store learns when a key was used.
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  lastChunk,
  SSE_HEADERS,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';
import { codeOf, field, listModels, textField } from './holder.ts';

const DAY = 86_400_000;

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ config: { auth: { max_rotation_overlap: '24h' } } });
});

afterAll(() => gateway[Symbol.asyncDispose]());

async function issue(expiresInMs: number): Promise<string> {
  const expiresAt = new Date(Date.now() + expiresInMs).toISOString();
  const { key } = await gateway.app.issuer.issue({ tier: 'Lite', key: { expiresAt } });
  return key.reveal();
}

function rotate(key: string, body: string, type = 'application/json'): Promise<Response> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': type };
  return fetch(`${gateway.url}/admin/keys/rotate`, { method: 'POST', headers, body });
}

describe('a key that expires', () => {
  test('is announced in every response of its last week, and not before', async () => {
    const soon = await listModels(gateway.url, await issue(6 * DAY));
    expect(Date.parse(soon.header('x-tollgate-key-expires') ?? '')).toBeGreaterThan(Date.now());
    const later = await listModels(gateway.url, await issue(8 * DAY));
    expect([later.status, later.header('x-tollgate-key-expires')]).toEqual([200, undefined]);
  });

  test('is answered with its own code and time when it has expired', async () => {
    const response = await listModels(gateway.url, await issue(-1000));
    expect([response.status, codeOf(response)]).toEqual([401, 'api_key_expired']);
    expect(response.text()).toMatch(/expired on \d{4}-\d\d-\d\dT/);
    expect(response.header('www-authenticate')).toContain('invalid_token');
  });
});

describe('at its borders, whatever the time zone,', () => {
  const EXPIRY = Date.parse('2031-03-31T00:00:00.000Z');
  const zone = process.env['TZ'];

  afterEach(() => {
    vi.useRealTimers();
    if (zone === undefined) delete process.env['TZ'];
    else process.env['TZ'] = zone;
  });

  test.each(['UTC', 'Pacific/Kiritimati', 'Pacific/Pago_Pago', 'Europe/Berlin'])('%s', async (timeZone) => {
    process.env['TZ'] = timeZone;
    vi.useFakeTimers({ toFake: ['Date'], now: EXPIRY - 7 * DAY });
    const expiresAt = new Date(EXPIRY).toISOString();
    const { key, prefix } = await gateway.app.issuer.issue({ tier: 'Lite', key: { expiresAt } });
    const answer = async () => {
      const response = await listModels(gateway.url, key.reveal());
      return [response.status, response.header('x-tollgate-key-expires')];
    };
    expect(await answer()).toEqual([200, undefined]);
    for (const left of [7 * DAY - 1, DAY, 1]) {
      vi.setSystemTime(EXPIRY - left);
      expect(await answer()).toEqual([200, expiresAt]);
    }
    vi.setSystemTime(EXPIRY);
    expect(await answer()).toEqual([401, undefined]);
    // Support moves it while it is known here: first by a day, then beyond the week.
    for (const [days, header] of [
      [1, new Date(EXPIRY + DAY).toISOString()],
      [30, undefined],
    ] as const) {
      const later = new Date(EXPIRY + days * DAY).toISOString().slice(0, 10);
      const words = ['keys', 'set', prefix, '--expires', later, '--config', gateway.configFile];
      const { code } = await runCommand(words, { TEST_DIR: gateway.directory.path });
      expect(code).toBe(0);
      await until(async () => String(await answer()) === String([200, header]), 'the moved expiry');
    }
  });
});

test('a stream during which its key expires ends as others do', async () => {
  const upstream = await HostileUpstream.start();
  await using own = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const gate = Promise.withResolvers<void>();
  upstream.always([
    head(200, SSE_HEADERS),
    (c) => c.chunk(frame(contentChunk('Hello'))),
    async (c) => {
      await gate.promise;
      await c.chunk(`${frame(finishChunk()) + frame(usageChunk())}data: [DONE]\n\n`);
    },
    lastChunk(),
  ]);
  const expiry = Date.now() + 3_600_000;
  const { key } = await own.app.issuer.issue({
    tier: 'Lite',
    key: { expiresAt: new Date(expiry).toISOString() },
  });
  const chat = { model: 'test-model', stream: true };
  using client = await own.open(chatRequest(chat), { key: key.reveal() });
  await client.readUntil('data: ');
  vi.useFakeTimers({ toFake: ['Date'], now: expiry });
  try {
    gate.resolve();
    const response = await client.response();
    expect([response.status, response.complete, response.text().includes('[DONE]')]).toEqual([
      200,
      true,
      true,
    ]);
    expect((await own.chat(chatRequest(chat), { key: key.reveal() })).status).toBe(401);
  } finally {
    vi.useRealTimers();
    await upstream.close();
  }
});

describe('a rotation with an overlap', () => {
  test('says when the old key expires, and both work until then', async () => {
    const old = await gateway.issueKey('Lite');
    const response = await rotate(old, '{"overlap":"2h"}');
    const body: unknown = await response.json();
    expect(response.status).toBe(200);
    const until = Date.parse(textField(body, 'old_key_expires_at'));
    expect(Math.abs(until - Date.now() - 2 * 3_600_000)).toBeLessThan(60_000);
    for (const key of [old, textField(body, 'key')])
      expect((await listModels(gateway.url, key)).status).toBe(200);
    const again = await rotate(old, '{"overlap":"2h"}');
    expect([again.status, field(await again.json(), 'error', 'code')]).toEqual([409, 'key_already_rotated']);
  });

  test.each([
    ['{"overlap":"25h"}', 'at most 1d'],
    ['{"overlap":"soon"}', 'must be a duration'],
    ['{"overlap":', 'not valid JSON'],
    ['{"overlap":24}', 'must be a duration'],
    ['{"overlap":["1h"]}', 'must be a duration'],
    ['{"overlap":true}', 'must be a duration'],
    ['{"Overlap":"1h"}', "only parameter of a rotation is 'overlap'"],
    ['{"overlap":"1h","grace":"2h"}', "only parameter of a rotation is 'overlap'"],
  ])('%s is rejected, and the old key stays as it is', async (body, why) => {
    const old = await gateway.issueKey('Lite');
    const response = await rotate(old, body);
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(why);
    const again = await rotate(old, '{}');
    expect(await again.json()).not.toHaveProperty('old_key_expires_at');
    expect((await listModels(gateway.url, old)).status).toBe(401);
  });

  test('is taken from the body alone: in the query it is rejected', async () => {
    const old = await gateway.issueKey('Lite');
    const headers = { authorization: `Bearer ${old}` };
    const url = `${gateway.url}/admin/keys/rotate?overlap=2h`;
    const response = await fetch(url, { method: 'POST', headers });
    expect(response.status).toBe(400);
    expect((await listModels(gateway.url, old)).status).toBe(200);
  });

  test('is not offered where the operator has set no bound', async () => {
    await using plain = await startGateway();
    const old = await plain.issueKey('Lite');
    const headers = { authorization: `Bearer ${old}`, 'content-type': 'application/json' };
    const body = '{"overlap":"1s"}';
    const response = await fetch(`${plain.url}/admin/keys/rotate`, { method: 'POST', headers, body });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('not offered by this gateway');
    expect((await listModels(plain.url, old)).status).toBe(200);
  });
});

test('the day of the last use is in the store after the gateway has stopped', async () => {
  const own = await startGateway();
  const key = await own.issueKey('Lite');
  const unused = await own.issueKey('Lite');
  expect((await listModels(own.url, key)).status).toBe(200);
  await own.app.close();
  const store = await openStore({ kind: 'sqlite', path: own.directory.file('tollgate.db') });
  const listed = (await store.listKeys({ limit: 10 })).items;
  const lastUse = (of: string) => listed.find((each) => of.startsWith(each.prefix))?.lastUsed;
  expect(lastUse(key)).toBe(new Date().toISOString().slice(0, 10));
  expect(lastUse(unused)).toBeNull();
  await store.close();
  await own[Symbol.asyncDispose]();
});

describe('what a holder may know of its key', () => {
  const current = (key: string) =>
    fetch(`${gateway.url}/admin/keys/current`, { headers: { authorization: `Bearer ${key}` } });

  test('is its name and its times, of its own key alone', async () => {
    const expiresAt = new Date(Date.now() + 90 * DAY).toISOString();
    const key = await issue(90 * DAY);
    const other = await gateway.issueKey('Pro');
    const response = await current(key);
    expect(response.headers.get('cache-control')).toBe('no-store');
    const body: unknown = await response.json();
    expect(body).toEqual({
      prefix: key.slice(0, 8),
      name: null,
      created_at: expect.stringMatching(/^\d{4}-/),
      expires_at: expect.stringMatching(new RegExp(`^${expiresAt.slice(0, 10)}`)),
      last_used: null,
    });
    const none: unknown = await (await current(other)).json();
    expect(none).toMatchObject({ prefix: other.slice(0, 8), expires_at: null });
    expect(JSON.stringify([body, none])).not.toContain(key);
  });

  test('is not told without a valid key', async () => {
    for (const key of ['', '0'.repeat(32), await issue(-1000)]) expect((await current(key)).status).toBe(401);
  });
});
