// `balance: affinity` over whole gateways: which target requests with one key get, when they get another one, and where encrypted content goes.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  frame,
  HostileUpstream,
  json,
  type Script,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';

const NAMES = ['a', 'b', 'c', 'd'];

let upstreams: HostileUpstream[] = [];
let gateways: Gateway[] = [];
let directory: TempDir;
let now = 0;

beforeEach(async () => {
  now = 1_000_000;
  directory = await tempDir();
  upstreams = await Promise.all(NAMES.map(() => HostileUpstream.start(json(200, completion()))));
});
afterEach(async () => {
  await Promise.all(gateways.map((gateway) => gateway.close()));
  gateways = [];
  await Promise.all(upstreams.map((upstream) => upstream.close()));
  await directory.remove();
});

/** Replicas share a store. The order of the targets in the configuration is not that of another replica. */
async function start(
  model: NonNullable<GatewayOptions['config']> = {},
  names: readonly string[] = NAMES,
): Promise<Gateway> {
  const gateway = await startGateway({
    upstreams: Object.fromEntries(NAMES.map((name, index) => [name, upstreams[index]?.baseUrl ?? ''])),
    now: () => now,
    random: () => 0.5,
    config: {
      store: `sqlite:${directory.file('shared.db')}`,
      models: {
        'test-model': {
          balance: 'affinity',
          targets: names.map((upstream) => ({ upstream, model: 'm' })),
          ...model,
        },
      },
    },
  });
  gateways.push(gateway);
  return gateway;
}

const counts = () => upstreams.map(({ requests }) => requests.length);
const used = () => counts().filter((count) => count > 0).length;
const userSays = (...texts: readonly string[]) => ({
  messages: texts.map((content, index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content })),
});

/** The index of the upstream that got the request. */
async function askedFor(
  gateway: Gateway,
  extra: object,
  headers: Record<string, string> = {},
  key?: string,
): Promise<number> {
  const before = counts();
  const options = key === undefined ? { headers } : { headers, key };
  expect((await gateway.chat(chatRequest(extra), options)).status).toBe(200);
  return counts().findIndex((count, index) => count > (before[index] ?? 0));
}

async function respond(
  gateway: Gateway,
  body: object,
  key: string,
  target = '/v1/responses',
): Promise<RawResponse> {
  using client = await gateway.connect();
  await client.send({
    target,
    headers: { authorization: `Bearer ${key}` },
    body: { model: 'test-model', ...body },
  });
  return await client.response();
}

describe('requests with one key get one target', () => {
  test('by `prompt_cache_key`, header, conversation, or the beginning of the prompt', async () => {
    const gateway = await start();
    for (const [extra, headers] of [
      [{ prompt_cache_key: 'k' }, {}],
      [{}, { 'x-session-id': 's' }],
      [userSays('first'), {}],
    ] as const) {
      const first = await askedFor(gateway, extra, headers);
      for (let i = 0; i < 4; i += 1)
        expect(await askedFor(gateway, { temperature: i, ...extra }, headers)).toBe(first);
    }
    const start3 = await askedFor(gateway, userSays('first'));
    expect(await askedFor(gateway, userSays('first', 'answer', 'second'))).toBe(start3);
    expect(await gateway.metric('tollgate_affinity_total{result="sticky"}')).toBe(17);
  });

  test('and many keys are spread over all targets', async () => {
    const gateway = await start();
    for (let i = 0; i < 40; i += 1) await askedFor(gateway, { prompt_cache_key: `key ${i}` });
    expect(used()).toBe(4);
    expect(Math.max(...counts())).toBeLessThan(20);
  });

  test('on all replicas, whatever the order of their configuration is', async () => {
    const [one, two] = [await start(), await start({}, [...NAMES].reverse())];
    const key = await one.key();
    for (let i = 0; i < 8; i += 1) {
      const extra = { prompt_cache_key: `key ${i}` };
      expect(await askedFor(two, extra, {}, key)).toBe(await askedFor(one, extra));
    }
  });

  test('by the header of the configuration, which is not forwarded', async () => {
    const gateway = await start({ affinity: { header: 'X-Thread' } });
    const first = await askedFor(gateway, userSays('x'), { 'x-thread': 't' });
    expect(await askedFor(gateway, userSays('y'), { 'x-thread': 't' })).toBe(first);
    expect(upstreams[first]?.requests[0]?.header('x-thread')).toBeUndefined();
  });

  test('of a large body too', async () => {
    const gateway = await start();
    const big = 'x'.repeat(200_000);
    const first = await askedFor(gateway, { ...userSays('first', big), prompt_cache_key: 'k' });
    expect(await askedFor(gateway, { ...userSays('other', `${big}y`), prompt_cache_key: 'k' })).toBe(first);
    const grown = await askedFor(gateway, userSays('begin', big));
    expect(await askedFor(gateway, userSays('begin', big, 'more', big))).toBe(grown);
  });
});

describe('another target is taken', () => {
  test('when that of the key has more than its share, in the order of the key', async () => {
    const gateway = await start();
    const extra = { prompt_cache_key: 'hot' };
    const home = await askedFor(gateway, extra);
    const release = Promise.withResolvers<void>();
    const held: Script = async (c) => {
      await c.waitFor(release.promise);
      await json(200, completion())(c);
    };
    for (const upstream of upstreams) upstream.always(held);
    const clients = await Promise.all(Array.from({ length: 16 }, () => gateway.open(chatRequest(extra))));
    await until(() => counts().reduce((sum, count) => sum + count, 0) === 17, 'all requests');
    // 1.25 times the share of 4 and a margin of 2.
    expect((counts()[home] ?? 0) - 1).toBeLessThanOrEqual(7);
    expect(used()).toBeGreaterThan(2);
    release.resolve();
    for (const client of clients) expect((await client.response()).status).toBe(200);
    for (const client of clients) client.destroy();
    expect(await askedFor(gateway, extra)).toBe(home);
    expect(await gateway.metric('tollgate_affinity_total{result="overflow"}')).toBeGreaterThan(5);
  });

  test('while that of the key is not available; it gets its keys back', async () => {
    const gateway = await start();
    const keys = Array.from({ length: 12 }, (_, index) => ({ prompt_cache_key: `key ${index}` }));
    const homes: number[] = [];
    for (const extra of keys) homes.push(await askedFor(gateway, extra));
    const [gone = 0] = homes;
    upstreams[gone]?.always(json(429, upstreamError('limit'), { 'retry-after': '30' }));
    expect((await gateway.chat(chatRequest(keys[0]))).status).toBe(200);
    for (const [index, extra] of keys.entries()) {
      const target = await askedFor(gateway, extra);
      if (homes[index] === gone) expect(target).not.toBe(gone);
      else expect(target).toBe(homes[index]);
    }
    expect(await gateway.metric('tollgate_affinity_total{result="moved"}')).toBe(
      homes.filter((home) => home === gone).length,
    );
    now += 31_000;
    upstreams[gone]?.always(json(200, completion()));
    for (const [index, extra] of keys.entries()) expect(await askedFor(gateway, extra)).toBe(homes[index]);
  });

  test('of the next priority only when none of the first is left', async () => {
    const gateway = await start({
      targets: NAMES.map((upstream, index) => ({ upstream, model: 'm', priority: index < 2 ? 1 : 2 })),
    });
    for (let i = 0; i < 10; i += 1)
      expect(await askedFor(gateway, { prompt_cache_key: `${i}` })).toBeLessThan(2);
    for (const index of [0, 1]) upstreams[index]?.always(json(500, upstreamError('down')));
    const response = await gateway.chat(chatRequest({ prompt_cache_key: '0' }));
    expect(response.status).toBe(200);
  });
});

describe('encrypted content', () => {
  const sealed = (content: string) => ({
    type: 'reasoning',
    id: 'rs_1',
    summary: [],
    encrypted_content: content,
  });
  const answer = (content: string): object => ({
    id: 'resp_1',
    object: 'response',
    model: 'm',
    store: false,
    status: 'completed',
    output: [
      sealed(content),
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'x' }] },
    ],
    usage: { input_tokens: 3, output_tokens: 5, total_tokens: 8 },
  });
  const event = (type: string, members: object) =>
    `event: ${type}\n${frame({ type, ...members, sequence_number: 0 })}`;
  const events = (content: string) => [
    event('response.created', { response: { ...answer(content), status: 'in_progress', output: [] } }),
    event('response.output_item.done', { output_index: 0, item: sealed(content) }),
    event('response.completed', { response: answer(content) }),
  ];
  /** Content as base64 has it, whose slash some serializers escape. */
  const contentOf = (index: number) => `gAAAA${index}/+${'x'.repeat(2_000)}==`;

  /** The upstream that got the last request, which has this key as its `prompt_cache_key`. */
  async function responded(gateway: Gateway, key: string, body: object, target?: string): Promise<number> {
    const before = counts();
    expect((await respond(gateway, body, key, target)).status).toBe(200);
    return counts().findIndex((count, index) => count > (before[index] ?? 0));
  }

  test.each([['whole'], ['as a stream'], ['compacted']])(
    'goes to the target that made it, on each replica: made %s',
    async (how) => {
      const [one, two] = [await start(), await start({}, [...NAMES].reverse())];
      const key = await one.key();
      const [stream, path] = [
        how === 'as a stream',
        how === 'compacted' ? '/v1/responses/compact' : '/v1/responses',
      ];
      for (const [index, upstream] of upstreams.entries())
        upstream.always(stream ? sse(events(contentOf(index))) : json(200, answer(contentOf(index))));
      const maker = await responded(
        one,
        key,
        { input: 'x', store: false, stream, prompt_cache_key: 'first' },
        path,
      );
      for (const upstream of upstreams) upstream.always(json(200, answer('another')));
      for (let i = 0; i < 6; i += 1) {
        const input = [
          { role: 'user', content: 'x' },
          sealed(contentOf(maker)),
          { role: 'user', content: 'y' },
        ];
        for (const gateway of [one, two])
          expect(await responded(gateway, key, { input, store: false, prompt_cache_key: `other ${i}` })).toBe(
            maker,
          );
      }
      const escaped = JSON.stringify({
        model: 'test-model',
        input: [sealed(contentOf(maker))],
        prompt_cache_key: 'z',
      }).replaceAll('/', '\\/');
      const before = counts()[maker] ?? 0;
      using client = await two.connect();
      await client.send({
        target: '/v1/responses',
        headers: { authorization: `Bearer ${key}` },
        body: escaped,
      });
      expect((await client.response()).status).toBe(200);
      expect(counts()[maker]).toBe(before + 1);
      expect(await two.metric('tollgate_affinity_total{result="maker"}')).toBe(7);
    },
  );

  test('goes to no other target when that one fails', async () => {
    const gateway = await start();
    const key = await gateway.key();
    for (const [index, upstream] of upstreams.entries()) upstream.always(json(200, answer(contentOf(index))));
    const maker = await responded(gateway, key, { input: 'x', store: false });
    upstreams[maker]?.always(json(400, upstreamError('bad', { code: 'invalid_value' })));
    const before = counts();
    const response = await respond(gateway, { input: [sealed(contentOf(maker))] }, key);
    expect(response.status).toBe(400);
    expect(counts()).toEqual(before.map((count, index) => (index === maker ? count + 1 : count)));
  });

  test('that is unknown, or another holder’s, goes by the key', async () => {
    const gateway = await start();
    const [key, other] = [await gateway.key(), await gateway.issueKey()];
    for (const [index, upstream] of upstreams.entries()) upstream.always(json(200, answer(contentOf(index))));
    const maker = await responded(gateway, key, { input: 'x', store: false });
    const targets = new Set<number>();
    for (let i = 0; i < 16; i += 1)
      targets.add(
        await responded(gateway, other, { input: [sealed(contentOf(maker))], prompt_cache_key: `${i}` }),
      );
    expect(targets.size).toBeGreaterThan(1);
    expect(await gateway.metric('tollgate_affinity_total{result="maker"}')).toBe(0);
  });
});

test('a response is continued by the target that made it, and by another one of its upstream when that fails', async () => {
  const targets = [0, 1, 2, 3, 4].map((index) => ({ upstream: 'a', model: `m${index}` }));
  const gateway = await start({ targets });
  const key = await gateway.key();
  let made = 0;
  upstreams[0]?.always(async (c) => {
    made += 1;
    await json(200, {
      id: `resp_${made}${'0'.repeat(20)}`,
      object: 'response',
      model: 'm',
      status: 'completed',
      output: [],
      usage: null,
    })(c);
  });
  const asked = () => Reflect.get(Object(upstreams[0]?.requests.at(-1)?.json()), 'model');
  expect((await respond(gateway, { input: 'x' }, key)).status).toBe(200);
  const maker = asked();
  for (let i = 1; i < 6; i += 1) {
    const body = { input: `turn ${i}`, previous_response_id: `resp_${i}${'0'.repeat(20)}` };
    expect((await respond(gateway, body, key)).status).toBe(200);
    expect(asked()).toBe(maker);
  }
  upstreams[0]?.next(json(429, upstreamError('limit'), { 'retry-after': '30' }));
  expect(
    (await respond(gateway, { input: 'y', previous_response_id: `resp_6${'0'.repeat(20)}` }, key)).status,
  ).toBe(200);
  expect(asked()).not.toBe(maker);
});

test('a form, which has no key, goes by load', async () => {
  const gateway = await start();
  using client = await gateway.connect();
  const boundary = 'xx';
  const body = `--${boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\ntest-model\r\n--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nabc\r\n--${boundary}--\r\n`;
  for (const upstream of upstreams) upstream.always(json(200, { text: 'x' }));
  await client.send({
    target: '/v1/audio/transcriptions',
    headers: {
      authorization: `Bearer ${await gateway.key()}`,
      'content-type': `multipart/form-data; boundary=${boundary}`,
    },
    body,
  });
  expect((await client.response()).status).toBe(200);
});
