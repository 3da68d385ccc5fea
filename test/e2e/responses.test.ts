// Stored responses, by the official SDK over two upstreams and two gateways that share a store: later calls go to the upstream
// that made the response, and only for the holder whose it is.
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { HostileUpstream, json, type Script, type Step, sse } from '../helpers/hostile-upstream.ts';
import { framesOf, inputUsage, responseEvents, responseObject } from '../helpers/recorded.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, field } from './holder.ts';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let replica: Gateway;
let key: string;
let client: OpenAI;
let other: OpenAI;

const clientOf = (of: Gateway, apiKey: string) =>
  new OpenAI({ baseURL: `${of.url}/v1`, apiKey, maxRetries: 0 });
const typed = (frames: readonly string[]): Step => sse(frames, { done: false });

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start();
  const config = (store?: string) => ({
    ...(store === undefined ? {} : { store: `sqlite:${store}` }),
    upstreams: {
      first: { base_url: `${first.baseUrl}?v=1`, api_key: 'credential-of-first' },
      second: { base_url: second.baseUrl, api_key: 'credential-of-second' },
    },
    models: {
      m: {
        targets: [
          { upstream: 'first', model: 'there', priority: 1 },
          { upstream: 'second', model: 'elsewhere', priority: 2 },
        ],
      },
      only: { targets: [{ upstream: 'first', model: 'there' }] },
      scarce: {
        targets: [{ upstream: 'second', model: 'elsewhere' }],
        limits: { Pro: { requests_per_day: 2 } },
      },
    },
    tiers: { Free: { endpoints: ['chat'] }, Pro: { requests_per_day: 100_000 } },
  });
  gateway = await startGateway({ now: fleetingClock(), upstreams: {}, config: config() });
  // The other replica reads the same store, and has its secret.
  const secret = gateway.directory.file('tollgate.db');
  replica = await startGateway({ now: fleetingClock(), upstreams: {}, config: config(secret) });
  key = await gateway.key();
  client = clientOf(gateway, key);
  other = clientOf(gateway, await gateway.issueKey('Pro'));
});
beforeEach(() => {
  for (const upstream of [first, second])
    upstream.always(json(500, { error: { message: 'nobody should ask' } }));
});
afterAll(async () => {
  await replica?.close();
  await gateway?.close();
  await first?.close();
  await second?.close();
});

/** What a promise rejects with, as an error of the SDK. */
async function refusal(promise: PromiseLike<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> {
  const error = await Promise.resolve(promise).then(
    () => new Error('it did not fail'),
    (cause: unknown) => cause,
  );
  if (error instanceof OpenAI.APIError) return error;
  throw error;
}

let count = 0;
/** A response that the second upstream made, because the first one failed. */
async function make(
  script: (id: string) => Script = (id) => json(200, responseObject({ id })),
): Promise<string> {
  count += 1;
  const id = `resp_${count}`;
  second.next(script(id));
  const { id: told } = await client.responses.create({ model: 'm', input: 'x' });
  expect(told).toBe(id);
  return id;
}

const last = (upstream: HostileUpstream) => upstream.request(upstream.requests.length - 1);

describe('a stored response', () => {
  test('is looked at, listed, cancelled and deleted at the upstream that made it', async () => {
    const id = await make();
    const asked = first.requests.length;
    second.next(json(200, responseObject({ id })));
    const found = await client.responses.retrieve(id, { include: ['reasoning.encrypted_content'] });
    expect([found.id, found.model, found.output_text]).toEqual([id, 'm', 'Hello']);
    const request = await last(second);
    expect([request.method, request.target]).toEqual([
      'GET',
      `/v1/responses/${id}?include[]=reasoning.encrypted_content`.replace('[]', '%5B%5D'),
    ]);
    expect([request.header('authorization'), request.header('content-type'), request.body.length]).toEqual([
      'Bearer credential-of-second',
      undefined,
      0,
    ]);
    second.next(json(200, { object: 'list', data: [{ id: 'msg_1', type: 'message' }], has_more: false }));
    const items = await client.responses.inputItems.list(id, { limit: 5 });
    expect(items.data).toHaveLength(1);
    expect((await last(second)).target).toBe(`/v1/responses/${id}/input_items?limit=5`);
    second.next(json(200, responseObject({ id, status: 'cancelled' })));
    expect((await client.responses.cancel(id)).status).toBe('cancelled');
    expect((await last(second)).target).toBe(`/v1/responses/${id}/cancel`);
    second.next(json(200, { id, object: 'response', deleted: true }));
    await client.responses.delete(id);
    expect((await last(second)).method).toBe('DELETE');
    expect(first.requests.length).toBe(asked);
    // It is gone here, too, without asking anybody.
    const before = second.requests.length;
    await until(
      async () => (await refusal(client.responses.retrieve(id))).code === 'response_not_found',
      'it to be forgotten',
    );
    expect(second.requests.length).toBeLessThanOrEqual(before + 1);
  });

  test('counts in the metrics for its model, and for none where there is no response', async () => {
    const outcome = (model: string, upstream: string, code: string) =>
      gateway.metric(
        `tollgate_request_outcomes_total{route="/v1/responses/:id",model="${model}",upstream="${upstream}",outcome="${code}"}`,
      );
    const counts = () =>
      Promise.all([outcome('m', 'second', 'ok'), outcome('none', 'none', 'response_not_found')]);
    const [found, missing] = await counts();
    const id = await make();
    second.next(json(200, responseObject({ id })));
    await client.responses.retrieve(id);
    await refusal(client.responses.retrieve('resp_unknown'));
    await until(async () => String(await counts()) === String([found + 1, missing + 1]), 'both counts');
  });

  test('is nobody else’s: 404, and nobody is asked', async () => {
    const id = await make();
    const before = second.requests.length;
    const calls = [
      () => other.responses.retrieve(id),
      () => other.responses.delete(id),
      () => other.responses.cancel(id),
      () => other.responses.inputItems.list(id),
      () => other.responses.create({ model: 'm', input: 'x', previous_response_id: id }),
      // For a decoder that is blind to case it is the same member.
      () => client.responses.retrieve('resp_unknown'),
      () => client.responses.create({ model: 'm', input: 'x', previous_response_id: 'resp_unknown' }),
    ];
    for (const call of calls) {
      expect(await refusal(call())).toMatchObject({ status: 404, code: 'response_not_found' });
    }
    expect(second.requests.length).toBe(before);
  });

  test('is found by another replica', async () => {
    const id = await make();
    second.next(json(200, responseObject({ id })));
    expect((await clientOf(replica, key).responses.retrieve(id)).id).toBe(id);
  });

  test('that goes on is asked of the upstream that has it, and of no other', async () => {
    const id = await make();
    const asked = first.requests.length;
    second.next(json(200, responseObject({ id: `${id}_2` })));
    await client.responses.create({ model: 'm', input: 'and?', previous_response_id: id });
    expect((await last(second)).body.toString()).toContain(`"previous_response_id":"${id}"`);
    second.next(
      json(503, { error: { message: 'busy' } }),
      json(503, { error: { message: 'busy' } }),
      json(503, { error: { message: 'busy' } }),
    );
    expect(
      await refusal(client.responses.create({ model: 'm', input: 'and?', previous_response_id: id })),
    ).toMatchObject({ status: 503 });
    expect(first.requests.length).toBe(asked);
    expect(
      await refusal(client.responses.create({ model: 'only', input: 'x', previous_response_id: id })),
    ).toMatchObject({
      status: 404,
      code: 'response_not_found',
      param: 'previous_response_id',
    });
  });

  test('that was streamed is found by the id of its first event', async () => {
    count += 1;
    const id = `resp_${count}`;
    const events = responseEvents().map((event) =>
      'response' in event ? { ...event, response: { ...Object(event['response']), id } } : event,
    );
    second.next(typed(framesOf(events)));
    for await (const _ of await client.responses.create({ model: 'm', input: 'x', stream: true }));
    second.next(typed(framesOf(events.slice(5))));
    const again = await client.responses.retrieve(id, { stream: true, starting_after: 4 });
    const types = [];
    for await (const { type } of again) types.push(type);
    expect(types).toEqual(events.slice(5).map(({ type }) => type));
    expect((await last(second)).target).toBe(`/v1/responses/${id}?stream=true&starting_after=4`);
    expect((await last(second)).header('accept')).toBe('text/event-stream');
  });

  test('that failed is told as it is, whole and streamed', async () => {
    const id = await make();
    const failed = responseObject({ id, status: 'failed', error: { code: 'server_error', message: 'oops' } });
    second.next(json(200, failed));
    expect((await client.responses.retrieve(id)).error?.code).toBe('server_error');
    second.next(typed(framesOf([{ type: 'response.failed', response: failed, sequence_number: 0 }])));
    const types = [];
    for await (const { type } of await client.responses.retrieve(id, { stream: true })) types.push(type);
    expect(types).toEqual(['response.failed']);
  });

  test('keeps the configured query, and a client cannot write over it', async () => {
    first.next(json(200, responseObject({ id: 'resp_query' })));
    await client.responses.create({ model: 'only', input: 'x' });
    first.next(json(200, responseObject({ id: 'resp_query' })));
    const target = '/v1/responses/resp_query?v=2&%76=3&limit=1';
    expect((await ask(gateway.url, { method: 'GET', target, headers: bearer(key) })).status).toBe(200);
    expect((await last(first)).target).toBe('/v1/responses/resp_query?v=1&limit=1');
  });

  test.each<[string, object, object]>([
    ['the client did not want stored', { store: false }, {}],
    ['the upstream says that it does not store', {}, { store: false }],
  ])('that %s is not kept', async (_name, asked, told) => {
    count += 1;
    const id = `resp_${count}`;
    second.next(json(200, { ...responseObject({ id }), ...told }));
    await client.responses.create({ model: 'm', input: 'x', ...asked });
    expect(await refusal(client.responses.retrieve(id))).toMatchObject({ code: 'response_not_found' });
  });

  test('a refusal of its upstream is relayed', async () => {
    const id = await make();
    second.next(
      json(404, { error: { message: 'gone', type: 'invalid_request_error', param: null, code: 'x' } }),
    );
    expect(await refusal(client.responses.retrieve(id))).toMatchObject({ status: 404, code: 'x' });
  });

  test('a tier without responses has no stored ones', async () => {
    const free = clientOf(gateway, await gateway.issueKey('Free'));
    expect(await refusal(free.responses.retrieve('resp_1'))).toMatchObject({ code: 'endpoint_not_offered' });
    const options = await ask(gateway.url, {
      method: 'POST',
      target: '/v1/responses/resp_1',
      headers: bearer(key),
      body: {},
    });
    expect([options.status, options.header('allow')]).toEqual([405, 'GET, HEAD, DELETE']);
  });
});

describe('what is counted', () => {
  async function totals(of: string): Promise<Record<string, unknown>> {
    const answer = await ask(gateway.url, { method: 'GET', target: '/admin/usage', headers: bearer(of) });
    const sums = field(answer.json(), 'totals');
    return {
      requests: field(sums, 'requests'),
      prompt: field(sums, 'prompt_tokens'),
      completion: field(sums, 'completion_tokens'),
    };
  }

  test('a look at a response counts as a request, and its tokens are not counted again', async () => {
    const own = await gateway.issueKey('Pro');
    const holder = clientOf(gateway, own);
    second.next(json(200, responseObject({ id: 'resp_counted' })));
    await holder.responses.create({ model: 'm', input: 'x' });
    second.next(json(200, responseObject({ id: 'resp_counted' })));
    await holder.responses.retrieve('resp_counted');
    await until(async () => (await totals(own))['requests'] === 2, 'both to be counted');
    expect(await totals(own)).toEqual({ requests: 2, prompt: 7, completion: 4 });
  });

  test('a look at a response counts in the limits of its model', async () => {
    const holder = clientOf(gateway, await gateway.issueKey('Pro'));
    const answer = json(200, responseObject({ id: 'resp_scarce' }));
    for (const call of [
      () => holder.responses.create({ model: 'scarce', input: 'x' }),
      () => holder.responses.retrieve('resp_scarce'),
    ]) {
      second.next(answer);
      await call();
    }
    const { status, message } = await refusal(holder.responses.retrieve('resp_scarce'));
    expect([status, message]).toEqual([
      429,
      expect.stringContaining('The limit of 2 requests per day of the model is reached.'),
    ]);
  });

  test('a response in the background is counted by the first look that tells its use, and once', async () => {
    const own = await gateway.issueKey('Pro');
    const holder = clientOf(gateway, own);
    const id = 'resp_background';
    second.next(json(200, responseObject({ id, status: 'queued' })));
    await holder.responses.create({ model: 'm', input: 'x'.repeat(400), background: true });
    await until(async () => (await totals(own))['requests'] === 1, 'it to be counted');
    const begun = await totals(own);
    expect(begun['completion']).toBe(0);
    second.next(json(200, responseObject({ id, status: 'in_progress' })));
    await holder.responses.retrieve(id);
    const usage = inputUsage({ input: 1000, output: 50 });
    for (let look = 0; look < 3; look += 1) {
      second.next(json(200, responseObject({ id, usage })));
      await holder.responses.retrieve(id);
    }
    await until(async () => (await totals(own))['requests'] === 5, 'all to be counted');
    expect(await totals(own)).toEqual({ requests: 5, prompt: 1000, completion: 50 });
  });
});

describe('a request', () => {
  const image = (model: string, more: object = {}) =>
    ({ type: 'image_generation', model, ...more }) as OpenAI.Responses.Tool.ImageGeneration;

  test.each<[string, () => OpenAI.Responses.Tool[]]>([
    ['makes images', () => [image('only')]],
    ['makes images, after others', () => [{ type: 'web_search' }, image('m'), image('only')]],
    ['is unknown here', () => [image('vendor-image')]],
    ['draws', () => [{ ...image('m'), svg: { model: 'only' } }]],
  ])('names a model that %s only if its key may use it', async (_, tools) => {
    const terms = { terms: { models: ['m'] } };
    const issued = await gateway.app.issuer.issue({ tier: 'Pro', terms: {}, key: terms });
    const restricted = clientOf(gateway, issued.key.reveal());
    const asked = first.requests.length;
    const create = (by: OpenAI) => by.responses.create({ model: 'm', input: 'x', tools: tools() });
    expect(await refusal(create(restricted))).toMatchObject({ status: 404, code: 'model_not_found' });
    expect(first.requests.length).toBe(asked);
    first.next(json(200, responseObject({ id: `resp_tool_${asked}` })));
    expect((await create(client)).output_text).toBe('Hello');
    first.next(json(200, responseObject({ id: `resp_mine_${asked}` })));
    const own = restricted.responses.create({
      model: 'm',
      input: 'x',
      tools: [image('m'), { type: 'web_search' }],
    });
    expect((await own).output_text).toBe('Hello');
  });

  test('for the beta version of the API says so upstream, and nothing else of its query', async () => {
    const call = async (target: string) => {
      first.next(json(200, responseObject({ id: 'resp_beta' })));
      await ask(gateway.url, {
        target,
        headers: { ...bearer(key), 'openai-beta': 'x=v1' },
        body: { model: 'm', input: 'x' },
      });
      return (await last(first)).target;
    };
    expect(await call('/v1/responses?beta=true')).toBe('/v1/responses?v=1&beta=true');
    expect(await call('/v1/responses/compact?x=1&beta=true&api-version=2')).toBe(
      '/v1/responses/compact?v=1&beta=true',
    );
    expect(await call('/v1/responses/input_tokens?beta=true')).toBe(
      '/v1/responses/input_tokens?v=1&beta=true',
    );
    expect(await call('/v1/responses?api-version=preview')).toBe('/v1/responses?v=1');
    expect((await last(first)).header('openai-beta')).toBe('x=v1');
  });
});
