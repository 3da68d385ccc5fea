// What happens when the first target fails: who is asked next, with what, and what the client reads.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { closedPort } from '../helpers/closed-port.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  reset,
  type Script,
  silence,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway | undefined;
let now = 0;

beforeEach(async () => {
  now = 1_000_000;
  one = await HostileUpstream.start();
  two = await HostileUpstream.start();
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all([one.close(), two.close()]);
});

async function start(options: GatewayOptions = {}): Promise<Gateway> {
  gateway = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    now: () => now,
    random: () => 0,
    ...options,
  });
  return gateway;
}

const counts = () => [one.requests.length, two.requests.length];
const says = (status: number, headers: Record<string, string> = {}): Script =>
  json(status, upstreamError(`says ${status}`), headers);

describe('another target', () => {
  test.each([400, 404, 409, 413, 422])('is not asked after %i', async (status) => {
    const running = await start();
    one.always(says(status));
    const response = await running.chat(chatRequest());
    expect([response.status, response.json()]).toEqual([status, upstreamError(`says ${status}`)]);
    expect(counts()).toEqual([1, 0]);
  });

  test.each([401, 403, 408, 429, 500, 502, 503, 504, 529])('is asked after %i', async (status) => {
    const running = await start();
    one.always(says(status));
    expect((await running.chat(chatRequest())).status).toBe(200);
    expect(counts()).toEqual([1, 1]);
  });

  test('is asked after a redirect, which is not followed', async () => {
    const running = await start();
    one.always(json(307, {}, { location: `${two.baseUrl}/elsewhere` }));
    expect((await running.chat(chatRequest())).status).toBe(200);
    expect(counts()).toEqual([1, 1]);
    expect(two.requests[0]?.target).toBe('/v1/chat/completions');
  });

  test('is asked where the first cannot be reached, and nothing is charged to the budget', async () => {
    const dead = `http://127.0.0.1:${await closedPort()}/v1`;
    const running = await start({
      upstreams: { dead, two: two.baseUrl },
      config: { retry: { budget: 0 } },
    });
    for (let i = 0; i < 5; i += 1) expect((await running.chat(chatRequest())).status).toBe(200);
    expect(
      await running.metric('tollgate_upstream_breaker_state{upstream="dead",model="upstream-model"}'),
    ).toBe(2);
    const response = await running.chat(chatRequest());
    expect(await running.accessLine(response)).toMatchObject({ attempts: 1, upstream: 'two' });
    expect(await running.metric('tollgate_retry_budget_refusals_total')).toBe(0);
  });

  test('gets the whole body, its own model, key and URL; the client gets only its headers', async () => {
    const running = await start({
      config: {
        upstreams: { two: { base_url: `${two.baseUrl}/deep?a=b`, query: { 'api-version': '2024' } } },
        models: {
          'test-model': {
            targets: [
              { upstream: 'one', model: 'model-of-one' },
              { upstream: 'two', model: 'model-of-two', priority: 2 },
            ],
          },
        },
      },
    });
    one.always(says(503, { 'retry-after': '30', 'openai-version': 'one', 'x-should-retry': 'false' }));
    const long = 'ä'.repeat(200_000);
    const response = await running.chat(chatRequest({ user: long }));
    expect([response.status, response.header('retry-after'), response.header('openai-version')]).toEqual([
      200,
      undefined,
      undefined,
    ]);
    const [first, second] = [one.requests[0], two.requests[0]];
    expect(first?.header('authorization')).toBe('Bearer credential-of-one');
    expect(second?.header('authorization')).toBe('Bearer credential-of-two');
    expect(second?.target).toBe('/v1/deep/chat/completions?a=b&api-version=2024');
    const bodyOf = (model: string) => ({ ...chatRequest({ user: long }), model });
    expect(first?.json()).toEqual(bodyOf('model-of-one'));
    expect(second?.json()).toEqual(bodyOf('model-of-two'));
  });

  test('is asked once, and only with `after_send`, where the first may have begun', async () => {
    const running = await start({
      config: { retry: { after_send: true, attempts: 5 } },
    });
    one.always(reset());
    two.always(reset());
    const response = await running.chat(chatRequest());
    expect([response.status, ...counts()]).toEqual([502, 1, 1]);
  });

  test('is not asked any more when the client has left', async () => {
    const running = await start();
    one.always(silence());
    const client = await running.open(chatRequest());
    await one.request(0);
    client.destroy();
    await until(() => running.app.inFlight === 0, 'the end of the request');
    expect(counts()).toEqual([1, 0]);
  });
});

describe('an Azure URL', () => {
  test.each([
    [
      '/openai/deployments/my%20dep',
      { 'api-version': '2024-10-21' },
      '/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21',
    ],
    ['/openai/v1/', {}, '/openai/v1/chat/completions'],
  ])('%s', async (root, query, target) => {
    const base_url = new URL(root, one.baseUrl).href;
    const running = await start({
      upstreams: {},
      config: {
        upstreams: {
          echo: null,
          azure: { base_url, query, headers: { 'api-key': 'secret-of-azure' }, send_model: false },
        },
        models: { 'test-model': { targets: [{ upstream: 'azure', model: 'dep' }] } },
      },
    });
    using client = await running.connect();
    const headers = { authorization: `Bearer ${await running.key()}` };
    await client.send({ target: '/v1/chat/completions?api-version=mine', headers, body: chatRequest() });
    expect((await client.response()).status).toBe(200);
    const [request] = one.requests;
    expect([request?.target, request?.header('api-key'), request?.header('authorization')]).toEqual([
      target,
      'secret-of-azure',
      undefined,
    ]);
    expect(request?.json()).not.toHaveProperty('model');
  });
});

describe('a sole target', () => {
  const alone = (): GatewayOptions => ({ upstreams: { one: one.baseUrl } });

  test('that fails is asked again, as often as `retry.attempts` allows', async () => {
    const running = await start(alone());
    one.always(says(500));
    const response = await running.chat(chatRequest());
    expect([response.status, one.requests.length]).toEqual([500, 3]);
    expect(
      await running.metric('tollgate_upstream_extra_attempts_total{upstream="one",reason="retry"}'),
    ).toBe(2);
  });

  test('that recovers answers the second time', async () => {
    const running = await start(alone());
    one.next(says(500));
    expect((await running.chat(chatRequest())).status).toBe(200);
  });

  test.each([
    ['asks for a long wait', { 'retry-after': '30' }],
    ['says that asking again is no use', { 'x-should-retry': 'false' }],
  ])('that %s is not asked again, and the client reads that', async (_, headers) => {
    const running = await start(alone());
    one.always(says(503, headers));
    const response = await running.chat(chatRequest());
    expect([response.status, one.requests.length]).toEqual([503, 1]);
    for (const [name, value] of Object.entries(headers)) expect(response.header(name)).toBe(value);
  });

  test('whose cool-down runs is asked all the same', async () => {
    const running = await start({ ...alone(), config: { retry: { attempts: 1 } } });
    one.always(says(500));
    for (let i = 0; i < 7; i += 1) expect((await running.chat(chatRequest())).status).toBe(500);
    expect(one.requests.length).toBe(7);
  });

  test('gets no more than `retry.deadline` over all attempts', async () => {
    const running = await start({ ...alone(), config: { retry: { deadline: '200ms' } } });
    one.always(silence());
    const response = await running.chat(chatRequest());
    expect([response.status, one.requests.length]).toEqual([504, 1]);
  });
});

describe('a time to wait', () => {
  test.each([
    ['seconds', () => ({ 'retry-after': '5' }), 5000],
    ['milliseconds', () => ({ 'retry-after-ms': '5000', 'retry-after': '1' }), 5000],
    ['a date', () => ({ 'retry-after': new Date(Date.now() + 7000).toUTCString() }), 7000],
    ['a day, of which a minute is believed', () => ({ 'retry-after': '86400' }), 60_000],
    ['garbage, which counts as a second', () => ({ 'retry-after': 'soon' }), 1000],
    ['nothing, which counts as a second', () => ({}), 1000],
  ])('in %s is respected by all requests', async (_, headers, ms) => {
    const running = await start();
    one.next(says(429, headers()));
    const ask = async () => {
      expect((await running.chat(chatRequest())).status).toBe(200);
      return counts();
    };
    expect(await ask()).toEqual([1, 1]);
    // A date has whole seconds, and some time has passed.
    now += ms - 2000 > 0 ? ms - 2000 - 500 : ms - 500;
    expect(await ask()).toEqual([1, 2]);
    now += 3000;
    expect(await ask()).toEqual([2, 2]);
  });

  test('of all targets: 429 with the soonest, and refusals do not make it longer', async () => {
    const running = await start();
    one.always(says(429, { 'retry-after': '5' }));
    two.always(says(429, { 'retry-after': '20' }));
    const first = await running.chat(chatRequest());
    expect([first.status, first.json()]).toEqual([429, upstreamError('says 429')]);
    for (const [later, seconds] of [
      [0, '5'],
      [2000, '3'],
      [2000, '1'],
    ] as const) {
      now += later;
      const response = await running.chat(chatRequest());
      expect([response.status, response.header('retry-after')]).toEqual([429, seconds]);
      expect(response.json()).toMatchObject({ error: { code: 'upstream_rate_limited' } });
    }
    expect(counts()).toEqual([1, 1]);
    one.always(standardAnswer);
    now += 1001;
    expect((await running.chat(chatRequest())).status).toBe(200);
  });

  test('all targets open: 503 with the soonest, then one probe, then closed', async () => {
    const running = await start({ config: { retry: { attempts: 2, budget: 1 } } });
    one.always(says(500));
    two.always(says(500));
    for (let i = 0; i < 5; i += 1) {
      expect((await running.chat(chatRequest())).status).toBe(500);
      now += 1000;
    }
    const response = await running.chat(chatRequest());
    expect([response.status, response.header('retry-after')]).toEqual([503, '9']);
    expect(response.json()).toMatchObject({ error: { code: 'upstream_busy' } });
    expect(counts()).toEqual([5, 5]);
    one.always(json(200, completion()));
    now += 10_000;
    expect((await running.chat(chatRequest())).status).toBe(200);
    expect(
      await running.metric('tollgate_upstream_breaker_state{upstream="one",model="upstream-model"}'),
    ).toBe(0);
    expect(
      await running.metric('tollgate_upstream_breaker_state{upstream="two",model="upstream-model"}'),
      // Its cool-down is over, too.
    ).toBe(1);
  });
});

test('the budget bounds what the whole process tries again: with none, the three of the floor in a second', async () => {
  const running = await start({ config: { retry: { budget: 0 } } });
  one.always(says(500));
  const statuses: number[] = [];
  for (let i = 0; i < 4; i += 1) statuses.push((await running.chat(chatRequest())).status);
  expect(statuses).toEqual([200, 200, 200, 500]);
  expect(await running.metric('tollgate_retry_budget_refusals_total')).toBe(1);
  expect(running.app.breaker('two', 'upstream-model')?.inFlight).toBe(0);
});

test('errors of callers open no breaker', async () => {
  const running = await start();
  one.always(says(400));
  for (let i = 0; i < 30; i += 1) await running.chat(chatRequest());
  expect(counts()).toEqual([30, 0]);
});

test('health checks carry the credentials, and rank an unhealthy upstream last', async () => {
  one.always(json(500, upstreamError('unwell')));
  const running = await start({
    config: { upstreams: { one: { health: { path: '/healthz', interval: '100ms' } } } },
  });
  await until(
    async () => (await running.metric('tollgate_upstream_healthy{upstream="one"}')) === 0,
    'the upstream to be found unhealthy',
  );
  expect(one.requests[0]).toMatchObject({ method: 'GET', target: '/healthz' });
  expect(one.requests[0]?.header('authorization')).toBe('Bearer credential-of-one');
  expect((await running.chat(chatRequest())).status).toBe(200);
  expect(two.requests.length).toBe(1);
});
