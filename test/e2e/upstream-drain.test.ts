// An upstream is taken out of service by hand: what it still gets, in which replicas, and how it comes back.
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { upstreamState } from '../../src/upstream/state/upstream-state.ts';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import {
  configText,
  type Gateway,
  type GatewayOptions,
  runCommand,
  startGateway,
} from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json, waitFor } from '../helpers/hostile-upstream.ts';
import { WEBSOCKET_HANDSHAKE } from '../helpers/raw-client.ts';
import { tempDir, until } from '../helpers/wait.ts';

const STATES = z.array(upstreamState);

async function stateOf(gateway: Gateway, name: string) {
  const states = STATES.parse(await (await fetch(`${gateway.adminUrl}/upstreams`)).json());
  const found = states.find(({ upstream }) => upstream === name);
  if (found === undefined) throw new Error(`${name} is not reported`);
  return found;
}

/** A configuration for commands that names the ports of a running gateway. */
async function commandFile(gateway: Gateway, options: GatewayOptions): Promise<string> {
  const file = gateway.directory.file('command.yaml');
  const ports = [gateway.url, gateway.adminUrl].map((url) => Number(new URL(url).port));
  await writeFile(file, configText(options, ports));
  return file;
}

/** Runs a command beside a gateway. */
const beside =
  (gateway: Gateway, file: string) =>
  (...words: string[]) =>
    runCommand([...words, '--config', file], { TEST_DIR: gateway.directory.path });

let a: HostileUpstream;
let b: HostileUpstream;
beforeAll(async () => {
  [a, b] = [await HostileUpstream.start(), await HostileUpstream.start()];
});
afterAll(async () => {
  await Promise.all([a?.close(), b?.close()]);
});

const options = (): GatewayOptions => ({
  upstreams: { a: a.baseUrl, b: b.baseUrl },
  config: {
    passthrough: { upstream: 'a', paths: ['/v1/files'] },
    models: {
      both: {
        targets: [
          { upstream: 'a', model: 'x' },
          { upstream: 'b', model: 'x', priority: 2 },
        ],
      },
      alone: { targets: [{ upstream: 'a', model: 'x' }] },
    },
  },
});
const ask = async (gateway: Gateway, model: string, key?: string) => {
  const response = await gateway.chat(chatRequest({ model }), key === undefined ? {} : { key });
  return [response.status, Reflect.get(Object(Reflect.get(Object(response.json()), 'error')), 'code')];
};
const OUT = [503, 'upstream_out_of_service'];

describe('a drained upstream', () => {
  let gateway: Gateway;
  let tollgate: ReturnType<typeof beside>;
  beforeAll(async () => {
    for (const each of [a, b]) each.always(json(200, completion()));
    gateway = await startGateway(options());
    tollgate = beside(gateway, await commandFile(gateway, options()));
  });
  afterAll(() => gateway?.close());

  test('finishes what runs, gets nothing new of any kind, shows who drained it, and comes back', async () => {
    await using gateway = await startGateway(options());
    const tollgate = beside(gateway, await commandFile(gateway, options()));
    const before = a.requests.length;
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const created = { id: 'resp_1', object: 'response', status: 'completed', model: 'x', output: [] };
    a.next(json(200, created));
    const stored = await fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'alone', input: 'x' }),
    });
    expect(stored.status).toBe(200);
    const held = Promise.withResolvers<void>();
    a.next([waitFor(held.promise), json(200, completion())]);
    const running = gateway.chat(chatRequest({ model: 'alone' }));
    await until(() => a.requests.length === before + 2, 'the request');
    const { code, stdout, stderr } = await tollgate('upstreams', 'drain', 'a', '--reason', 'a new key');
    expect([code, stdout]).toEqual([
      0,
      'a is drained until it is resumed. Running gateways send it no new requests within 1 s, 5 s at most.\n',
    ]);
    expect(stderr).toBe('Warning: no target is in service now for alone: 503 upstream_out_of_service.\n');
    await until(async () => (await stateOf(gateway, 'a')).state === 'drained', 'the drain', 5000);
    expect((await stateOf(gateway, 'a')).in_flight).toBe(1);
    held.resolve();
    expect((await running).status).toBe(200);

    expect(await ask(gateway, 'both')).toEqual([200, undefined]);
    expect(await ask(gateway, 'alone')).toEqual(OUT);
    const again = await fetch(`${gateway.url}/v1/responses/resp_1`, { headers });
    expect([again.status, await again.json()]).toMatchObject([503, { error: { code: OUT[1] } }]);
    const files = await fetch(`${gateway.url}/v1/files`, { headers });
    expect([files.status, Reflect.get(Object(await files.json()), 'error')]).toMatchObject([
      503,
      { code: OUT[1] },
    ]);
    using client = await gateway.connect();
    const session = await client.ask({
      method: 'GET',
      target: '/v1/realtime?model=alone',
      headers: { ...headers, ...WEBSOCKET_HANDSHAKE },
    });
    expect([session.status, session.json()]).toMatchObject([503, { error: { code: OUT[1] } }]);
    expect(a.requests).toHaveLength(before + 2);
    // The completion, the stored response, the list of files and the session.
    const unserved = 'tollgate_upstream_unserved_total{outcome="upstream_out_of_service"}';
    // Counted when a request has ended, after its answer.
    await until(async () => (await gateway.metric(unserved)) === 4, 'the count');
    expect(await gateway.metric('tollgate_upstream_in_service{upstream="a"}')).toBe(0);
    expect(await gateway.logLine(({ msg }) => String(msg).startsWith('upstream drained'))).toMatchObject({
      upstream: 'a',
      reason: 'a new key',
    });

    const shown = await tollgate('upstreams', 'show', 'a');
    expect(shown.stdout).toMatch(
      /^state +drained\n(.*\n)*note +drained by cli:\S+ until it is resumed: a new key$/m,
    );
    const resumed = await tollgate('upstreams', 'resume', 'a', '--json');
    expect([resumed.code, JSON.parse(resumed.stdout)]).toEqual([0, { upstream: 'a', drained: null }]);
    await until(async () => (await ask(gateway, 'alone'))[0] === 200, 'the end of the drain', 5000);
    expect(await tollgate('upstreams', 'resume', 'a')).toMatchObject({
      code: 1,
      stderr: 'tollgate upstreams resume: a is not drained\n',
    });
  });

  test('comes back by itself when the time is over', async () => {
    expect((await tollgate('upstreams', 'drain', 'a', '--for', '2s')).code).toBe(0);
    await until(async () => (await ask(gateway, 'alone'))[0] === 503, 'the drain', 5000);
    await until(async () => (await ask(gateway, 'alone'))[0] === 200, 'its end');
    expect((await stateOf(gateway, 'a')).drained).toBeNull();
    const events = async () => (await tollgate('upstreams', 'events', '--limit', '1')).stdout;
    await until(
      async () => (await events()).includes('a: resumed: the time of the drain is over'),
      'the event',
    );
  });

  test.each([
    [['drain'], 2, 'NAME is missing'],
    [['drain', 'A'], 1, 'there is no upstream of this name (did you mean a?)'],
    [['drain', 'a', '--for', 'soon'], 2, '--for is a duration'],
    [['drain', 'a', '--for', '0s'], 2, '--for is a duration'],
    [['drain', 'a', '--for', '2020-01-01'], 2, '--for is in the past'],
    [['drain', 'a', '--reason', 'x'.repeat(201)], 1, 'longer than 200'],
    [['drian', 'a'], 2, 'did you mean drain?'],
    [['resume', 'nothing'], 1, 'there is no upstream of this name'],
    [['show', 'nothing'], 1, 'there is no upstream of this name'],
    [['events', '--limit', '0'], 2, '--limit is a whole number from 1 to 1000'],
    [['list', 'a'], 2, 'too many operands'],
  ])('%j is refused', async (words, code, message) => {
    const result = await tollgate('upstreams', ...words);
    expect([result.code, result.stderr]).toEqual([code, expect.stringContaining(message)]);
    expect((await stateOf(gateway, 'a')).drained).toBeNull();
  });
});

test('without Redis, a drain holds in every process on the store, and after a restart', async () => {
  for (const each of [a, b]) each.always(json(200, completion()));
  await using folder = await tempDir();
  const { config, ...rest } = options();
  const shared = { ...rest, config: { ...config, store: `sqlite:${folder.file('shared.db')}` } };
  await using one = await startGateway(shared);
  await using two = await startGateway(shared);
  const tollgate = beside(one, await commandFile(one, shared));
  expect((await tollgate('upstreams', 'drain', 'a', '--for', '1h')).code).toBe(0);
  for (const gateway of [one, two])
    await until(async () => (await stateOf(gateway, 'a')).state === 'drained', 'the drain', 5000);
  await two.close();
  await using again = await startGateway(shared);
  const key = await again.issueKey();
  expect(await ask(again, 'alone', key)).toEqual(OUT);
  expect((await stateOf(again, 'a')).drained?.until).toMatch(/Z$/);
  // The commands need no gateway.
  await one.close();
  await again.close();
  const file = folder.file('command.yaml');
  await writeFile(file, configText(shared));
  const alone = (...words: string[]) => runCommand([...words, '--config', file], { TEST_DIR: folder.path });
  const listed = await alone('upstreams', 'list', '--json');
  expect(JSON.parse(listed.stdout)).toMatchObject([
    { upstream: 'a', state: 'drained', drained: { by: expect.stringMatching(/^cli:/), reason: null } },
    { upstream: 'b', state: 'unknown', drained: null },
  ]);
  expect((await alone('upstreams', 'resume', 'a')).code).toBe(0);
});

describe('with Redis', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    for (const each of [a, b]) each.always(json(200, completion()));
    fleet = await startFleet({ replicas: 2, postgres: 'shared', gateway: { ...options(), process: false } });
  }, FLEET_TIMEOUT);
  afterAll(() => fleet?.[Symbol.asyncDispose]());

  test('the command waits until every replica obeys, and lists the states of all', async () => {
    const [one, two] = fleet.replicas;
    if (one === undefined || two === undefined) throw new Error('no replicas');
    const tollgate = beside(one.gateway, one.gateway.configFile);
    const key = await one.gateway.key();
    const drained = await tollgate('upstreams', 'drain', 'a');
    expect(drained.stdout).toMatch(
      /^a is drained until it is resumed\. 2 of 2 replicas send it no new requests in \d+ ms/,
    );
    expect(drained.code).toBe(0);
    for (const { gateway } of fleet.replicas) expect(await ask(gateway, 'alone', key)).toEqual(OUT);
    const shown = JSON.parse((await tollgate('upstreams', 'show', 'a', '--json')).stdout);
    expect(shown).toMatchObject({
      state: 'drained',
      max_concurrency: 400,
      processes: [{ state: { state: 'drained' } }, { state: { state: 'drained' } }],
      silent: [],
    });
    const explained = JSON.parse((await tollgate('explain', 'both', '--json')).stdout);
    expect(explained).toMatchObject({
      server: { replicas: 2 },
      targets: [{ next_hundred: 0, live: { state: 'drained' } }, { next_hundred: 100 }],
    });
    expect((await tollgate('explain', 'both')).stdout).toMatch(
      /next +gets 100 of the next 100 requests \(mean of 2 processes\) first\n/,
    );
    const resumed = await tollgate('upstreams', 'resume', 'a');
    expect(resumed.stdout).toContain('2 of 2 replicas send it requests again');
    for (const { gateway } of fleet.replicas) expect((await ask(gateway, 'alone', key))[0]).toBe(200);
  });

  test('a replica that is cut off from Redis is named, and obeys nevertheless', async () => {
    const [one, two] = fleet.replicas;
    if (one === undefined || two === undefined) throw new Error('no replicas');
    two.cable.cut();
    const tollgate = beside(one.gateway, one.gateway.configFile);
    const drained = await tollgate('upstreams', 'drain', 'a', '--json');
    expect(drained.code).toBe(3);
    expect(drained.stderr).toContain('Warning: not confirmed by ');
    await until(async () => (await stateOf(two.gateway, 'a')).state === 'drained', 'the drain', 5000);
  });
});

test('`enabled: false` takes out an upstream with its health checks, or one target, and a reload puts it back', async () => {
  for (const each of [a, b]) each.always(json(200, completion()));
  const isEnabled = (upstream: boolean, target: boolean): GatewayOptions => ({
    upstreams: { a: a.baseUrl, b: b.baseUrl },
    config: {
      upstreams: { a: { enabled: upstream, health: { path: '/healthz', interval: '100ms' } } },
      models: {
        both: {
          targets: [
            { upstream: 'a', model: 'x', weight: 9 },
            { upstream: 'b', model: 'x', enabled: target },
          ],
        },
        alone: { targets: [{ upstream: 'a', model: 'x' }] },
        none: { targets: [{ upstream: 'b', model: 'x', weight: 0 }] },
      },
    },
  });
  await using gateway = await startGateway(isEnabled(false, true));
  const before = [a.requests.length, b.requests.length];
  expect(await stateOf(gateway, 'a')).toMatchObject({ state: 'disabled', targets: [{ state: 'disabled' }] });
  expect(await gateway.metric('tollgate_upstream_in_service{upstream="a"}')).toBe(0);
  for (let each = 0; each < 5; each += 1) expect((await ask(gateway, 'both'))[0]).toBe(200);
  expect(await ask(gateway, 'alone')).toEqual(OUT);
  expect(await ask(gateway, 'none')).toEqual(OUT);
  const tollgate = beside(gateway, await commandFile(gateway, isEnabled(false, true)));
  const explained = await tollgate('explain', 'none');
  expect(explained.stdout).toContain('  b  (weight 0: no requests)\n');
  expect(explained.stdout).toMatch(/next +100 of the next 100 requests get upstream_out_of_service\n/);
  expect(explained.stdout).toMatch(/next +gets 0 of the next 100 requests first\n/);
  expect((await tollgate('explain', 'alone')).stdout).toContain('  a  (disabled: no requests)\n');
  expect([a.requests.length, b.requests.length - (before[1] ?? 0)]).toEqual([before[0], 5]);

  await gateway.writeConfig(isEnabled(true, false));
  await gateway.app.reload();
  for (let each = 0; each < 5; each += 1) expect((await ask(gateway, 'both'))[0]).toBe(200);
  expect((await ask(gateway, 'alone'))[0]).toBe(200);
  expect(b.requests.length - (before[1] ?? 0)).toBe(5);
  await until(() => a.requests.some(({ target }) => target === '/healthz'), 'a health check');
  expect((await stateOf(gateway, 'a')).state).toBe('ok');
  expect(await gateway.logLine(({ msg }) => String(msg).startsWith('upstream enabled'))).toMatchObject({
    upstream: 'a',
  });
});
