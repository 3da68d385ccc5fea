// What upstreams make for a holder with a response (items, containers, files in them) is that holder's alone, with and without
// `passthrough`: no spelling, place or endpoint lets another one refer to it, and its maker can refer to all of it.
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';

const PATHS = ['/v1/files', '/v1/uploads', '/v1/batches', '/v1/vector_stores', '/v1/conversations'];
const SHARED = `pmpt_${'5'.repeat(24)}`;
const SHARED_STORE = `vs_${'6'.repeat(24)}`;

let upstream: ObjectsUpstream;
/** With `passthrough`, and without. */
let gateways: readonly [Gateway, Gateway];

beforeAll(async () => {
  upstream = await ObjectsUpstream.start();
  const up = { shared_objects: [SHARED, 'vs_6*'] };
  const upstreams = { up: upstream.baseUrl };
  gateways = [
    await startGateway({
      upstreams,
      config: { upstreams: { up }, passthrough: { upstream: 'up', paths: PATHS } },
    }),
    await startGateway({ upstreams, config: { upstreams: { up } } }),
  ];
});

afterAll(async () => {
  for (const gateway of gateways) await gateway.close();
  await upstream[Symbol.asyncDispose]();
});

beforeEach(() => {
  upstream.asked.length = 0;
});

/** Keys of two holders at one gateway, and what the first one has there. */
interface Setting {
  readonly gateway: Gateway;
  readonly one: string;
  readonly other: string;
  readonly ids: Readonly<Record<Kind, string>>;
  /** All items of a response of the first one, as they came. */
  readonly output: readonly Item[];
  readonly response: string;
}

interface Item {
  readonly id: string;
  readonly type: string;
  readonly container_id?: string;
}

const KINDS = ['msg', 'rs', 'fc', 'ws', 'ig', 'ci', 'mcpr', 'cntr', 'cfile', 'resp'] as const;
type Kind = (typeof KINDS)[number];

async function call(gateway: Gateway, key: string, path: string, body?: object | string, method = 'POST') {
  const response = await fetch(`${gateway.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, text };
}

const codeIn = (text: string): unknown => JSON.parse(text).error?.code;

async function make(gateway: Gateway, fields: object = {}): Promise<Setting> {
  const [one, other] = [await gateway.issueKey('Pro'), await gateway.issueKey('Free')];
  const answer = await call(gateway, one, '/v1/responses', { model: 'test-model', input: 'hi', ...fields });
  expect(answer.status).toBe(200);
  const data = answer.text.startsWith('event:')
    ? /^event: response.completed\ndata: (.*)$/m.exec(answer.text)?.[1]
    : answer.text;
  const parsed = JSON.parse(data ?? '{}');
  const value = parsed.response ?? parsed;
  const output: readonly Item[] = value.output;
  const idOf = (prefix: string) => output.find(({ id }) => id.startsWith(`${prefix}_`))?.id ?? '';
  const ids = {
    msg: idOf('msg'),
    rs: idOf('rs'),
    fc: idOf('fc'),
    ws: idOf('ws'),
    ig: idOf('ig'),
    ci: idOf('ci'),
    mcpr: idOf('mcpr'),
    cntr: output.find(({ container_id }) => container_id !== undefined)?.container_id ?? '',
    cfile: /cfile_\w+/.exec(answer.text)?.[0] ?? '',
    resp: value.id,
  };
  upstream.asked.length = 0;
  return { gateway, one, other, ids, output, response: value.id };
}

/** Ways to refer to a thing of each kind, in members of a request for a response. */
const referring = (kind: Kind, id: string): readonly object[] => {
  switch (kind) {
    case 'cntr':
      return [
        { tools: [{ type: 'code_interpreter', container: id }] },
        { tools: [{ type: 'shell', environment: { type: 'container_reference', container_id: id } }] },
        { input: [{ type: 'code_interpreter_call', id: 'ci_1', code: 'x', container_id: id }] },
      ];
    case 'cfile':
      return [
        { input: [{ role: 'user', content: [{ type: 'input_file', file_id: id }] }] },
        { tools: [{ type: 'code_interpreter', container: { type: 'auto', file_ids: [id] } }] },
      ];
    case 'resp':
      return [{ previous_response_id: id }, { x: { response_id: id } }];
    default:
      return [
        { input: [{ type: 'item_reference', id }] },
        { input: [{ id }] },
        { input: [{ type: null, id }] },
        { input: [{ id, role: 'assistant', content: [] }] },
        { input: [{ type: 'reasoning', id, summary: [{ type: 'summary_text', text: 'x' }] }] },
        { input: [{ type: 'image_generation_call', id }] },
        { input: [{ type: 'message', id, role: 'user', content: 'all of it' }] },
        { input: [{ type: 'mcp_approval_response', approval_request_id: id, approve: true }] },
        { input: [[{ id }]] },
        { input: { id } },
        { x: { previous_item_id: id } },
      ];
  }
};

const folded = (text: string, change: (each: string) => string): string =>
  text.replace(/"([a-z_]+)":/g, (_all, name: string) => `${change(name)}:`);
const quoted = (text: string) => `"${text}"`;
const escaped = (text: string) =>
  [...text].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

/** Other spellings of the names in a JSON text, and of the texts in it. */
const SPELLINGS: Readonly<Record<string, (text: string) => string>> = {
  'as it is': (text) => text,
  'in upper case': (text) => folded(text, (name) => quoted(name.toUpperCase())),
  'in camel case': (text) =>
    folded(text, (name) => quoted(name.replace(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase()))),
  'with hyphens': (text) => folded(text, (name) => quoted(name.replaceAll('_', '-'))),
  'with a long s and a Kelvin sign': (text) =>
    folded(text, (name) => quoted(name.replaceAll('s', '\u017f').replaceAll('k', '\u212a'))),
  'with escapes': (text) => text.replace(/"(\w+)"/g, (_all, each: string) => quoted(escaped(each))),
  'with U+0000 behind names': (text) => folded(text, (name) => `"${name}\\u0000x"`),
  'with white space around ids': (text) => text.replace(/"(\w+_[0-9a-f]{24})"/g, '" $1\\t"'),
  'with U+0000 behind ids': (text) => text.replace(/"(\w+_[0-9a-f]{24})"/g, '"$1\\u0000x"'),
};

/** What a stream told of is the same as what a whole answer did: one spelling of it is enough. */
const spelledKinds = (what: string) =>
  KINDS.flatMap((kind) =>
    Object.keys(SPELLINGS)
      .slice(0, what === 'a stream' ? 1 : undefined)
      .map((spelling) => [kind, spelling] as const),
  );

const ENDPOINTS = ['/v1/responses', '/v1/responses/compact', '/v1/responses/input_tokens'];

describe.each([
  [0, 'with passthrough'],
  [1, 'without passthrough'],
])('%#, %s', (index) => {
  describe.each(['a whole answer', 'a stream'])('what %s told of', (what) => {
    let setting: Setting;

    beforeAll(async () => {
      const gateway = gateways[index];
      if (gateway === undefined) throw new Error('no gateway');
      setting = await make(gateway, what === 'a stream' ? { stream: true } : {});
    });

    test.each(spelledKinds(what))('is not there for another holder: %s, %s', async (kind, spelling) => {
      const { gateway, other, ids } = setting;
      for (const members of referring(kind, ids[kind])) {
        const spelled = (SPELLINGS[spelling] ?? String)(JSON.stringify(members));
        const body = `{"model":"test-model",${'input' in members ? '' : '"input":"hi",'}${spelled.slice(1)}`;
        const answer = await call(gateway, other, '/v1/responses', body);
        // Of top-level members that the gateway reads, other spellings are refused as such.
        expect([body, answer.status, codeIn(answer.text)]).toEqual([
          body,
          expect.toSatisfy(
            (status) => status === 404 || (status === 400 && (kind === 'resp' || 'tools' in members)),
          ),
          expect.stringMatching(/^(object_not_found|response_not_found|invalid_value|duplicate_parameter)$/),
        ]);
      }
      expect(upstream.asked).toEqual([]);
    });

    test.each(ENDPOINTS.slice(1))('is not there at %s either', async (path) => {
      const { gateway, other, ids } = setting;
      for (const kind of KINDS)
        for (const members of referring(kind, ids[kind])) {
          const answer = await call(gateway, other, path, { model: 'test-model', input: 'hi', ...members });
          expect([members, answer.status]).toEqual([members, 404]);
        }
      expect(upstream.asked).toEqual([]);
    });

    test.each(ENDPOINTS)('is there for its maker at %s', async (path) => {
      const { gateway, one, ids } = setting;
      for (const kind of KINDS) {
        for (const members of referring(kind, ids[kind])) {
          if ('x' in members && kind === 'resp') continue;
          const answer = await call(gateway, one, path, { model: 'test-model', input: 'hi', ...members });
          expect([members, answer.status]).toEqual([members, 200]);
        }
      }
    });

    test('can be sent back by its maker as it came', async () => {
      const { gateway, one, output } = setting;
      const input = [{ role: 'user', content: 'hi' }, ...output, { role: 'user', content: 'go on' }];
      for (const store of [true, false]) {
        const answer = await call(gateway, one, '/v1/responses', { model: 'test-model', input, store });
        expect([answer.status, answer.text.slice(0, 200)]).toEqual([200, expect.anything()]);
      }
    });
  });
});

describe('without a record', () => {
  const unknown = 'f'.repeat(24);
  const refused: readonly object[] = [
    { input: [{ type: 'item_reference', id: `msg_${unknown}` }] },
    { input: [{ type: 'ITEM_REFERENCE', id: `msg_${unknown}`, content: 'hi' }] },
    { input: [{ type: 'item_reference', id: 'anything' }] },
    { input: [{ id: 'anything' }] },
    { input: [{ id: `msg_${unknown}`, code: 'x', result: 'y' }] },
    { input: [{ type: 'message', id: `msg_${unknown}`, role: 'assistant', content: '' }] },
    { input: [{ type: 'reasoning', id: `rs_${unknown}`, summary: [], encrypted_content: null }] },
    { input: [{ type: 'reasoning', id: `rs_${unknown}`, summary: [], Encrypted_Content: 'x' }] },
    { input: [{ type: 'image_generation_call', id: `ig_${unknown}`, status: 'completed' }] },
    { tools: [{ type: 'file_search', vector_store_ids: [`vs_${unknown}`] }] },
    { prompt: { id: `pmpt_${unknown}` } },
    { prompt: { id: 'any' } },
    { conversation: `conv_${unknown}` },
    { conversation: { id: 'any' } },
    { skills: [{ type: 'skill_reference', skill_id: 'skill_1' }] },
    { metadata: { a: { file_id: `file-${unknown}` } } },
    { x: { metadata: { file_id: `file-${unknown}` } } },
    { x: `cntr_${unknown}` },
    {
      input: [
        { role: 'user', content: [{ type: 'input_file', file_id: `${' '.repeat(5000)}file-${unknown}` }] },
      ],
    },
  ];
  const passed: readonly object[] = [
    {
      input: [
        { type: 'reasoning', id: `rs_${unknown}`, summary: [], encrypted_content: 'abc' },
        {
          type: 'message',
          id: `msg_${unknown}`,
          role: 'assistant',
          status: 'completed',
          content: [
            {
              type: 'output_text',
              text: 'hello',
              annotations: [{ type: 'file_citation', file_id: `file-${unknown}`, index: 1, filename: 'a' }],
            },
          ],
        },
        { type: 'function_call', id: `fc_${unknown}`, call_id: `fc_${unknown}`, name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: `fc_${unknown}`, output: `file-${unknown}` },
        {
          type: 'mcp_approval_request',
          id: `mcpr_${unknown}`,
          name: 'n',
          arguments: '{}',
          server_label: 's',
        },
        { type: 'mcp_approval_response', approval_request_id: `mcpr_${unknown}`, approve: false },
        {
          type: 'computer_call_output',
          call_id: 'call_1',
          output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,aGk=' },
          acknowledged_safety_checks: [{ id: 'cu_sc_1', code: null, message: null }],
        },
      ],
    },
    { prompt: { id: SHARED, variables: { id: 'x', file_id: `file-${unknown}` } } },
    { tools: [{ type: 'file_search', vector_store_ids: [SHARED_STORE] }] },
    { metadata: { file_id: `file-${unknown}`, conversation: 'any' } },
    {
      tools: [
        {
          type: 'function',
          name: 'f',
          parameters: {
            type: 'object',
            properties: { file_id: { type: 'string', default: 'a', examples: ['b'] } },
          },
        },
        { type: 'mcp', server_label: 's', connector_id: 'connector_gmail', authorization: 'x' },
      ],
    },
    { user: 'user_0123456789abcdef', prompt_cache_key: 'file-system-tools' },
    { input: [{ role: 'user', content: `file-${unknown}` }], instructions: `msg_${unknown}` },
  ];

  test.each(refused.map((members) => [JSON.stringify(members).slice(0, 120), members] as const))(
    'refused: %s',
    async (_what, members) => {
      for (const gateway of gateways) {
        const body = { model: 'test-model', input: 'hi', ...members };
        const answer = await call(gateway, await gateway.key(), '/v1/responses', body);
        expect([answer.status, codeIn(answer.text)]).toEqual([404, 'object_not_found']);
      }
      expect(upstream.asked).toEqual([]);
    },
  );

  test.each(passed.map((members) => [JSON.stringify(members).slice(0, 120), members] as const))(
    'passed on: %s',
    async (_what, members) => {
      for (const gateway of gateways) {
        const body = { model: 'test-model', input: 'hi', ...members };
        const answer = await call(gateway, await gateway.key(), '/v1/responses', body);
        expect([answer.status, answer.text]).toEqual([200, expect.anything()]);
      }
      expect(upstream.asked).toHaveLength(2);
    },
  );

  test('what the operator shares is not to be had itself', async () => {
    const [gateway] = gateways;
    for (const [method, body] of [['GET'], ['POST', { name: 'x' }], ['DELETE']] as const) {
      const answer = await call(
        gateway,
        await gateway.key(),
        `/v1/vector_stores/${SHARED_STORE}`,
        body,
        method,
      );
      expect([method, answer.status]).toEqual([method, 404]);
    }
    expect(upstream.asked).toEqual([]);
  });

  test('a response that is not stored still leaves its container and files to its maker', async () => {
    for (const gateway of gateways) {
      const { one, other, ids, output } = await make(gateway, { store: false });
      for (const kind of ['cntr', 'cfile', 'ig', 'ws'] as const) {
        const [members] = referring(kind, ids[kind]);
        const body = { model: 'test-model', input: 'hi', ...members };
        expect((await call(gateway, other, '/v1/responses', body)).status).toBe(404);
        expect([kind, (await call(gateway, one, '/v1/responses', body)).status]).toEqual([kind, 200]);
      }
      const input = output.filter(({ type }) => type !== 'reasoning');
      expect((await call(gateway, one, '/v1/responses', { model: 'test-model', input })).status).toBe(200);
    }
  });
});

test('a call of realtime cannot be joined', async () => {
  for (const gateway of gateways) {
    for (const query of [
      'call_id=rtc_1',
      'call%255Fid=rtc_1',
      'Call-Id=x',
      'callId=x',
      'x=y;call_id=x',
      'call%5Fid=x',
      'a=rtc_0123456789abcdef',
    ]) {
      using raw = await gateway.connect();
      const response = await raw.ask({
        method: 'GET',
        target: `/v1/realtime?model=test-model&${query}`,
        headers: {
          authorization: `Bearer ${await gateway.key()}`,
          connection: 'Upgrade',
          upgrade: 'websocket',
          'sec-websocket-version': '13',
          'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
        },
      });
      expect([query, response.status]).toEqual([query, 404]);
    }
  }
  expect(upstream.asked).toEqual([]);
});

test('no field of a form refers to an object', async () => {
  const id = `file-${'8'.repeat(24)}`;
  const fields: readonly (readonly [string, string])[] = [
    ['file_id', 'any'],
    ['File_Id', 'any'],
    ['file_ids[]', 'any'],
    ['fileId', 'any'],
    ['container-id', 'any'],
    ['x', id],
    ['image', ` ${id}\r\n`],
    ['mask', `cfile_${'8'.repeat(24)}`],
  ];
  for (const gateway of gateways) {
    const ask = async (more: readonly (readonly [string, string])[], isFirst: boolean) => {
      const form = new FormData();
      const add = () => {
        for (const [name, value] of more) form.append(name, value);
      };
      if (isFirst) add();
      form.set('model', 'test-model');
      form.set('file', new Blob(['x']), 'a.wav');
      if (!isFirst) add();
      const response = await fetch(`${gateway.url}/v1/audio/transcriptions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${await gateway.key()}` },
        body: form,
      });
      return { status: response.status, text: await response.text() };
    };
    for (const field of fields) {
      for (const isFirst of [true, false]) {
        const answer = await ask([field], isFirst);
        expect([field, isFirst, answer.status, codeIn(answer.text)]).toEqual([
          field,
          isFirst,
          404,
          'object_not_found',
        ]);
      }
    }
    expect(upstream.asked).toEqual([]);
    await ask(
      [
        ['prompt', id],
        ['user', 'user_0123456789abcdef'],
        ['language', 'en'],
      ],
      true,
    );
    expect(upstream.asked.map(({ url }) => url)).toEqual(['/v1/audio/transcriptions']);
    upstream.asked.length = 0;
  }
});

test('the items of a conversation are its holder’s', async () => {
  const [gateway] = gateways;
  const [one, other] = [await gateway.issueKey(), await gateway.issueKey()];
  const conversation = JSON.parse((await call(gateway, one, '/v1/conversations', {})).text).id;
  const item = `msg_${'7'.repeat(24)}`;
  upstream.intercept = (request, response) => {
    if (!request.url?.includes('/items')) return false;
    request.resume();
    request.once('end', () =>
      response.end(
        JSON.stringify({ object: 'list', data: [{ id: item, type: 'message' }], has_more: false }),
      ),
    );
    return true;
  };
  try {
    const items = [{ type: 'message', role: 'user', content: 'hi' }];
    expect((await call(gateway, one, `/v1/conversations/${conversation}/items`, { items })).status).toBe(200);
  } finally {
    upstream.intercept = undefined;
  }
  const body = { model: 'test-model', input: [{ type: 'item_reference', id: item }] };
  upstream.asked.length = 0;
  expect((await call(gateway, other, '/v1/responses', body)).status).toBe(404);
  expect((await call(gateway, other, '/v1/conversations', { items: body.input })).status).toBe(404);
  expect(upstream.asked).toEqual([]);
  expect((await call(gateway, one, '/v1/responses', body)).status).toBe(200);
});

test('no nesting, spelling or escaping of an id of another holder reaches the upstream', async () => {
  const [gateway] = gateways;
  const { one, other, ids } = await make(gateway);
  const form = new FormData();
  form.set('purpose', 'assistants');
  form.set('file', new Blob(['x']), 'a.txt');
  const made = await fetch(`${gateway.url}/v1/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${one}` },
    body: form,
  });
  const { id: file } = JSON.parse(await made.text());
  upstream.asked.length = 0;
  const names = [
    'file_id',
    'x',
    'input',
    'items',
    'metadata',
    'id',
    'type',
    'tools',
    'container',
    'content',
    'results',
  ];
  const value = (id: string) =>
    fc.letrec<{ node: unknown }>((tie) => ({
      node: fc.oneof(
        { depthSize: 'small' },
        fc.constant(id),
        fc
          .record({ key: fc.constantFrom(...names), inner: tie('node') })
          .map(({ key, inner }) => ({ [key]: inner })),
        fc.tuple(fc.constantFrom('a', 1, null), tie('node')),
      ),
    })).node;
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(file, ids.msg, ids.cntr, ids.cfile).chain((id) => value(id)),
      fc.constantFrom(...Object.values(SPELLINGS)),
      fc.constantFrom('/v1/responses', '/v1/conversations', '/v1/vector_stores'),
      async (node, spell, path) => {
        // The holder's own notes are free.
        fc.pre(!/^{"metadata":"|^{"metadata":{"[a-z_]+":"/.test(JSON.stringify(node)));
        const inner = spell(JSON.stringify({ y: node }));
        const body = `{"model":"test-model",${inner.slice(1)}`;
        const answer = await call(gateway, other, path, body);
        expect([body, answer.status]).toEqual([body, 404]);
      },
    ),
    { numRuns: 150 },
  );
  expect(upstream.asked).toEqual([]);
}, 30_000);
