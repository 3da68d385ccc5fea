// Body rules: members found in any spelling, in small and in large bodies, and spliced without a change to anything else.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { READ_MEMBERS } from '../../src/config/schema/body-rules.ts';
import { MODEL_ENDPOINTS } from '../../src/proxy/endpoints/form-endpoints.ts';
import { FORM_TYPE, field, file, formBytes, noise } from '../helpers/forms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { HostileUpstream, json } from '../helpers/hostile-upstream.ts';

const ANSWER = json(200, {
  id: 'c',
  object: 'chat.completion',
  model: 'there',
  choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
});

let router: HostileUpstream;
let plain: HostileUpstream;
let gateway: Gateway;
let key: string;

beforeAll(async () => {
  router = await HostileUpstream.start(ANSWER);
  plain = await HostileUpstream.start(ANSWER);
  const body = {
    refuse: ['models', 'provider', 'extra.api_base', 'background'],
    remove: ['service_tier', 'user', 'metadata.tags'],
  };
  gateway = await startGateway({
    config: {
      upstreams: {
        router: { base_url: router.baseUrl, body },
        renamed: { base_url: router.baseUrl, send_model: false, body },
        plain: { base_url: plain.baseUrl },
        broken: { base_url: 'http://127.0.0.1:9/v1' },
      },
      models: {
        m: { targets: [{ upstream: 'router', model: 'there' }] },
        deployed: { targets: [{ upstream: 'renamed', model: 'there' }] },
        open: { targets: [{ upstream: 'plain', model: 'open' }] },
        narrow: {
          targets: [{ upstream: 'plain', model: 'narrow' }],
          body: { refuse: ['temperature'], remove: ['seed'] },
        },
        'some/*': { targets: [{ upstream: 'router', model: '*' }] },
        both: {
          targets: [
            { upstream: 'plain', model: 'x', priority: 1 },
            { upstream: 'router', model: 'x', priority: 2 },
          ],
        },
        lost: {
          targets: [
            { upstream: 'broken', model: 'x', priority: 1 },
            { upstream: 'router', model: 'x', priority: 2 },
          ],
        },
        changed: {
          targets: [
            {
              upstream: 'plain',
              model: 'changed',
              body: {
                rename: { max_tokens: 'max_completion_tokens', effort: 'reasoning.effort' },
                set: { temperature: 1, 'reasoning.summary': 'auto', 'metadata.a\\.b': [1, { c: null }] },
                default: { service_tier: 'flex', max_completion_tokens: 500 },
                remove: ['stream_options'],
              },
            },
          ],
        },
        painter: {
          targets: [
            {
              upstream: 'plain',
              model: 'painter',
              body: {
                rename: { size: 'dimensions', lang: 'languages' },
                set: { quality: 'high', extra: { a: [1] } },
                default: { background_fill: 2, user: 'team' },
                remove: ['style', 'reasoning.effort'],
              },
            },
          ],
        },
        'dall-e-2': { targets: [{ upstream: 'router', model: 'painter' }] },
      },
    },
  });
  key = await gateway.key();
});
afterAll(async () => {
  await gateway?.close();
  await router?.close();
  await plain?.close();
});

async function post(body: string | Buffer, path = 'chat/completions', type = 'application/json') {
  const answer = await fetch(`${gateway.url}/v1/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': type },
    body: new Uint8Array(Buffer.from(body)),
  });
  const text = await answer.text();
  return { status: answer.status, error: text.startsWith('{"error"') ? JSON.parse(text).error : undefined };
}

/** The next request of an upstream, complete. */
const nextOf = (upstream: HostileUpstream) => upstream.request(upstream.requests.length);

const fill = (size: number) => `"messages":[{"role":"user","content":"${'word '.repeat(size / 5)}"}]`;

describe.each([
  ['a small body', 100],
  ['a large body', 400_000],
])('in %s', (_, size) => {
  test.each([
    ['m', '"models":["a","b"]', 'models'],
    ['m', '"Models":[]', 'models'],
    ['m', '"mode\\u006c\\u017f":1', 'models'],
    ['m', '"pro-vider":{}', 'provider'],
    ['m', '"provider":1,"provider":2', 'provider'],
    ['m', '"extra":{"x":[{}],"apiBase":"http://x"}', 'extra.api_base'],
    ['m', '"background":false', 'background'],
    ['some/model', '"models":[]', 'models'],
    ['both', '"models":[]', 'models'],
    ['narrow', '"temperature":1', 'temperature'],
  ])('%s refuses %s', async (model, member, param) => {
    for (const body of [
      `{"model":"${model}",${member},${fill(size)}}`,
      `{${fill(size)},${member},"model":"${model}"}`,
    ]) {
      const { status, error } = await post(body);
      expect([status, error.code, error.param], error.message).toEqual([400, 'unsupported_parameter', param]);
      expect(error.message).toContain(`'${param}'`);
    }
  });

  test.each([
    ['open', '"models":["a"],"service_tier":"flex","temperature":1'],
    ['m', '"temperature":1,"mode":1,"extra":{"y":{"api_base":1}},"metadata":{"provider":1,"models":2}'],
    ['m', '"extra":[{"api_base":1}],"tools":[{"models":1}]'],
  ])('%s takes %s', async (model, member) => {
    const [before, upstream] = [
      `{"model":"${model}",${member},${fill(size)}}`,
      model === 'm' ? router : plain,
    ];
    const coming = nextOf(upstream);
    expect((await post(before)).status).toBe(200);
    expect((await coming).body.toString()).toBe(before.replace('"model":"m"', '"model":"there"'));
  });

  test.each([
    ['m', '"service_tier":"flex","user":"u",', ''],
    ['m', '"Service-Tier" : {"a":[1,2]} ,', ''],
    ['m', '"metadata":{"tags":[1],"a":2},', '"metadata":{"a":2},'],
    ['m', '"metadata": { "a":2 , "tags":[1] },', '"metadata": { "a":2  },'],
    ['m', '"metadata":{"tags":{"tags":1}},', '"metadata":{},'],
    ['narrow', '"seed":1,"service_tier":"flex",', '"service_tier":"flex",'],
    ['deployed', '"user":"u",', ''],
  ])('%s takes %s out', async (model, member, left) => {
    const upstream = model === 'narrow' ? plain : router;
    const named = model === 'm' ? '"model":"there",' : model === 'deployed' ? '' : '"model":"narrow",';
    const coming = nextOf(upstream);
    expect((await post(`{${member}"model":"${model}",${fill(size)}}`)).status).toBe(200);
    expect((await coming).body.toString()).toBe(`{${left}${named}${fill(size)}}`);
  });

  test('a member that is removed cannot stand there twice', async () => {
    const { status, error } = await post(`{"model":"m","user":"a","USER":"b",${fill(size)}}`);
    expect([status, error.code, error.param]).toEqual([400, 'duplicate_parameter', 'user']);
  });

  test('each target gets what it is to get', async () => {
    const coming = nextOf(router);
    expect((await post(`{"model":"lost","user":"u",${fill(size)}}`)).status).toBe(200);
    expect((await coming).body.toString()).toBe(`{"model":"x",${fill(size)}}`);
    const first = nextOf(plain);
    expect((await post(`{"model":"both","user":"u",${fill(size)}}`)).status).toBe(200);
    expect((await first).body.toString()).toBe(`{"model":"x","user":"u",${fill(size)}}`);
  });
});

test('all that stands in a body can be removed', async () => {
  const coming = nextOf(router);
  await post('{ "user":"u" , "service_tier":1 }', 'images/generations');
  expect(JSON.parse((await coming).body.toString())).toEqual({ model: 'painter' });
});

test('usage is asked for where a neighbour is removed', async () => {
  const coming = nextOf(router);
  await post('{"model":"m","stream":true,"user":"u"}');
  expect((await coming).body.toString()).toBe(
    '{"model":"there","stream":true,"stream_options":{"include_usage":true}}',
  );
});

describe('in a form', () => {
  const picture = (size: number) => file(noise(size), 'image');
  const model = field('model', 'm');
  test.each([
    ['in front', [field('provider', 'x'), model, picture(100)]],
    ['in another spelling', [model, field('Provider', 'x'), picture(100)]],
    ['as a part of an object', [model, field('provider[order]', 'x'), picture(100)]],
    ['behind a file that is sent on while it comes', [model, picture(3_000_000), field('provider', 'x')]],
  ])('%s', async (_, parts) => {
    const { status, error } = await post(formBytes(parts), 'images/edits', FORM_TYPE);
    expect([status, error.code, error.param]).toEqual([400, 'unsupported_parameter', 'provider']);
  });

  test.each([
    ['small', 100],
    ['large, which is sent only when it is complete', 3_000_000],
  ])('fields are changed: %s', async (_, size) => {
    const given = [
      field('style', 'a'),
      field('Size', '1x1'),
      field('lang[]', 'de'),
      field('model', 'painter'),
      picture(size),
      field('lang[]', 'en'),
      field('quality', 'low'),
      field('quality', 'medium'),
      field('STYLE', 'b'),
      field('user', 'me'),
    ];
    const coming = nextOf(plain);
    await post(formBytes(given), 'images/edits', FORM_TYPE);
    const form = await new Response(new Uint8Array((await coming).body), {
      headers: { 'content-type': FORM_TYPE },
    }).formData();
    const sent = Array.from(form, ([name, value]) => [name, typeof value === 'string' ? value : value.size]);
    expect(sent).toEqual([
      ['dimensions', '1x1'],
      ['languages[]', 'de'],
      ['model', 'painter'],
      ['image', size],
      ['languages[]', 'en'],
      ['quality', 'high'],
      ['user', 'me'],
      ['extra', '{"a":[1]}'],
      ['background_fill', '2'],
    ]);
  });

  test('with the old and the new name it is rejected', async () => {
    const form = formBytes([field('model', 'painter'), field('size', '1'), field('dimensions', '2')]);
    const { status, error } = await post(form, 'images/edits', FORM_TYPE);
    expect([status, error.code, error.param]).toEqual([400, 'duplicate_parameter', 'size']);
  });

  test('but not where nothing refuses it', async () => {
    const form = formBytes([field('model', 'open'), field('provider', 'x'), picture(100)]);
    expect((await post(form, 'images/edits', FORM_TYPE)).error?.code).not.toBe('unsupported_parameter');
  });
});

describe.each([
  ['a small body', 100],
  ['a large body', 400_000],
])('%s for a target that changes members', (_, size) => {
  const added = '"reasoning":{"summary":"auto"},"metadata":{"a.b":[1,{"c":null}]}';
  test.each([
    ['', '', `,"temperature":1,${added},"service_tier":"flex","max_completion_tokens":500`],
    [
      '"Temperature" : 0.5,"max_tokens":1e2,"service_tier":null,',
      '"temperature" : 1,"max_completion_tokens":1e2,"service_tier":null,',
      `,${added}`,
    ],
    [
      '"temperature":1,"max_completion_tokens":7,"service_tier":"x","reasoning":null,"metadata":{"a.b":0,"b":1},',
      '"temperature":1,"max_completion_tokens":7,"service_tier":"x","reasoning":{"summary":"auto"},"metadata":{"a.b":[1,{"c":null}],"b":1},',
      '',
    ],
    [
      '"effort" : "low","reasoning":{ "x":1},"stream":true,"stream_options":{"include_usage":true},"metadata":{},"temperature":0,"service_tier":1,"max_tokens":1,',
      '"reasoning":{"effort":"low","summary":"auto", "x":1},"stream":true,"metadata":{"a.b":[1,{"c":null}]},"temperature":1,"service_tier":1,"max_completion_tokens":1,',
      '',
    ],
  ])('%s becomes %s', async (before, after, end) => {
    const coming = nextOf(plain);
    await post(`{${before}"model":"changed",${fill(size)}}`);
    expect((await coming).body.toString()).toBe(`{${after}"model":"changed",${fill(size)}${end}}`);
  });

  test.each([
    ['"max_tokens":1,"max_completion_tokens":1', 'duplicate_parameter', 'max_tokens'],
    ['"effort":1,"reasoning":{"Effort":1}', 'duplicate_parameter', 'effort'],
    ['"temperature":1,"temperature":2', 'duplicate_parameter', 'temperature'],
    ['"reasoning":{"summary":1},"Reasoning":{}', 'duplicate_parameter', 'reasoning.summary'],
    ['"reasoning":"high"', 'invalid_type', 'reasoning'],
    ['"metadata":[]', 'invalid_type', 'metadata'],
  ])('%s is rejected', async (member, code, param) => {
    const asked = plain.requests.length;
    const { status, error } = await post(`{"model":"changed",${member},${fill(size)}}`);
    expect([status, error.code, error.param], error.message).toEqual([400, code, param]);
    expect(plain.requests.length).toBe(asked);
  });
});

test('a client whose usage option is removed gets no usage that the gateway asked for', async () => {
  const coming = nextOf(plain);
  await post('{"model":"changed","stream":true}');
  expect((await coming).body.toString()).not.toContain('include_usage');
});

test('a member that an endpoint reads is in the list of those that cannot be changed', () => {
  const listed = new Set<string>(READ_MEMBERS);
  for (const { wanted, form } of MODEL_ENDPOINTS)
    for (const name of [...wanted.members, ...(form?.fields ?? [])])
      expect(listed.has(name), name).toBe(true);
});
