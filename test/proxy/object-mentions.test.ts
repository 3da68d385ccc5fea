// Requests as SDKs and applications send them, in which an id, or what looks like one, is no reference: they are passed on where
// nobody has such an object, and refused where it is another holder's.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ask, bearer } from '../e2e/holder.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { HostileUpstream, json } from '../helpers/hostile-upstream.ts';

const LETTERS = '68c1f0a3b2d4819a1b2c3d4e5f60718293a4b5c6d7e8f90';
const idOf = (prefix: string): string => `${prefix}${LETTERS}`;
const OTHERS = `msg_${'7'.repeat(24)}`;

let upstream: HostileUpstream;
/** Without `passthrough`, and with. */
let gateways: readonly [Gateway, Gateway];

beforeAll(async () => {
  const message = { type: 'message', id: OTHERS, role: 'assistant', content: [] };
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  const answer = {
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    output: [message],
    data: [],
    usage,
  };
  upstream = await HostileUpstream.start(json(200, answer));
  const upstreams = { up: upstream.baseUrl };
  const passthrough = { upstream: 'up', paths: ['/v1/files', '/v1/conversations'] };
  gateways = [await startGateway({ upstreams }), await startGateway({ upstreams, config: { passthrough } })];
  for (const gateway of gateways) {
    const key = await gateway.issueKey('Pro');
    const made = await send(gateway, key, '/v1/responses', { input: 'makes an item' });
    expect(made.status).toBe(200);
  }
});

afterAll(async () => {
  for (const gateway of gateways) await gateway.close();
  await upstream.close();
});

function send(gateway: Gateway, key: string, target: string, body: object) {
  return ask(gateway.url, { target, headers: bearer(key), body: { model: 'test-model', ...body } });
}

const schemaOf = (id: string) => ({
  type: 'object',
  properties: {
    n: {},
    N: {},
    Stream: { type: 'boolean' },
    model: { enum: ['a'] },
    file_id: { type: 'string', default: id, examples: [id] },
    files: { type: 'array', default: ['a.txt'] },
    container: { const: 'docker' },
    type: { const: 'item_reference' },
  },
  dependentRequired: { file_id: ['n'] },
});
const functionOf = (id: string) => ({
  type: 'function',
  name: 'f',
  parameters: schemaOf(id),
  output_schema: schemaOf(id),
});

/** Requests with an id in a place where it is none. */
const mentions: Readonly<Record<string, (id: string) => readonly [target: string, body: object]>> = {
  'the name of a tool': (id) => [
    '/v1/responses',
    { input: 'x', tools: [{ type: 'function', name: id }], tool_choice: { type: 'function', name: id } },
  ],
  'the name of a tool of chat': (id) => [
    '/v1/chat/completions',
    { messages: [], tools: [{ type: 'function', function: { name: id, parameters: {} } }] },
  ],
  'the key of a cache': (id) => ['/v1/responses', { input: 'x', prompt_cache_key: id }],
  'the name of related background responses': (id) => [
    '/v1/responses',
    { input: 'x', background_options: { continuation_id: id } },
  ],
  'who a user is': (id) => ['/v1/chat/completions', { messages: [], user: id, safety_identifier: id }],
  'who wants an image': (id) => ['/v1/images/generations', { prompt: 'x', user: id }],
  'stop sequences': (id) => ['/v1/chat/completions', { messages: [], stop: [id] }],
  'texts to embed': (id) => ['/v1/embeddings', { input: [id, 'b'] }],
  'a filter by an attribute': (id) => {
    const filters = { type: 'eq', key: 'conversation_id', value: id };
    return ['/v1/responses', { input: 'x', tools: [{ type: 'web_search', filters }] }];
  },
  'headers for another server': (id) => [
    '/v1/responses',
    { input: 'x', tools: [{ type: 'mcp', server_label: 's', headers: { 'x-file-id': id, container: 'a' } }] },
  ],
  'schemas of tools': (id) => [
    '/v1/responses',
    {
      input: [{ type: 'additional_tools', role: 'developer', tools: [functionOf(id)] }],
      tools: [functionOf(id), { type: 'namespace', name: 'n', tools: [functionOf(id)] }],
    },
  ],
  'schemas of tools that were found': (id) => [
    '/v1/responses',
    {
      input: [
        {
          type: 'tool_search_output',
          id: idOf('tso_'),
          tools: [functionOf(id), { type: 'namespace', name: 'n', tools: [functionOf(id)] }],
        },
      ],
    },
  ],
  'the environment of a command': (id) => {
    const action = { type: 'exec', command: ['ls'], env: { FILE: id, CONTAINER: 'a' } };
    return ['/v1/responses', { input: [{ type: 'local_shell_call', call_id: 'c', action }] }];
  },
  'reasoning of a router': (id) => [
    '/v1/chat/completions',
    {
      messages: [{ role: 'assistant', content: 'x', reasoning_details: [{ type: 'reasoning.summary', id }] }],
    },
  ],
};

describe.each([0, 1])('%s', (index) => {
  test.each(Object.keys(mentions))('%s is no reference', async (name) => {
    const gateway = gateways[index] ?? gateways[0];
    const [target, body] = mentions[name]?.(idOf('msg_')) ?? ['', {}];
    const answer = await send(gateway, await gateway.key(), target, body);
    expect([answer.status, answer.status === 200 ? '' : answer.text()]).toEqual([200, '']);
  });

  test.each(Object.keys(mentions))('%s may not be another holder’s', async (name) => {
    const gateway = gateways[index] ?? gateways[0];
    const [target, body] = mentions[name]?.(OTHERS) ?? ['', {}];
    // Chat and embeddings are held against the rule with `passthrough` alone.
    const isHeld = index === 1 || /responses|images/.test(target);
    const answer = await send(gateway, await gateway.key(), target, body);
    expect(answer.status).toBe(isHeld ? 404 : 200);
  });
});

describe('an item that is sent back is whole', () => {
  const call = { call_id: 'c', name: 'f', status: 'completed' };
  test.each([
    { type: 'function_call', id: idOf('fc_'), ...call, arguments: '' },
    { type: 'function_call_output', id: idOf('fco_'), ...call, output: '' },
    { type: 'function_call_output', id: idOf('fco_'), ...call, output: [] },
    { type: 'custom_tool_call', id: idOf('ctc_'), ...call, input: '' },
    { type: 'custom_tool_call_output', id: idOf('ctco_'), ...call, output: '' },
    { type: 'mcp_call', id: idOf('mcp_'), server_label: 's', name: 'f', arguments: '' },
    { type: 'mcp_list_tools', id: idOf('mcpl_'), server_label: 's', tools: [] },
    { type: 'apply_patch_call_output', id: idOf('apco_'), call_id: 'c', status: 'completed' },
    { type: 'message', id: idOf('msg_'), role: 'assistant', status: 'incomplete', content: [] },
    { type: 'tool_search_output', id: idOf('tso_'), execution: 'client', tools: [] },
    { type: 'configuration_update', id: idOf('cu_'), reasoning: { effort: 'low' } },
  ])('without content: $type', async (item) => {
    for (const gateway of gateways) {
      const body = { store: false, input: [{ role: 'user', content: 'x' }, item] };
      const answer = await send(gateway, await gateway.key(), '/v1/responses', body);
      expect([answer.status, answer.status === 200 ? '' : answer.text()]).toEqual([200, '']);
    }
  });

  test.each([
    { type: 'reasoning', id: idOf('rs_'), summary: [], encrypted_content: '', content: [] },
    { type: 'image_generation_call', id: idOf('ig_'), result: '' },
    { type: 'compaction', id: idOf('cmp_'), encrypted_content: '' },
    { type: 'function_call', id: idOf('fc_'), arguments: null },
    { type: 'something_new', id: idOf('fc_'), status: 'completed', arguments: '' },
  ])('but not what an upstream looks up by its id: $type', async (item) => {
    for (const gateway of gateways) {
      const answer = await send(gateway, await gateway.key(), '/v1/responses', { input: [item] });
      expect(answer.status).toBe(404);
    }
  });
});
