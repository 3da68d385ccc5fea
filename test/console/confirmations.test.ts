// The page after a change names the replicas as they confirm it, without scripts, and those that do not.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { RedisClient } from '../../src/redis/redis-client.ts';
import { Replicas } from '../../src/redis/replicas.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import type { Browser } from '../helpers/browser.ts';
import { type RedisServer, startRedis } from '../helpers/redis.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { Visit } from '../pages/visit.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

const logger = createLogger(undefined, 'silent');
const OWN = /<li>\S+ has confirmed it after \d+ ms<\/li>/;

let server: RedisServer;
let setting: ConsoleSetting;
let token: string;
let browser: Browser;
/** Of one test. */
let stack = new AsyncDisposableStack();

beforeAll(async () => {
  server = await startRedis();
  setting = await startConsole({ config: { redis: server.url } });
  token = await setting.operator('ann', 'admin');
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);
afterEach(async () => {
  await stack.disposeAsync();
  stack = new AsyncDisposableStack();
});
afterAll(async () => {
  await browser?.close();
  await setting?.[Symbol.asyncDispose]();
  await server?.stop();
});

/** A replica that confirms a revocation when it may. */
async function slowReplica() {
  const { url } = server;
  const redis = new RedisClient({ url, logger, commandMs: 10_000, startMs: 10_000 });
  stack.defer(() => redis.close());
  const { promise, resolve: confirm } = Promise.withResolvers<void>();
  const replicas = new Replicas({
    redis,
    url,
    logger,
    version: '9.8.7',
    onMessage: (body) => (/revoked|changed/.test(body) ? promise.then(() => undefined) : undefined),
    onLost: () => {},
    onRestored: () => {},
  });
  await redis.start();
  stack.defer(() => replicas.stop());
  await replicas.start();
  await until(async () => (await server.command('ZSCORE', 'tollgate:replicas', replicas.id)) !== null);
  return { id: replicas.id, confirm };
}

const newKey = async () =>
  (await setting.commands.tollgate('keys', 'issue', '--tier', 'Pro')).out.slice(0, 8);

/** The answer to a form, as it arrives. */
async function send(route: string, fields: Readonly<Record<string, string>>) {
  const { cookie, csrf } = await setting.signIn(token);
  const answer = await fetch(`${setting.gateway.adminUrl}/console/do/${route}`, {
    method: 'POST',
    headers: { cookie, 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ csrf, ...fields }).toString(),
  });
  const text = { now: '', isWhole: false };
  const read = (async () => {
    for await (const piece of answer.body ?? []) text.now += Buffer.from(piece).toString();
    text.isWhole = true;
  })();
  return { answer, text, read };
}

test('each replica is on the page when it has confirmed, while others are waited for', async () => {
  const slow = await slowReplica();
  const { answer, text, read } = await send('keys.revoke', { 'param.prefix': await newKey() });
  expect([answer.status, answer.headers.get('cache-control')]).toEqual([200, 'no-store']);
  expect(answer.headers.get('content-security-policy')).toMatch(/default-src 'none'; .*script-src 'sha256-/);
  await until(() => OWN.test(text.now), 'the confirmation of the gateway itself');
  expect(text.now).toMatch(/Waiting for 2 replicas: \S+, \S+</);
  expect(text.now).toContain(slow.id);
  expect([text.isWhole, text.now.includes(`${slow.id} has confirmed`)]).toEqual([false, false]);
  slow.confirm();
  await read;
  expect(text.now).toContain(`${slow.id} has confirmed`);
  expect(text.now).toMatch(/2 of 2 replicas have confirmed it[\s\S]*<\/html>\s*$/);
  expect(text.now.split('<!doctype html>')).toEqual(['', expect.any(String)]);
  expect(text.now).not.toContain('Tell the replicas again');
});

test('a replica that does not confirm is named, with what that means, and can be told again', async () => {
  const prefix = await newKey();
  const seconds = Number(String(await server.command('TIME')).split(',')[0]);
  await server.command('ZADD', 'tollgate:replicas', (seconds - 20) * 1000, 'host:1:<dead>');
  const { text, read } = await send('keys.revoke', { 'param.prefix': prefix, 'text.reason': 'lost' });
  await read;
  expect(text.now).toMatch(/not confirmed by host:1:&#60;dead&#62;, last seen 2\d s ago/);
  expect(text.now).toMatch(/rejects the key within 1 s, .* within 60 s\. Stop one/);
  expect(text.now).toContain('1 of 2 replicas has confirmed it');
  await server.command('ZREM', 'tollgate:replicas', 'host:1:<dead>');
  const [, form = ''] =
    /<form method="post" action="\/console\/do\/keys.revoke">([\s\S]*?)<\/form>/.exec(text.now) ?? [];
  const fields = [...form.matchAll(/name="([^"]+)" value="([^"]*)"/g)].map(([, name = '', value = '']) => [
    name,
    value,
  ]);
  expect(fields.map(([name]) => name)).toEqual(['csrf', 'param.prefix', 'text.reason', 'request_key']);
  const { csrf: _own, ...others } = Object.fromEntries(fields);
  const again = await send('keys.revoke', others);
  await again.read;
  expect(again.text.now).toContain('1 of 1 replica has confirmed it');
});

test('a change that is refused has its status, and a rotation shows the new key behind the confirmations', async () => {
  const refused = await send('keys.revoke', { 'param.prefix': '00000000' });
  await refused.read;
  expect([refused.answer.status, refused.text.now.includes('Waiting for')]).toEqual([404, false]);
  const { answer, text, read } = await send('keys.rotate', { 'param.prefix': await newKey() });
  await read;
  expect([answer.status, text.now]).toEqual([200, expect.stringMatching(/<pre class="key"/)]);
});

test('the answer of the API names those that confirmed', async () => {
  const path = `/api/v1/keys/${await newKey()}/revoke`;
  const { json } = await setting.call('POST', path, { token, body: {} });
  expect(json).toMatchObject({
    replicas: { confirmed: 1, total: 1, confirmed_by: [{ id: expect.any(String), ms: expect.any(Number) }] },
  });
});

test('a browser without scripts shows the confirmations while it waits for the rest', async () => {
  const slow = await slowReplica();
  await using visit = await Visit.begin(browser, setting.gateway.adminUrl, { scripts: false });
  const { page } = visit;
  await page.goto('/console');
  await page.getByLabel('Token of an operator').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.goto(`/console/holders/${await newKey()}`);
  await page.locator('summary', { hasText: 'Suspend' }).click();
  await page.getByRole('button', { name: 'Suspend' }).click({ noWaitAfter: true });
  await page.getByText('has confirmed it after').waitFor();
  expect(await page.getByText('of 2 replicas').count()).toBe(0);
  slow.confirm();
  await page.getByText('2 of 2 replicas have confirmed it').waitFor();
  expect(visit.faults).toEqual([]);
});
