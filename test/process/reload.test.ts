// Hot reload of a whole gateway: what a new configuration changes, what it keeps, and that an invalid file changes nothing.
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  type Script,
  SSE_HEADERS,
  upstreamError,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

const targets = (...names: string[]) =>
  names.map((upstream, index) => ({ upstream, model: 'upstream-model', priority: index + 1 }));

/** A stream that says something, waits until it is let go, and ends whole. */
function heldStream(): { script: Script; release: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const script = [
    head(200, SSE_HEADERS),
    chunk(frame(contentChunk('before'))),
    waitFor(promise),
    chunk(`${frame(contentChunk('after'))}${frame(finishChunk())}${DONE}`),
    lastChunk(),
  ];
  return { script, release: resolve };
}

async function ask(url: string, method: 'GET' | 'POST', target: string, headers = {}): Promise<RawResponse> {
  using client = await RawClient.connect(url);
  return await client.ask({ method, target, headers });
}

async function healthOf(gateway: Gateway): Promise<{ status: string; checks: Record<string, string> }> {
  const response = await fetch(`${gateway.url}/health`);
  return (await response.json()) as { status: string; checks: Record<string, string> };
}

/** Writes it and reads it at once. */
async function reload(gateway: Gateway, options: GatewayOptions): Promise<void> {
  await gateway.writeConfig(options);
  await gateway.app.reload();
}

describe('a new file', () => {
  test('applies by itself soon after it was written', async () => {
    await using gateway = await startGateway();
    const key = await gateway.key();
    const hash = gateway.app.config.hash;
    await gateway.writeConfig({ config: { models: { 'new-model': { targets: targets('echo') } } } });
    await until(() => gateway.app.config.hash !== hash, 'the new configuration');
    expect((await gateway.chat(chatRequest({ model: 'new-model' }))).status).toBe(200);
    expect((await gateway.chat(chatRequest())).status).toBe(404);
    const listed = await ask(gateway.url, 'GET', '/v1/models', { authorization: `Bearer ${key}` });
    expect(listed.text()).toContain('new-model');
    expect(await gateway.metric('tollgate_config_reloads_total{result="applied"}')).toBe(1);
    expect(await gateway.metric(`tollgate_config_info{hash="${gateway.app.config.hash}"}`)).toBe(1);
    expect(await gateway.metric(`tollgate_config_info{hash="${hash}"}`)).toBe(0);
  });

  test('with the same meaning has the same hash, and the order of models counts', async () => {
    await using gateway = await startGateway();
    const model = { targets: targets('echo') };
    await reload(gateway, { config: { models: { a: model, b: model } } });
    const { hash } = gateway.app.config;
    await reload(gateway, { config: { models: { b: model, a: model } } });
    expect(gateway.app.config.hash).toBe(hash);
    expect(await gateway.metric('tollgate_config_reloads_total{result="unchanged"}')).toBe(1);
    const key = await gateway.key();
    const listed = await ask(gateway.url, 'GET', '/v1/models', { authorization: `Bearer ${key}` });
    expect(listed.text().indexOf('"b"')).toBeLessThan(listed.text().indexOf('"a"'));
  });

  test('keeps the fields that need a restart, names them, and applies all others', async () => {
    await using gateway = await startGateway();
    const before = gateway.app.config;
    await gateway.writeConfig({
      config: {
        admin: { host: '127.0.0.2' },
        listen: { trusted_proxies: ['10.0.0.0/8'] },
        secret: 'a secret that is long enough for anybody',
        models: { 'new-model': { targets: targets('echo') } },
      },
    });
    await gateway.app.reload();
    const line = await gateway.logLine((each) => Array.isArray(each['fields']), 'the warning');
    expect(line['fields']).toEqual(['admin.host', 'listen.trusted_proxies', 'secret']);
    expect(gateway.output).not.toContain('a secret that is long');
    expect(await gateway.metric('tollgate_config_restart_pending')).toBe(3);
    expect(gateway.app.config.static).toEqual(before.static);
    expect((await gateway.chat(chatRequest({ model: 'new-model' }))).status).toBe(200);
    expect((await healthOf(gateway)).checks['config']).toBe('ok');
    // Neither the old hash nor that of a replica which was restarted with this file.
    const there = gateway.app.config.hash;
    await reload(gateway, { config: { models: { 'new-model': { targets: targets('echo') } } } });
    expect(gateway.app.config.hash).toBe(there);
    expect(await gateway.metric('tollgate_config_restart_pending')).toBe(0);
  });
});

describe('an invalid file', () => {
  test('keeps the last valid one and is reported with all places, until a valid one follows', async () => {
    await using gateway = await startGateway();
    const good = gateway.app.config;
    const at = await gateway.metric('tollgate_config_last_reload_success_timestamp_seconds');
    expect(at).toBeGreaterThan(1_700_000_000);
    await writeFile(gateway.configFile, 'listen: { prt: 1 }\nmodels: 3\n');
    const line = await gateway.logLine(
      (each) => String(each['msg']).startsWith('failed to apply the configuration'),
      'the faults in the log',
    );
    expect(line['level']).toBe('error');
    const faults = line['faults'];
    expect(Array.isArray(faults) && faults.length).toBeGreaterThanOrEqual(3);
    for (const fault of Array.isArray(faults) ? faults : [])
      expect(fault).toMatch(/config\.yaml:\d+:\d+: \S/);
    expect(gateway.app.config).toBe(good);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    await until(async () => (await healthOf(gateway)).checks['config'] === 'degraded');
    const health = await ask(gateway.url, 'GET', '/health');
    expect([health.status, health.text().includes('prt')]).toEqual([200, false]);
    const ready = await ask(gateway.adminUrl, 'GET', '/readyz');
    expect([ready.status, ready.text().includes('"config":"degraded"')]).toEqual([200, true]);
    expect(await gateway.metric('tollgate_config_last_reload_successful')).toBe(0);
    expect(await gateway.metric('tollgate_config_reloads_total{result="rejected"}')).toBe(1);
    expect(await gateway.metric('tollgate_config_last_reload_success_timestamp_seconds')).toBe(at);

    await gateway.writeConfig({});
    await until(async () => (await healthOf(gateway)).checks['config'] === 'ok');
    expect(await gateway.metric('tollgate_config_last_reload_successful')).toBe(1);
    expect(gateway.app.config.hash).toBe(good.hash);
  });

  test('that names a variable which is not set says that the environment is not read again', async () => {
    await using gateway = await startGateway();
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
    await writeFile(gateway.configFile, 'redis: ${LATE_REDIS_URL}\n');
    const line = await gateway.logLine(({ hint }) => hint !== undefined, 'the hint');
    expect(line).toMatchObject({
      msg: 'failed to apply the configuration; keeping the previous one',
      hint: expect.stringContaining('the environment is read at the start; restart with the variable'),
    });
  });

  test.each([
    ['no YAML', 'listen: [', 'config.yaml:1:'],
    ['empty', '', 'config.yaml:1:1'],
    ['half written', 'upstreams: { echo: { builtin: echo } }\nmod', 'config.yaml:2:'],
    ['too large', Buffer.alloc(8_000_000, '#'), 'larger than 1 MiB'],
    ['no UTF-8', Buffer.of(0x61, 0xff), 'not UTF-8'],
    [
      'an unknown upstream',
      'upstreams: { e: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: f, model: m }] } }',
      'no upstream',
    ],
    [
      'an unset variable',
      'upstreams: { e: { base_url: "http://a.test", api_key: "$' + '{NO_SUCH}" } }',
      'NO_SUCH',
    ],
  ])('%s', async (_name, content, told) => {
    await using gateway = await startGateway();
    await writeFile(gateway.configFile, content);
    await gateway.app.reload();
    expect(gateway.output).toContain(told);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(gateway.app.config.hash).toMatch(/^[0-9a-f]{12}$/);
  });
});

describe('live state', () => {
  let a: HostileUpstream;
  let b: HostileUpstream;

  beforeAll(async () => {
    a = await HostileUpstream.start();
    b = await HostileUpstream.start();
  });
  afterAll(async () => {
    await a?.close();
    await b?.close();
  });

  test('of an unchanged upstream survives: its breaker, its pool, its metrics', async () => {
    await using gateway = await startGateway({ upstreams: { a: a.baseUrl, b: b.baseUrl } });
    a.always(json(503, upstreamError('down')));
    await until(async () => {
      await gateway.chat(chatRequest());
      return gateway.app.breaker('a', 'upstream-model')?.state === 'open';
    }, 'the breaker of a to open');
    const [asked, connections] = [a.requests.length, b.connections];
    await reload(gateway, {
      upstreams: { a: a.baseUrl, b: b.baseUrl },
      config: { max_body: '1MiB', retry: { attempts: 2 } },
    });
    expect(gateway.app.config.dynamic.max_body).toBe(2 ** 20);
    expect(gateway.app.breaker('a', 'upstream-model')?.state).toBe('open');
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect([a.requests.length, b.connections]).toEqual([asked, connections]);
    const series = 'tollgate_upstream_breaker_state{upstream="a",model="upstream-model"}';
    expect(await gateway.metric(series)).toBe(2);

    // Changed, it begins anew.
    await reload(gateway, { upstreams: { a: `${a.url}/v2`, b: b.baseUrl } });
    expect(await gateway.metrics()).toContain(`${series} 0\n`);
    expect(gateway.app.breaker('a', 'upstream-model')).toBeUndefined();
    a.always((c) => json(200, { choices: [] })(c));
  });

  test('a stream of a removed upstream completes; then its connections close and its series end', async () => {
    await using gateway = await startGateway({ upstreams: { a: a.baseUrl } });
    const held = heldStream();
    a.next(held.script);
    using client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('before');
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="a"}')).toBe(1);
    await reload(gateway, { upstreams: { b: b.baseUrl } });
    expect(gateway.app.retiring).toBe(1);
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="a"}')).toBe(1);
    const asked = a.requests.length;
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(a.requests.length).toBe(asked);
    held.release();
    const response = await client.response();
    expect([response.complete, response.text().includes('[DONE]')]).toEqual([true, true]);
    await until(() => gateway.app.retiring === 0 && a.openSockets === 0, 'the upstream to be closed');
    expect(await gateway.metrics()).not.toContain('tollgate_upstream_in_flight{upstream="a"}');
  });

  test('a request from before the reload can fall back to a removed target', async () => {
    await using gateway = await startGateway({ upstreams: { a: a.baseUrl, b: b.baseUrl } });
    const { promise, resolve } = Promise.withResolvers<void>();
    a.next([waitFor(promise), json(503, upstreamError('down'))]);
    const asked = a.requests.length;
    using client = await gateway.open(chatRequest());
    await a.request(asked);
    await reload(gateway, { upstreams: {} });
    const there = b.requests.length;
    resolve();
    expect((await client.response()).status).toBe(200);
    expect(b.requests.length).toBe(there + 1);
    await until(() => gateway.app.retiring === 0);
  });

  test('with a changed upstream new requests follow the new file, the running one the old', async () => {
    const credential = (api_key: string): GatewayOptions => ({
      upstreams: { a: a.baseUrl },
      config: { upstreams: { a: { api_key } } },
    });
    await using gateway = await startGateway(credential('credential-one'));
    const held = heldStream();
    a.next(held.script);
    using client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('before');
    await reload(gateway, credential('credential-two'));
    const asked = a.requests.length;
    await gateway.chat(chatRequest());
    expect((await a.request(asked)).header('authorization')).toBe('Bearer credential-two');
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="a"}')).toBe(1);
    held.release();
    expect((await client.response()).complete).toBe(true);
    await until(() => gateway.app.retiring === 0);
    // The series is its successor's now.
    expect(await gateway.metrics()).toContain('tollgate_upstream_in_flight{upstream="a"} 0');
  });

  test('health checks of a removed upstream end, with their results', async () => {
    const checked: GatewayOptions = {
      upstreams: { a: a.baseUrl },
      config: { upstreams: { a: { health: { path: '/health', interval: '100ms' } } } },
    };
    await using gateway = await startGateway(checked);
    const asked = a.requests.length;
    await until(() => a.requests.length > asked + 1, 'health checks');
    await reload(gateway, { upstreams: { b: b.baseUrl } });
    await until(() => gateway.app.retiring === 0 && a.openSockets === 0);
    expect(await gateway.metrics()).not.toContain('tollgate_upstream_healthy{upstream="a"}');
  });
});

describe('every reloadable field applies', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway();
    await gateway.key();
  });
  afterAll(() => gateway?.close());

  const config = (fields: NonNullable<GatewayOptions['config']>) => reload(gateway, { config: fields });

  test('max_body', async () => {
    await config({ max_body: '1KiB' });
    expect((await gateway.chat(chatRequest({ user: 'x'.repeat(2000) }))).status).toBe(413);
    await config({});
    expect((await gateway.chat(chatRequest({ user: 'x'.repeat(2000) }))).status).toBe(200);
  });

  test('limits of tiers', async () => {
    await config({ tiers: { Pro: { requests_per_minute: 1 } } });
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect((await gateway.chat(chatRequest())).status).toBe(429);
    await config({ tiers: { Pro: { requests_per_minute: 1000 } } });
    const response = await gateway.chat(chatRequest());
    expect([response.status, response.header('x-ratelimit-limit-requests')]).toEqual([200, '1000']);
  });

  test('auth.failures_per_minute', async () => {
    await config({ auth: { failures_per_minute: 1 } });
    const bad = () => gateway.chat(chatRequest(), { key: randomBytes(16).toString('hex') });
    await until(async () => (await bad()).status === 429, 'the limit on bad keys');
    await config({ auth: { failures_per_minute: 100_000 } });
    expect((await bad()).status).toBe(401);
  });

  test('cors', async () => {
    const origin = { origin: 'https://page.test' };
    await config({ cors: { origins: ['https://page.test'] } });
    const allowed = await ask(gateway.url, 'GET', '/health', origin);
    expect(allowed.header('access-control-allow-origin')).toBe('https://page.test');
    await config({});
    const refused = await ask(gateway.url, 'GET', '/health', origin);
    expect(refused.header('access-control-allow-origin')).toBeUndefined();
  });

  test('free_keys and tiers on offer', async () => {
    const order = async () => {
      using client = await gateway.connect();
      return (await client.ask({ target: '/checkout', body: { tier: 'Free' } })).status;
    };
    await config({ free_keys: { per_ip_per_day: 0 } });
    expect(await order()).toBe(429);
    await config({ free_keys: { per_ip_per_day: 5 } });
    expect(await order()).toBe(201);
    await config({ tiers: { Pro: {} } });
    expect(await order()).toBe(501);
  });

  test('branding, and the public_url of a port that the system chose', async () => {
    await config({ branding: { name: 'Another Name' } });
    expect((await ask(gateway.url, 'GET', '/pricing')).text()).toContain('Another Name');
    using client = await gateway.connect();
    const response = await client.ask({
      target: '/checkout',
      headers: { origin: gateway.url, 'content-type': 'application/x-www-form-urlencoded' },
      body: 'tier=Lite',
    });
    // Not 403: it is its own site still.
    expect(response.status).toBe(501);
  });

  test('stream.write_stall, for an open connection', async () => {
    using unused = await gateway.connect();
    await until(async () => (await gateway.metric('tollgate_connections')) >= 1);
    await config({ stream: { write_stall: '100ms' } });
    // It has asked for nothing and no byte moves: its time is over.
    await unused.closed;
    await config({});
    using later = await gateway.connect();
    expect((await later.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('drain', async () => {
    await config({ drain: { delay: '1ms', timeout: '2ms' } });
    expect(gateway.app.config.dynamic.drain).toEqual({ delay: 1, timeout: 2 });
    using client = await gateway.open(
      chatRequest({ stream: true, messages: [{ role: 'user', content: 'x '.repeat(500) }] }),
    );
    await client.readUntil('data:');
    await gateway.app.close();
    await client.closed;
    expect(client.responses[0]?.complete).toBe(false);
    expect(client.responses[0]?.text()).toContain('draining');
  });
});
