// What of a client's request reaches an upstream: its bytes except the model, and none of its credentials.
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json } from '../helpers/hostile-upstream.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  const target = (model: string) => ({ targets: [{ upstream: 'up', model }] });
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: {
      upstreams: { plain: { base_url: upstream.baseUrl, stream_usage: 'off' } },
      models: {
        'test-model': target('upstream-model'),
        m: target('a-much-longer-name-than-the-one-that-was-asked-for'),
        'a/rather/long:public-name': target('s'),
        same: target('same'),
        'quo"te\\é😀': target('other "name" \\ é😀'),
        plain: { targets: [{ upstream: 'plain', model: 'plain-upstream' }] },
      },
    },
  });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

/** Sends the body and returns what the upstream got for it. */
async function reaches(body: string | Buffer, headers: Record<string, string> = {}) {
  const index = upstream.requests.length;
  const response = await gateway.chat(body, { headers });
  expect(response.status, response.text()).toBe(200);
  return await upstream.request(index);
}

describe('the body that the upstream gets', () => {
  const withModel = (model: string) => `{"model":${model},"messages":[{"role":"user","content":"x"}]}`;

  test.each([
    [
      'unknown fields',
      '{"model":"test-model","x_new":{"a":[1,{"b":null}]},"messages":[{"role":"user","content":[{"type":"text","text":"t","cache_control":{"type":"ephemeral"}}],"unknown":1}],"tools":[{"type":"function","function":{"name":"f"},"extra":true}],"response_format":{"type":"json_schema","json_schema":{"name":"n","y":1}}}',
    ],
    [
      'zeros, false, empty and null',
      '{"model":"test-model","messages":[],"temperature":0,"top_p":0,"seed":0,"n":1,"logprobs":false,"stop":[],"tools":[],"user":"","max_tokens":null,"tool_choice":null}',
    ],
    [
      'numbers in every spelling',
      '{"seed":9223372036854775807,"logit_bias":{"50256":-100},"maximum":12345678901234567890,"a":1.0,"b":1e3,"c":-0,"d":0.1000000000000000055,"e":1E+2,"model":"test-model","f":123456789012345678901234567890e-400}',
    ],
    [
      'keys that look like indexes, in their order',
      '{"messages":[],"schema":{"10":1,"2":2,"1":3},"model":"test-model","9":0,"1":0}',
    ],
    [
      'white space of every kind',
      ' \r\n\t{ "messages" :\t[ ] ,\r\n  "model"\n:\t"test-model"  , "a" : { } }\n\r ',
    ],
    [
      'escapes as they were written',
      '{"model":"test-model","messages":[{"role":"user","content":"\\u0041\\/\\u00e9é\\ud83d\\ude00😀\\b\\f\\n\\r\\t\\\\\\""}]}',
    ],
    [
      'lone surrogates',
      '{"messages":[{"role":"user","content":"\\ud800 \\udfff \\uD83D"}],"model":"test-model"}',
    ],
    [
      'nested models and a model in a string',
      '{"messages":[{"model":"inner","content":"\\"model\\":\\"test-model\\""}],"metadata":{"model":"m"},"model":"test-model"}',
    ],
    [
      'stream false, with stream_options null',
      '{"model":"test-model","messages":[],"stream":false,"stream_options":null}',
    ],
    ['a key __proto__', '{"__proto__":{"a":1},"constructor":null,"model":"test-model","messages":[]}'],
    ['an escaped spelling of the key', '{"mod\\u0065l":"test-model","messages":[]}'],
    ['an escaped spelling of the value', '{"model":"t\\u0065st-mod\\u0065l","messages":[]}'],
  ])('keeps %s', async (_name, body) => {
    const request = await reaches(body);
    const spelled = body.includes('t\\u0065st') ? '"t\\u0065st-mod\\u0065l"' : '"test-model"';
    const at = body.lastIndexOf(spelled);
    const expected = `${body.slice(0, at)}"upstream-model"${body.slice(at + spelled.length)}`;
    expect(request.body.toString()).toBe(expected);
  });

  test.each([
    ['longer', 'm', '"a-much-longer-name-than-the-one-that-was-asked-for"'],
    ['shorter', 'a/rather/long:public-name', '"s"'],
    ['the same', 'same', '"same"'],
    ['in need of escapes', 'quo"te\\é😀', JSON.stringify('other "name" \\ é😀')],
  ])(
    'has the right length when the name is %s, sent with a length and in chunks',
    async (_name, model, token) => {
      const body = withModel(JSON.stringify(model));
      for (const chunked of [false, true]) {
        const index = upstream.requests.length;
        using client = await gateway.connect();
        const headers = {
          authorization: `Bearer ${await gateway.key()}`,
          'content-type': 'application/json',
        };
        if (chunked) {
          const bytes = Buffer.from(body);
          await client.send({ headers: { ...headers, 'transfer-encoding': 'chunked' }, body: '' });
          for (const part of [bytes.subarray(0, 5), bytes.subarray(5, 14), bytes.subarray(14)]) {
            await client.write(`${part.length.toString(16)}\r\n`);
            await client.segments([part, '\r\n']);
          }
          await client.write('0\r\nx-trailer: dropped\r\n\r\n');
        } else await client.send({ headers, body });
        expect((await client.response()).status).toBe(200);
        const request = await upstream.request(index);
        expect(request.body.toString()).toBe(withModel(token));
        expect(request.header('content-length')).toBe(String(Buffer.byteLength(withModel(token))));
        expect([request.framing, request.header('transfer-encoding'), request.header('x-trailer')]).toEqual([
          'length',
          undefined,
          undefined,
        ]);
      }
    },
  );

  test('is the same for the same request', async () => {
    const body = '{"tools":[{"b":1,"a":{"10":1,"2":2}}],"model":"test-model","messages":[]}';
    const [one, two] = [await reaches(body), await reaches(body)];
    expect(two.body).toEqual(one.body);
  });

  test('comes decoded from a compressed one', async () => {
    const body = '{"model":"test-model","messages":[],"seed":9223372036854775807}';
    const request = await reaches(gzipSync(body), { 'content-encoding': 'gzip' });
    expect(request.body.toString()).toBe(body.replace('test-model', 'upstream-model'));
    expect(request.header('content-encoding')).toBeUndefined();
  });

  test('of five megabytes is whole', async () => {
    const body = `{"messages":[{"role":"user","content":"${'x😀'.repeat(1_000_000)}"}],"model":"m"}`;
    const request = await reaches(body);
    expect(request.body.length).toBe(Buffer.byteLength(body) - 3 + 52);
    expect(
      request.body.subarray(0, -60).equals(Buffer.from(body).subarray(0, request.body.length - 60)),
    ).toBe(true);
  });

  describe('of a stream asks for usage', () => {
    const tail = '"messages":[],"model":"test-model"}';
    const sent = '"messages":[],"model":"upstream-model"}';
    test.each([
      [
        'where there are no options',
        `{"stream":true,${tail}`,
        `{"stream":true,"messages":[],"model":"upstream-model","stream_options":{"include_usage":true}}`,
      ],
      [
        'where it was refused',
        `{"stream_options":{"include_usage":false},"stream":true,${tail}`,
        `{"stream_options":{"include_usage":true},"stream":true,${sent}`,
      ],
      [
        'in empty options',
        `{"stream_options":{ },"stream":true,${tail}`,
        `{"stream_options":{"include_usage":true },"stream":true,${sent}`,
      ],
      [
        'beside other options',
        `{"stream_options":{"continuous_usage_stats":true,"x":[1.0]},"stream":true,${tail}`,
        `{"stream_options":{"include_usage":true,"continuous_usage_stats":true,"x":[1.0]},"stream":true,${sent}`,
      ],
      [
        'where the options are null',
        `{"stream_options":null,"stream":true,${tail}`,
        `{"stream_options":{"include_usage":true},"stream":true,${sent}`,
      ],
      [
        'and changes nothing where the client did',
        `{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"stream":true,${tail}`,
        `{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"stream":true,${sent}`,
      ],
    ])('%s', async (_name, body, expected) => {
      expect((await reaches(body)).body.toString()).toBe(expected);
    });

    test('and not where the upstream is set to `off`', async () => {
      const request = await reaches('{"stream":true,"messages":[],"model":"plain"}');
      expect(request.body.toString()).toBe('{"stream":true,"messages":[],"model":"plain-upstream"}');
    });
  });

  test('differs from the client’s in the model alone, for any JSON', async () => {
    const runs = Math.min(Number(process.env['FUZZ_RUNS'] ?? 60), 2_000);
    const space = fc.constantFrom('', ' ', '\n', '\t', ' \r\n ');
    const value = fc.json({ maxDepth: 4 });
    const key = fc
      .string({ unit: 'grapheme' })
      // What the gateway reads has a meaning and a type of its own.
      .filter((name) => !/^(model|stream|stream_options|max_(completion_)?tokens|n)$/iu.test(name));
    const members = fc.array(fc.tuple(key, value, space, space), { maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(members, members, space, async (before, after, pad) => {
        const write = (all: typeof before) =>
          all.map(([name, text, a, b]) => `${JSON.stringify(name)}${a}:${b}${text}`);
        const text = (model: string) =>
          `${pad}{${[...write(before), `"model"${pad}:${JSON.stringify(model)}`, ...write(after)].join(`${pad},`)}}`;
        const request = await reaches(text('m'));
        expect(request.body.toString()).toBe(text('a-much-longer-name-than-the-one-that-was-asked-for'));
      }),
      { numRuns: runs },
    );
  });
});

describe('the headers that the upstream gets', () => {
  test('are its own host, credential and length, and no others than those allowed', async () => {
    const key = await gateway.key();
    const request = await reaches(JSON.stringify(chatRequest()), {
      'api-key': key,
      'x-api-key': key,
      cookie: 'session=client-secret-3',
      'proxy-authorization': 'Basic client-secret-4',
      'x-forwarded-for': '10.1.2.3',
      'x-forwarded-host': 'evil',
      'x-forwarded-proto': 'http',
      forwarded: 'for=10.1.2.3',
      'x-real-ip': '10.1.2.3',
      'cf-visitor': 'x',
      'openai-organization': 'org-client',
      'openai-project': 'proj-client',
      connection: 'keep-alive, x-foo, openai-beta',
      'x-foo': '1',
      'openai-beta': 'named-in-connection',
      te: 'trailers',
      'keep-alive': '5',
      'proxy-connection': 'x',
      'user-agent': 'client/1',
      'accept-encoding': 'gzip, br',
      accept: '*/*',
      'x-stainless-os': 'Linux',
      'x-client-request-id': 'mine-1',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
    const fields = Object.fromEntries(request.headers.map(([name, value]) => [name.toLowerCase(), value]));
    expect(fields).toEqual({
      host: `127.0.0.1:${upstream.port}`,
      connection: 'keep-alive',
      'content-type': 'application/json',
      'accept-encoding': 'identity',
      'user-agent': expect.stringMatching(/^tollgate\//),
      authorization: 'Bearer credential-of-up',
      accept: 'application/json',
      'x-request-id': expect.stringMatching(/^req_/),
      'x-client-request-id': 'mine-1',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      'content-length': String(request.body.length),
    });
    expect(request.rawHead.toString('latin1')).not.toMatch(/client-secret|evil|10\.1\.2\.3/);
    expect(request.rawHead.includes(key)).toBe(false);
    expect(request.target).toBe('/v1/chat/completions');
  });

  test('name the host of the upstream and not the client’s', async () => {
    using client = await gateway.connect();
    const index = upstream.requests.length;
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    expect((await client.ask({ host: 'evil.example', headers, body: chatRequest() })).status).toBe(200);
    expect((await upstream.request(index)).header('host')).toBe(`127.0.0.1:${upstream.port}`);
  });

  test('ask for a stream where the client does', async () => {
    const request = await reaches(JSON.stringify(chatRequest({ stream: true })));
    expect(request.header('accept')).toBe('text/event-stream');
  });

  test('carry what the configuration sets, over everything else, and its path and query', async () => {
    await using other = await HostileUpstream.start(json(200, { id: 'x', choices: [] }));
    await using azure = await startGateway({
      config: {
        upstreams: {
          azure: {
            base_url: `${other.url}/openai/deployments/dep%20loy/?a=b%2Fc`,
            headers: { 'Api-Key': 'azure-key', 'User-Agent': 'own/1' },
            query: { 'api-version': '2024-10-21' },
          },
        },
        models: { 'test-model': { targets: [{ upstream: 'azure', model: 'x' }] } },
      },
    });
    using client = await azure.connect();
    const headers = { authorization: `Bearer ${await azure.key()}` };
    const target = '/v1/chat/completions?api-version=client';
    expect((await client.ask({ target, headers, body: chatRequest() })).status).toBe(200);
    const request = await other.request(0);
    expect(request.target).toBe(
      '/openai/deployments/dep%20loy/chat/completions?a=b%2Fc&api-version=2024-10-21',
    );
    expect([
      request.header('api-key'),
      request.header('authorization'),
      request.header('user-agent'),
    ]).toEqual(['azure-key', undefined, 'own/1']);
  });
});
