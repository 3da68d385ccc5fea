// Each explanation explains what it is for, and nothing beside it.
import { describe, expect, test } from 'vitest';
import { EXPLANATIONS, explanationOf } from './explained.ts';
import { ANY, UNKNOWN } from './places.ts';

type Example = [
  name: string,
  client: string,
  server: string,
  call: string,
  path: string,
  direct: unknown,
  through: unknown,
];

const POST = 'POST /v1/chat/completions';
const NODE = 'openai (Node) 7.59.0';
const PYTHON = 'openai (Python, sync) 3.57.0';
const AIMOCK = 'aimock 1.43.0';
const SCRIPTED = 'scripted of the checkout';
const LLAMA = 'llama.cpp 2026.10.11549 (xllamacpp)';

const HEADERS = 'headers of the connection and of the server';
const MODELS = 'models of the routing table';
const WAIT = 'time to wait in seconds';
const LIMIT = 'a limit that passes';
const BROKEN = 'broken stream';
const BASE64 = 'embeddings in the encoding that was asked for';
const CLOSED = 'connection closed after a stream';
const CODEX = 'Codex goes on by HTTP';
const LANGCHAIN = 'LangChain (Node) 1.6.0';
const WEBSOCKET = 'Codex CLI (WebSocket first) 0.171.0';

const EXAMPLES: readonly Example[] = [
  [HEADERS, NODE, AIMOCK, 'chat', 'result.headers.keep-alive', 'timeout=5', 'timeout=75'],
  [HEADERS, NODE, AIMOCK, 'chat', 'result.headers.transfer-encoding', 'chunked', undefined],
  [HEADERS, NODE, AIMOCK, 'chat', 'error.headers.access-control-allow-origin', '*', undefined],
  [
    HEADERS,
    NODE,
    LLAMA,
    'chat',
    'result.headers.content-type',
    'application/json; charset=utf-8',
    'application/json',
  ],
  [MODELS, NODE, AIMOCK, 'models.list', 'requests', ['GET /v1/models'], []],
  [MODELS, NODE, AIMOCK, 'models.list', 'result[0].owned_by', 'aimock', 'tollgate'],
  [MODELS, NODE, LLAMA, 'models.list', 'result[0].meta', { n_vocab: 49152 }, undefined],
  ['unknown model', NODE, AIMOCK, 'error.unknown_model', 'requests', [POST], []],
  ['unknown model', NODE, AIMOCK, 'error.unknown_model', 'error.message', '404 Not here.', `404 ${UNKNOWN}`],
  ['name of the model', NODE, SCRIPTED, 'chat', 'result.model', 'upstream-model', 'vendor-model'],
  ['usage of chunks', NODE, SCRIPTED, 'chat.stream', 'result.items[0].usage', undefined, null],
  [
    'usage of chunks',
    PYTHON,
    SCRIPTED,
    'chat.tools.stream.helper',
    'result[0].snapshot.usage',
    undefined,
    null,
  ],
  [WAIT, NODE, SCRIPTED, 'error.server', 'error.headers.retry-after', undefined, '1'],
  [WAIT, 'pydantic-ai 2.68.0', SCRIPTED, 'error.server', 'error.retry_after', null, 1],
  [LIMIT, LANGCHAIN, SCRIPTED, 'error.rate_limit', 'requests', [POST], [POST, POST, POST]],
  [LIMIT, LANGCHAIN, SCRIPTED, 'error.rate_limit', 'error.rateLimitType', 'capacity', 'wait'],
  [BROKEN, NODE, SCRIPTED, 'error.cut_stream', 'result.thrown.class', 'TypeError', 'APIError'],
  [BROKEN, 'AI SDK with openai 7.0.173', SCRIPTED, 'error.cut_stream', 'result.items.length', 4, 5],
  [BASE64, NODE, AIMOCK, 'embeddings.base64', 'result.data[0].embedding.length', 1, 4],
  [
    'request sent again on a fresh connection',
    'openai-java 4.101.0',
    AIMOCK,
    'chat',
    'requests',
    [POST, POST],
    [POST],
  ],
  [CLOSED, 'openai (Node) 4.104.0', LLAMA, 'chat', 'requests', [POST, POST], [POST]],
  [CLOSED, PYTHON, LLAMA, 'chat', 'requests', [POST, POST], [POST]],
  [CLOSED, 'net/http (Go) 1.26.8', LLAMA, 'chat', 'requests', [], [POST]],
  [
    CLOSED,
    'net/http (Go) 1.26.8',
    LLAMA,
    'chat',
    'error',
    { class: '*url.Error', message: 'Post "x": EOF' },
    undefined,
  ],
  [CODEX, WEBSOCKET, SCRIPTED, 'responses.stream.codex', 'error', { class: 'reconnected' }, undefined],
  ['an id for each request', NODE, LLAMA, 'chat', 'result._request_id', null, 'req_1'],
  [
    'usage in the last chunk of completions',
    PYTHON,
    LLAMA,
    'completions.stream',
    'result[16].usage',
    { total_tokens: 1 },
    undefined,
  ],
];

const nameOf = (
  ...[client, server, call, path, direct, through]: Example extends [string, ...infer Rest] ? Rest : never
) => explanationOf({ call, path, direct, through }, { client, server })?.name;

test.each(EXAMPLES)('%s: %s, %s, %s, %s', (name, ...difference) => {
  expect(nameOf(...difference)).toBe(name);
});

test('each explanation has an example', () => {
  const names = new Set(EXAMPLES.map(([name]) => name));
  expect(EXPLANATIONS.map(({ name }) => name)).toEqual([...names]);
});

describe.each(EXAMPLES)(
  '%s explains nothing beside %s, %s, %s, %s:',
  (_name, client, server, call, path, direct, through) => {
    test('another field, and a field of the field', () => {
      expect(nameOf(client, server, call, 'result.other', direct, through)).toBeUndefined();
      expect(nameOf(client, server, call, `${path}.other`, direct, through)).toBeUndefined();
    });

    test('the reverse difference, and a text of another kind', () => {
      expect(nameOf(client, server, call, path, through, direct)).toBeUndefined();
      expect(nameOf(client, server, call, path, 'a text', 'another text')).toBeUndefined();
    });
  },
);

test('a reason of one server, client or call is none for another', () => {
  for (const [, client, server, call, path, direct, through] of EXAMPLES) {
    const difference = { call, path, direct, through };
    const { places } = explanationOf(difference, { client, server }) ?? { places: [] };
    const isAny = (part: 'client' | 'server' | 'call'): boolean =>
      places.some((place) => place[part] === ANY);
    if (!isAny('client'))
      expect(nameOf('other 1', server, call, path, direct, through), path).toBeUndefined();
    if (!isAny('server'))
      expect(nameOf(client, 'other 1', call, path, direct, through), path).toBeUndefined();
    if (!isAny('call')) expect(nameOf(client, server, 'other', path, direct, through), path).toBeUndefined();
  }
});

test('each place names whole fields and whole calls', () => {
  for (const { name, places } of EXPLANATIONS)
    for (const { call, path } of places) {
      expect(path.source, name).toMatch(/\$$/);
      if (call !== ANY) expect(call.source, name).toMatch(/^\^.*\$$/);
    }
});

test.each<[what: string, ...difference: Example]>([
  ['a lost retry-after', '', NODE, AIMOCK, 'chat', 'error.headers.retry-after', '1', undefined],
  ['another media type', '', NODE, AIMOCK, 'chat', 'result.headers.content-type', 'a/b', 'c/d'],
  [
    'a header that the gateway invents',
    '',
    NODE,
    AIMOCK,
    'chat',
    'result.headers.x-should-retry',
    undefined,
    'false',
  ],
  [
    'a header that the gateway loses',
    '',
    NODE,
    AIMOCK,
    'chat',
    'result.headers.openai-version',
    '2020',
    undefined,
  ],
  ['another number of requests', '', NODE, AIMOCK, 'chat', 'requests', ['POST /a'], []],
  ['another code of an unknown model', '', NODE, AIMOCK, 'error.unknown_model', 'error.code', 'a', 'b'],
  [
    'another message of an error of the server',
    '',
    NODE,
    AIMOCK,
    'error.server',
    'error.message',
    'a',
    UNKNOWN,
  ],
  ['another object of a model', '', NODE, AIMOCK, 'models.list', 'result[0].object', undefined, 'x'],
  ['a model that is missing', '', NODE, AIMOCK, 'models.list', 'result.length', 2, 1],
  ['embeddings that differ', '', NODE, AIMOCK, 'embeddings', 'result.data[0].embedding[0]', 1, 0.25],
  [
    'usage that is lost',
    '',
    NODE,
    SCRIPTED,
    'chat.stream.usage',
    'result.items[4].usage',
    { total_tokens: 8 },
    null,
  ],
])('nothing explains %s', (_what, _name, ...difference) => {
  expect(nameOf(...difference)).toBeUndefined();
});
