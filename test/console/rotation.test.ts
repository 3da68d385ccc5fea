// Rotation of a key by support: by the command line, by the API and by the page of the key, with the rules of the holder's rotation.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { listModels } from '../e2e/holder.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

const BOUND = { auth: { max_rotation_overlap: '24h' } };
let setting: ConsoleSetting;
let support: string;

beforeAll(async () => {
  setting = await startConsole({ config: { ...BOUND, tiers: { Free: {}, Lite: {}, Pro: {} } } });
  support = await setting.operator('sue', 'support');
});
afterAll(() => setting[Symbol.asyncDispose]());

const tollgate = (...argv: string[]) => setting.commands.tollgate(...argv);
const issue = async (...argv: string[]) =>
  (await setting.commands.done('keys', 'issue', '--tier', 'Pro', ...argv)).trim();
const prefixOf = (key: string) => key.slice(0, 8);
const rotate = (key: string, body: object, headers = {}) =>
  setting.call('POST', `/api/v1/keys/${prefixOf(key)}/rotate`, { token: support, body, headers });
const member = (value: unknown, name: string): unknown => Reflect.get(Object(value), name);

/** The status of a request with each key, one after the other: a new key needs a hash. */
async function statuses(...keys: readonly string[]): Promise<readonly number[]> {
  const found: number[] = [];
  for (const key of keys) found.push((await listModels(setting.gateway.url, key)).status);
  return found;
}

async function eventsOf(prefix: string): Promise<unknown> {
  return JSON.parse((await tollgate('keys', 'events', prefix, '--json')).out);
}

describe('by the API', () => {
  test('with an overlap both keys work, and both histories name operator and reason', async () => {
    const old = await issue('--name', 'ci', '--limit', 'requests_per_minute=7');
    const { status, json } = await rotate(old, { overlap: '2h', reason: 'asked for by mail' });
    const key = String(member(json, 'key'));
    expect([status, key]).toEqual([200, expect.stringMatching(/^[0-9a-f]{32}$/)]);
    const until = Date.parse(String(member(json, 'old_key_expires_at')));
    expect(Math.abs(until - Date.now() - 2 * 3_600_000)).toBeLessThan(60_000);
    expect(json).toMatchObject({
      record: {
        prefix: prefixOf(key),
        replaces: prefixOf(old),
        name: 'ci',
        limits: { requests_per_minute: 7 },
      },
    });
    expect(await statuses(old, key)).toEqual([200, 200]);
    const by = { actor: 'operator:sue' };
    expect(await eventsOf(prefixOf(old))).toMatchObject([
      { kind: 'issued' },
      {
        kind: 'changed',
        ...by,
        reason: expect.stringMatching(/^rotated, valid until \S+: asked for by mail$/),
      },
    ]);
    expect(await eventsOf(prefixOf(key))).toMatchObject([
      { kind: 'issued', ...by, reason: 'rotation: asked for by mail' },
    ]);
  });

  test('without one the old key ends, and a suspended holder stays suspended', async () => {
    const old = await issue();
    await tollgate('keys', 'suspend', prefixOf(old));
    const { json } = await rotate(old, {});
    expect(member(json, 'old_key_expires_at')).toBeNull();
    expect(await statuses(old, String(member(json, 'key')))).toEqual([401, 403]);
    expect(await eventsOf(prefixOf(old))).toMatchObject([
      {},
      {},
      { kind: 'rotated', actor: 'operator:sue', reason: null },
    ]);
  });

  test('the key is in no event, and a repeated request does not show it again', async () => {
    const old = await issue();
    const again = { 'idempotency-key': `again-${prefixOf(old)}` };
    const [first, second] = [await rotate(old, {}, again), await rotate(old, {}, again)];
    expect(second.json).toEqual({ ...Object(first.json), key: null });
    const events = await setting.call('GET', `/api/v1/events?target=${prefixOf(old)}`, { token: support });
    expect(events.text).toContain('keys.rotate');
    expect(events.text).not.toContain(String(member(first.json, 'key')));
  });

  test.each([
    [{ overlap: '25h' }, '`overlap` must be at most 1d on this gateway'],
    [{ overlap: 'soon' }, '`overlap` must be a duration'],
    [{ overlap: '-1h' }, '`overlap` must be a duration'],
    [{ overlap: 60 }, 'overlap'],
    [{ reason: 'a\u0000b' }, 'control character'],
  ])('%j is refused, and the key stays as it is', async (body, why) => {
    const old = await issue();
    const { status, text } = await rotate(old, body);
    expect([status, text]).toEqual([400, expect.stringContaining(why)]);
    expect(await statuses(old)).toEqual([200]);
  });

  test('a key that has ended, has expired or was rotated already is refused', async () => {
    const [ended, rotated, expired] = [await issue(), await issue(), await issue()];
    await tollgate('keys', 'revoke', prefixOf(ended));
    await rotate(rotated, { overlap: '1h' });
    const file = setting.gateway.directory.file('tollgate.db');
    const store = await openStore({ kind: 'sqlite', path: file });
    await store.changeKey(
      prefixOf(expired) as never,
      { expiresAt: new Date(Date.now() - 1000).toISOString() },
      { actor: null, reason: null, at: new Date().toISOString() },
    );
    await store.close();
    const answers = [];
    for (const key of [ended, rotated, expired]) answers.push(await rotate(key, { overlap: '1h' }));
    expect(answers.map(({ status, text }) => [status, text])).toEqual([
      [409, expect.stringContaining('it is revoked')],
      [409, expect.stringMatching(/key_already_rotated.*|its successor is/)],
      [409, expect.stringContaining('The key expired at')],
    ]);
  });
});

describe('by the command line', () => {
  test('only the key goes to stdout, and stderr says until when the old one is valid', async () => {
    const old = await issue();
    const { code, out, err } = await tollgate('keys', 'rotate', prefixOf(old), '--overlap', '1h');
    expect([code, out]).toEqual([0, expect.stringMatching(/^[0-9a-f]{32}\n$/)]);
    expect(err).toMatch(
      /^Rotated \w{8} to \w{8} \(Pro\); the old key is valid until \S+Z\. .*only this once\.\n$/,
    );
    expect(err).not.toContain(out.trim());
    expect(await statuses(old, out.trim())).toEqual([200, 200]);
    const again = await tollgate('keys', 'rotate', prefixOf(old));
    expect([again.code, again.out]).toEqual([1, '']);
    expect(again.err).toContain(`its successor is ${prefixOf(out)}`);
  });

  test('an overlap beyond the bound is wrong usage, and an unknown key a failure', async () => {
    const old = await issue();
    const late = await tollgate('keys', 'rotate', prefixOf(old), '--overlap', '2d');
    expect([late.code, late.out, late.err]).toEqual([
      2,
      '',
      expect.stringContaining('--overlap must be at most 1d'),
    ]);
    expect(await tollgate('keys', 'rotate', '00000000')).toMatchObject({ code: 1, out: '' });
  });
});

test('the page of a key has the form, and shows the new key once and the old one without the form', async () => {
  const { cookie, csrf } = await setting.signIn(support);
  const old = await issue();
  const path = `/console/keys/${prefixOf(old)}`;
  expect((await setting.call('GET', path, { cookie })).text).toContain('at most 1d');
  const body = `csrf=${csrf}&param.prefix=${prefixOf(old)}&text.overlap=1h&text.reason=lost`;
  const done = await setting.call('POST', '/console/do/keys.rotate', { cookie, body });
  expect(done.status).toBe(200);
  const key = /<pre class="key"[^>]*>([0-9a-f]{32})</.exec(done.text)?.[1] ?? '';
  expect(done.text).toMatch(/The old key is valid until/);
  expect(await statuses(old, key)).toEqual([200, 200]);
  expect((await setting.call('GET', path, { cookie })).text).not.toContain('do/keys.rotate');
});

test('without a bound of the operator there is no overlap', async () => {
  await using plain = await startConsole();
  const token = await plain.operator('sue', 'support');
  const old = (await plain.commands.done('keys', 'issue', '--tier', 'Pro')).trim();
  const path = `/api/v1/keys/${prefixOf(old)}/rotate`;
  const refused = await plain.call('POST', path, { token, body: { overlap: '1s' } });
  expect([refused.status, refused.text]).toEqual([400, expect.stringContaining('not offered')]);
  const { cookie } = await plain.signIn(token);
  const page = await plain.call('GET', `/console/keys/${prefixOf(old)}`, { cookie });
  expect(page.text).toContain('This key ends at once');
  expect(page.text).not.toContain('text.overlap');
  expect((await plain.call('POST', path, { token, body: {} })).status).toBe(200);
});
