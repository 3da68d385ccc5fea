// Members that the configuration refuses or removes: found in any spelling, in small and in large bodies, and taken out
// without a change to anything else.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { READ_MEMBERS } from '../../src/config/schema/member-rules.ts';
import { MODEL_ENDPOINTS } from '../../src/proxy/endpoints/form-endpoints.ts';
import { LargeScan } from '../../src/proxy/request/large-request.ts';
import { emptiesObject, withoutMembers } from '../../src/proxy/request/member-edits.ts';
import { scanRequest, spliceSpans, wants } from '../../src/proxy/request/request-scan.ts';
import { foldPath, WatchedMembers } from '../../src/proxy/routes/watched-members.ts';
import { foldName } from '../../src/wire/fold-name.ts';
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
  const members = {
    refuse: ['models', 'provider', 'extra.api_base', 'background'],
    remove: ['service_tier', 'user', 'metadata.tags'],
  };
  gateway = await startGateway({
    config: {
      upstreams: {
        router: { base_url: router.baseUrl, members },
        renamed: { base_url: router.baseUrl, send_model: false, members },
        plain: { base_url: plain.baseUrl },
        broken: { base_url: 'http://127.0.0.1:9/v1' },
      },
      models: {
        m: { targets: [{ upstream: 'router', model: 'there' }] },
        deployed: { targets: [{ upstream: 'renamed', model: 'there' }] },
        open: { targets: [{ upstream: 'plain', model: 'open' }] },
        narrow: {
          targets: [{ upstream: 'plain', model: 'narrow' }],
          members: { refuse: ['temperature'], remove: ['seed'] },
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

  test('but not where nothing refuses it', async () => {
    const form = formBytes([field('model', 'open'), field('provider', 'x'), picture(100)]);
    expect((await post(form, 'images/edits', FORM_TYPE)).error?.code).not.toBe('unsupported_parameter');
  });
});

test('a member that an endpoint reads is in the list of those that cannot be removed', () => {
  const listed = new Set<string>(READ_MEMBERS);
  for (const { wanted, form } of MODEL_ENDPOINTS)
    for (const name of [...wanted.members, ...(form?.fields ?? [])])
      expect(listed.has(name), name).toBe(true);
});

test('what is removed is gone, and nothing else, however much of a body that is', () => {
  const space = fc.stringMatching(/^[ \n\t]{0,2}$/);
  const name = fc.constantFrom(
    'user',
    'User',
    'us_er',
    'x',
    'y',
    'provider',
    'in',
    'IN-',
    'order',
    'messages',
  );
  const { object } = fc.letrec<{ value: string; object: string }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom('1', '"m"', 'null', '"}"', '","', '[]', '[{"user":1},{"user":2}]'),
      tie('object'),
    ),
    object: fc
      .uniqueArray(fc.tuple(space, name, space, tie('value'), space), {
        maxLength: 5,
        selector: ([, each]) => foldName(each),
      })
      .map((all) => `{${all.map(([a, key_, b, each, c]) => `${a}"${key_}"${b}:${each}${c}`).join()}}`),
  }));
  const paths = ['user', 'provider.order', 'x.in.in', 'y', 'y.order', 'messages'];
  const watched = new WatchedMembers(paths);
  const remove = (item: unknown, path: string): unknown => {
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item;
    const left = Object.entries(item).flatMap(([each, value]) => {
      const at = `${path}${foldName(each)}`;
      return paths.some((known) => foldPath(known) === at) ? [] : [[each, remove(value, `${at}.`)]];
    });
    return Object.fromEntries(left);
  };
  fc.assert(
    fc.property(object, fc.integer({ min: 1, max: 40 }), (text, step) => {
      const body = Buffer.from(text);
      const scan = scanRequest(body, wants([], 'default'), watched);
      const large = new LargeScan(wants([], 'default'), watched);
      for (let size = step; size < body.length; size += step) large.advance(body, size);
      expect(large.end(body)).toEqual(scan);
      const edits = withoutMembers(
        body,
        Array.from(scan.members.values(), ({ span }) => span),
      );
      const left = spliceSpans(body, edits).toString();
      const expected = remove(JSON.parse(text), '');
      expect(JSON.parse(left)).toEqual(expected);
      expect(emptiesObject(body, edits)).toBe(JSON.stringify(expected) === '{}');
    }),
    { numRuns: 1000 },
  );
});
