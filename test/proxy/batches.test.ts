// Batches of routed models: what the input file may name, what the upstream gets of it, and what counts when the output is read.
import OpenAI, { AzureOpenAI, toFile } from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';
import { until } from '../helpers/wait.ts';

const CHAT = '/v1/chat/completions';

let upstream: ObjectsUpstream;
let gateway: Gateway;

/** Another replica, on the same store. */
let replica: Gateway;

beforeAll(async () => {
  upstream = await ObjectsUpstream.start();
  const target = (model: string, name = 'up') => ({ targets: [{ upstream: name, model }] });
  const paths = ['/v1/files', '/v1/batches', '/v1/vector_stores', '/v1/containers'];
  const config = {
    currency: 'EUR',
    upstreams: { up: { base_url: upstream.baseUrl }, demo: { builtin: 'echo' } },
    models: {
      mine: { ...target('theirs'), price: { input: 2, output: 8 } },
      same: { ...target('same'), price: { input: 2, output: 8 } },
      ruled: {
        targets: [
          {
            upstream: 'up',
            model: 'ruled',
            body: {
              refuse: ['service_tier'],
              remove: ['seed'],
              rename: { max_tokens: 'max_completion_tokens' },
              set: { user: 'gateway' },
            },
          },
        ],
      },
      parts: {
        ...target('parts'),
        price: { input: 2, output: 8, cache_write: 3, audio_output: 40, request: 0.01 },
      },
      pictures: { ...target('pictures'), price: { image: 0.04, request: 0.01 } },
      elsewhere: target('echo', 'demo'),
      pro: { ...target('pro'), tiers: ['Pro'] },
      'omni-moderation-latest': target('moderator'),
    },
    passthrough: { upstream: 'up', paths, batch_discount: 25 },
    tiers: { Free: { endpoints: ['chat'] }, Lite: { tokens_per_day: 1_000 }, Pro: {} },
  };
  gateway = await startGateway({ config });
  replica = await startGateway({
    config: { ...config, store: `sqlite:${gateway.directory.file('tollgate.db')}` },
  });
});
beforeEach(() => {
  upstream.intercept = undefined;
});
afterAll(async () => {
  await replica?.close();
  await gateway?.close();
  await upstream?.[Symbol.asyncDispose]();
});

const clientOf = (apiKey: string, { url } = gateway) =>
  new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });
const line = (model: string, extra = '') =>
  `{"custom_id":"1","method":"POST","url":"${CHAT}","body":{"model":"${model}","messages":[]${extra}}}`;
const upload = async (client: OpenAI, text: string) =>
  (await client.files.create({ file: await toFile(Buffer.from(text), 'a.jsonl'), purpose: 'batch' })).id;

async function create(client: OpenAI, text: string, endpoint = CHAT) {
  const input = await upload(client, text);
  const batch = await client.batches.create({
    input_file_id: input,
    endpoint: endpoint as '/v1/chat/completions',
    completion_window: '24h',
  });
  return { input, batch };
}

/** What the input file of a batch holds at the upstream. */
const sentOf = (id: string): string => upstream.contents.get(id)?.toString() ?? '';

async function totals(key: string) {
  for (const { app } of [gateway, replica]) await until(() => app.inFlight === 0, 'the end of the requests');
  const response = await fetch(`${gateway.url}/admin/usage`, { headers: { authorization: `Bearer ${key}` } });
  return JSON.parse(await response.text());
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => 'it did not fail',
    ({ status, code }: { status: number; code: string }) => [status, code],
  );

describe('the input file', () => {
  test('is sent with the name of the model at the upstream, and otherwise byte for byte', async () => {
    const client = clientOf(await gateway.issueKey('Pro'));
    const lines = [
      line('mine'),
      ' { "custom_id" : "2" , "body" : { "messages" : [ "\\u00fc", 1.50 ] , "model" : "mine" , "x": {"model":"mine"} } } ',
      '{"body":{"m\\u006fdel":"m\\u0069ne","metadata":{"model":"mine"}},"custom_id":"3"}',
    ];
    const { input, batch } = await create(client, `${lines.join('\r\n')}\n\n`);
    const sent = batch.input_file_id;
    expect(sent).not.toBe(input);
    const expected = [
      lines[0]?.replace('"mine"', '"theirs"'),
      lines[1]?.replace('"model" : "mine"', '"model" : "theirs"'),
      lines[2]?.replace('"m\\u0069ne"', '"theirs"'),
    ];
    expect(sentOf(sent).replaceAll('\r', '')).toBe(`${expected.join('\n')}\n`);
    expect(sentOf(input)).toContain('"mine"');
    expect(await client.files.retrieve(sent)).toMatchObject({ purpose: 'batch' });
    const other = clientOf(await gateway.issueKey('Pro'));
    expect(await failure(other.files.retrieve(sent))).toEqual([404, 'object_not_found']);
  });

  test('is the original where the name is the same', async () => {
    const { input, batch } = await create(clientOf(await gateway.issueKey('Pro')), line('same'));
    expect(batch.input_file_id).toBe(input);
  });

  test('is changed by the body rules of the target, also under the same name', async () => {
    const client = clientOf(await gateway.issueKey('Pro'));
    const { batch } = await create(client, line('ruled', ',"seed":1,"max_tokens":5,"top_p":1.0'));
    const { body } = JSON.parse(sentOf(batch.input_file_id));
    expect(body).toEqual({
      model: 'ruled',
      messages: [],
      max_completion_tokens: 5,
      top_p: 1,
      user: 'gateway',
    });
  });

  test('may leave out the model where the endpoint has a default, which is routed', async () => {
    const client = clientOf(await gateway.issueKey('Pro'));
    const { batch } = await create(client, '{"body":{"input":"a"}}\n{"body":{}}', '/v1/moderations');
    expect(sentOf(batch.input_file_id)).toBe(
      '{"body":{"input":"a","model":"moderator"}}\n{"body":{"model":"moderator"}}\n',
    );
  });

  test('of several thousand lines is rewritten while it is sent', async () => {
    const client = clientOf(await gateway.issueKey('Pro'));
    const lines = Array.from({ length: 3_000 }, (_, index) =>
      line('mine', `,"n${index}":"${'x'.repeat(100)}"`),
    );
    const { batch } = await create(client, lines.join('\n'));
    const form = upstream.asked.findLast(({ method, url }) => method === 'POST' && url === '/v1/files');
    const sent = lines.map((each) => `${each.replace('"mine"', '"theirs"')}\n`).join('');
    expect(form?.bytes).toBeGreaterThan(sent.length);
    expect(sentOf(batch.input_file_id)).toBe(sent);
  });

  test.each<
    [what: string, text: string, status: number, code: string, endpoint?: string, tier?: 'Free' | 'Lite']
  >([
    ['an unknown model', line('nobodys'), 404, 'model_not_found'],
    ['a model of another tier', line('pro'), 404, 'model_not_found', CHAT, 'Lite'],
    [
      'an endpoint of another tier',
      '{"body":{"model":"mine"}}',
      404,
      'endpoint_not_offered',
      '/v1/embeddings',
      'Free',
    ],
    ['a model of another upstream', line('elsewhere'), 404, 'endpoint_not_offered'],
    ['several models', `${line('mine')}\n${line('same')}`, 400, 'invalid_value'],
    [
      'another model in the last line',
      `${line('mine')}\n${line('mine')}\n${line('pro')}`,
      400,
      'invalid_value',
    ],
    ['no model', '{"body":{"messages":[]}}', 400, 'missing_required_parameter'],
    [
      'a member that a rule refuses',
      `${line('ruled')}\n${line('ruled', ',"Service_tier":"priority"')}`,
      400,
      'unsupported_parameter',
    ],
    ['two models in a line', '{"body":{"model":"mine","model":"pro"}}', 400, 'duplicate_parameter'],
    ['another spelling of the model', '{"body":{"Model":"pro","model":"mine"}}', 400, 'duplicate_parameter'],
    ['two bodies', '{"body":{"model":"mine"},"body":{"model":"pro"}}', 400, 'duplicate_parameter'],
    ['another spelling of the body', '{"Body":{"model":"mine"}}', 400, 'invalid_value'],
    ['no body', '{"model":"mine"}', 400, 'invalid_value'],
    ['a body that is a text', '{"body":"mine"}', 400, 'invalid_body'],
    ['no lines', '\n \n', 400, 'invalid_value'],
    ['no JSON', `${line('mine')}\n{"body":`, 400, 'invalid_json'],
    ['another endpoint in a line', '{"url":"/v1/responses","body":{"model":"mine"}}', 400, 'invalid_value'],
    ['a URL that is no text', '{"url":5,"body":{"model":"mine"}}', 400, 'invalid_value'],
    [
      'two URLs in a line',
      '{"url":"/v1/chat/completions","url":"/v1/responses","body":{"model":"mine"}}',
      400,
      'duplicate_parameter',
    ],
    ['an unknown endpoint', line('mine'), 400, 'invalid_value', '/v1/files'],
  ])('with %s makes no batch', async (_what, text, status, code, endpoint = CHAT, tier) => {
    const client = clientOf(await gateway.issueKey(tier ?? 'Pro'));
    upstream.asked.length = 0;
    expect(await failure(create(client, text, endpoint))).toEqual([status, code]);
    // The upload itself, and the read of the file.
    expect(upstream.asked.filter(({ method }) => method === 'POST').map(({ url }) => url)).toEqual([
      '/v1/files',
    ]);
  });

  test('of a restricted key may name its models and no others', async () => {
    const { key } = await gateway.app.issuer.issue({
      tier: 'Pro',
      terms: {},
      key: { terms: { models: ['mine'] } },
    });
    const client = clientOf(key.reveal());
    expect((await create(client, line('mine'))).batch.id).toMatch(/^batch_/);
    expect(await failure(create(client, line('same')))).toEqual([404, 'model_not_found']);
  });
});

describe('the output file', () => {
  const usage = {
    prompt_tokens: 400,
    completion_tokens: 100,
    total_tokens: 500,
    prompt_tokens_details: { cached_tokens: 40 },
  };
  const answer = (body: object, status_code = 200) =>
    JSON.stringify({
      id: 'r',
      custom_id: '1',
      response: { status_code, request_id: 'q', body },
      error: null,
    });
  const OUTPUT = [
    answer({ model: 'theirs-2030', choices: [], usage }),
    answer({ model: 'theirs-2030', usage: { input_tokens: 50, output_tokens: 50, total_tokens: 100 } }),
    JSON.stringify({ id: 'r', custom_id: '3', response: null, error: { code: 'batch_expired' } }),
  ].join('\n');

  /** A batch that has ended, of a new holder. */
  async function ended(tier: 'Lite' | 'Pro', output = OUTPUT, model = 'mine', endpoint = CHAT) {
    const key = await gateway.issueKey(tier);
    const client = clientOf(key);
    const { batch } = await create(client, line(model).replace(CHAT, endpoint), endpoint);
    const file = upstream.put('files', { object: 'file' });
    upstream.contents.set(file, Buffer.from(output));
    upstream.things.set(batch.id, { ...upstream.things.get(batch.id), id: batch.id, output_file_id: file });
    return { key, client, batch, file };
  }

  test('counts its tokens when it is first read, with the discount, for the model', async () => {
    const { key, client, batch, file } = await ended('Pro');
    expect((await client.batches.retrieve(batch.id)).output_file_id).toBe(file);
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 0, cost: null });
    const reads = await Promise.all([client.files.content(file), client.files.content(file)]);
    for (const read of [...reads, await client.files.content(file)]) expect(await read.text()).toBe(OUTPUT);
    const { totals: sums, days } = await totals(key);
    expect(sums).toMatchObject({
      prompt_tokens: 450,
      completion_tokens: 150,
      cost: (450 * 2 + 150 * 8) * 0.75 * 1e-6,
    });
    expect(JSON.stringify(days)).toContain('"mine"');
  });

  test.each<[how: string, read: (client: OpenAI, file: string, key: string) => Promise<unknown>]>([
    [
      'by range',
      async (client, file) => {
        const headers = { range: 'bytes=0-9' };
        expect(await (await client.files.content(file, { headers })).text()).toBe(OUTPUT);
      },
    ],
    [
      'as JSON, and without a body',
      async (_client, file, key) => {
        const url = `${gateway.url}/v1/files/${file}/content`;
        const headers = { authorization: `Bearer ${key}`, accept: 'application/json' };
        expect((await fetch(url, { method: 'HEAD', headers })).status).toBe(200);
        expect(await (await fetch(`${url}?a=b`, { headers })).text()).toBe(OUTPUT);
      },
    ],
    [
      "by Azure's client",
      async (_, file, apiKey) => {
        const client = new AzureOpenAI({ endpoint: gateway.url, apiKey, apiVersion: '2025-04-01-preview' });
        expect(await (await client.files.content(file)).text()).toBe(OUTPUT);
      },
    ],
    [
      'by another replica, and at once',
      async (client, file, key) => {
        const reads = [client, clientOf(key, replica), client, clientOf(key, replica)];
        const texts = reads.map(async (each) => (await each.files.content(file)).text());
        expect(await Promise.all(texts)).toEqual(Array(4).fill(OUTPUT));
      },
    ],
    [
      'when it becomes part of a vector store',
      (client, file) => client.vectorStores.create({ file_ids: [file] }),
    ],
    [
      'when it becomes part of a container',
      (client, file) => client.containers.create({ name: 'a', file_ids: [file] }),
    ],
    [
      'after a read that failed, and one that broke off',
      async (client, file) => {
        upstream.intercept = (request, response) => {
          if (request.url?.endsWith('/content') !== true) return false;
          response.writeHead(500).end('{}');
          return true;
        };
        expect(await failure(client.files.content(file))).toEqual([500, 'upstream_error']);
        upstream.intercept = (request, response) => {
          if (request.url?.endsWith('/content') !== true) return false;
          response.writeHead(200, { 'content-length': OUTPUT.length }).write(OUTPUT.slice(0, 99));
          setImmediate(() => response.destroy());
          return true;
        };
        const broken = await client.files.content(file);
        await expect(broken.text()).rejects.toThrow();
        upstream.intercept = undefined;
        await client.files.content(file);
      },
    ],
  ])('counts once when it is read %s', async (_how, read) => {
    const { key, client, batch, file } = await ended('Pro');
    await client.batches.retrieve(batch.id);
    await read(client, file, key);
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 450, completion_tokens: 150 });
    await clientOf(key, replica).batches.retrieve(batch.id);
    await (await clientOf(key, replica).files.content(file)).text();
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 450, completion_tokens: 150 });
  });

  test('counts no errors, in a file of their own or among answers', async () => {
    const failed = answer({ error: { message: 'x'.repeat(400), code: 'invalid_value' } }, 400);
    const text = `{"response":{"body":{"a":"${'x'.repeat(400)}"},"status_code": 500}}`;
    const { key, client, batch, file } = await ended('Pro', [OUTPUT, failed, text].join('\n'));
    const errors = upstream.put('files', { object: 'file' });
    upstream.contents.set(errors, Buffer.from(failed));
    const thing = { ...upstream.things.get(batch.id), id: batch.id, error_file_id: errors };
    upstream.things.set(batch.id, thing);
    await client.batches.retrieve(batch.id);
    expect(await (await client.files.content(errors)).text()).toBe(failed);
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 0, completion_tokens: 0 });
    await (await client.files.content(file)).text();
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 450, completion_tokens: 150 });
  });

  test('counts for the limits, and a holder without tokens makes no batch, but reads what there is', async () => {
    const { key, client, batch, file } = await ended(
      'Lite',
      answer({ usage: { ...usage, completion_tokens: 700, total_tokens: 1100 } }),
    );
    await client.batches.retrieve(batch.id);
    const before = await create(client, line('mine'));
    expect(before.batch.id).toMatch(/^batch_/);
    await (await client.files.content(file)).text();
    await totals(key);
    expect(await failure(create(client, line('mine')))).toEqual([429, 'rate_limit_exceeded']);
    expect((await (await client.files.content(file)).text()).length).toBeGreaterThan(0);
  });

  /** The totals of a new holder that has read this output. */
  async function totalsOf(output: readonly string[], model: string, endpoint = CHAT) {
    const { key, client, batch, file } = await ended('Pro', output.join('\n'), model, endpoint);
    await client.batches.retrieve(batch.id);
    await (await client.files.content(file)).text();
    return (await totals(key)).totals;
  }

  test('costs what its requests, cache writes and sound cost', async () => {
    const details = {
      prompt_tokens_details: { cache_write_tokens: 100 },
      completion_tokens_details: { audio_tokens: 60 },
    };
    const one = answer({ choices: [], usage: { ...usage, ...details } });
    const expected = 2 * (300 * 2 + 100 * 3 + 40 * 8 + 60 * 40 + 10_000) * 0.75 * 1e-6;
    const { cost } = await totalsOf([one, one, answer({ error: {} }, 400)], 'parts');
    expect(cost).toBeCloseTo(expected, 12);
  });

  test('costs what its images cost, and counts them like those of a request', async () => {
    const picture = answer({ created: 1, data: [{ b64_json: 'A'.repeat(40_000) }, { b64_json: 'A' }] });
    const sums = await totalsOf([picture, picture], 'pictures', '/v1/images/generations');
    expect(sums).toMatchObject({ prompt_tokens: 0, completion_tokens: 4_000 });
    expect(sums.cost).toBeCloseTo((4 * 0.04 + 2 * 0.01) * 0.75, 12);
  });

  test('may use more tokens than one answer can', async () => {
    const one = answer({ choices: [], usage: { ...usage, prompt_tokens: 9e8, total_tokens: 900_000_100 } });
    const sums = await totalsOf([one, one, one], 'mine');
    expect(sums).toMatchObject({ prompt_tokens: 27e8, completion_tokens: 300 });
    expect(sums.cost).toBeCloseTo(3 * (900 * 2 + 100 * 8e-6) * 0.75, 6);
  });

  test('without usage is estimated by its bytes', async () => {
    const { key, client, batch, file } = await ended('Pro', answer({ text: 'x'.repeat(388) }), 'same');
    await client.batches.list();
    expect((await client.batches.retrieve(batch.id)).output_file_id).toBe(file);
    await (await client.files.content(file)).text();
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 0, completion_tokens: 100 });
  });

  test('of another holder is not found, and other files count nothing', async () => {
    const { client, batch, file } = await ended('Pro');
    await client.batches.retrieve(batch.id);
    const key = await gateway.issueKey('Pro');
    expect(await failure(clientOf(key).files.content(file))).toEqual([404, 'object_not_found']);
    const own = await upload(clientOf(key), OUTPUT);
    await (await clientOf(key).files.content(own)).text();
    expect((await totals(key)).totals).toMatchObject({ prompt_tokens: 0 });
  });
});
