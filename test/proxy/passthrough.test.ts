// Files, batches, vector stores and conversations through a whole gateway, by two holders with the official client: each has
// what is its own, and neither can read, list, use or end what is the other's, by whatever way an id can be given.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';
import { pause, until, within } from '../helpers/wait.ts';

const PATHS = ['/v1/files', '/v1/uploads', '/v1/batches', '/v1/vector_stores', '/v1/conversations'];

/** A line of the input file of a batch. */
const LINE = '{"custom_id":"1","body":{"model":"test-model","input":"a"}}';

let upstream: ObjectsUpstream;
let gateway: Gateway;
let keys: readonly [string, string];
let one: OpenAI;
let other: OpenAI;

const clientOf = (key: string) => new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });

beforeAll(async () => {
  upstream = await ObjectsUpstream.start();
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: {
      passthrough: { upstream: 'up', paths: PATHS, max_upload: '40MiB' },
      upstreams: { up: { timeouts: { headers: '1s', idle: '1s' } } },
    },
  });
  keys = [await gateway.issueKey('Pro'), await gateway.issueKey('Free')];
  one = clientOf(keys[0]);
  other = clientOf(keys[1]);
});

afterAll(async () => {
  await gateway.close();
  await upstream[Symbol.asyncDispose]();
});

beforeEach(() => {
  upstream.asked.length = 0;
  upstream.intercept = undefined;
});

const fileOf = async (client: OpenAI, text = 'hello', purpose: 'assistants' | 'batch' = 'assistants') =>
  (await client.files.create({ file: await toFile(Buffer.from(text), 'a.txt'), purpose })).id;

/** One call with the plain client of the platform. */
async function call(
  key: string,
  method: string,
  path: string,
  body?: object | string,
  headers: Record<string, string> = {},
  at: Gateway = gateway,
) {
  const response = await fetch(`${at.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, text, headers: response.headers };
}

const codeIn = (text: string): unknown => JSON.parse(text).error?.code;

describe('an object of the holder', () => {
  test('is created, read, listed and deleted with the official client', async () => {
    const file = await one.files.create({
      file: await toFile(Buffer.from('some text'), 'a.txt'),
      purpose: 'assistants',
    });
    expect(await one.files.retrieve(file.id)).toMatchObject({ id: file.id, purpose: 'assistants' });
    expect(await (await one.files.content(file.id)).text()).toBe('some text');
    expect((await one.files.list()).data.map(({ id }) => id)).toContain(file.id);
    expect(await one.files.delete(file.id)).toMatchObject({ deleted: true });
    expect((await one.files.list()).data.map(({ id }) => id)).not.toContain(file.id);
    await expect(one.files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });

    const input = await fileOf(one, `${LINE}\n`, 'batch');
    const batch = await one.batches.create({
      input_file_id: input,
      endpoint: '/v1/embeddings',
      completion_window: '24h',
    });
    expect(await one.batches.retrieve(batch.id)).toMatchObject({ id: batch.id });
    expect(await one.batches.cancel(batch.id)).toMatchObject({ status: 'cancelling' });

    const store = await one.vectorStores.create({ name: 'n', file_ids: [input] });
    await one.vectorStores.files.create(store.id, { file_id: input });
    expect(await one.vectorStores.files.retrieve(input, { vector_store_id: store.id })).toMatchObject({
      id: input,
    });
    const group = await one.vectorStores.fileBatches.create(store.id, { file_ids: [input] });
    await one.vectorStores.fileBatches.retrieve(group.id, { vector_store_id: store.id });
    await one.vectorStores.update(store.id, { name: 'm' });
    expect(await one.vectorStores.delete(store.id)).toMatchObject({ deleted: true });

    const conversation = await one.conversations.create({ metadata: { topic: 'demo' } });
    await one.conversations.items.create(conversation.id, {
      items: [{ type: 'message', role: 'user', content: [{ type: 'input_file', file_id: input }] }],
    });
    expect((await one.conversations.items.list(conversation.id)).data).toHaveLength(1);
    expect(await one.conversations.delete(conversation.id)).toMatchObject({ deleted: true });

    const upload = await one.uploads.create({
      bytes: 3,
      filename: 'f',
      mime_type: 'text/plain',
      purpose: 'assistants',
    });
    const part = await one.uploads.parts.create(upload.id, { data: await toFile(Buffer.from('abc'), 'p') });
    const done = await one.uploads.complete(upload.id, { part_ids: [part.id] });
    expect(await one.files.retrieve(String(done.file?.id))).toMatchObject({ object: 'file' });
  });

  test("is requested with the operator's credentials, which no answer contains", async () => {
    const answer = await call(
      keys[0],
      'POST',
      '/v1/conversations',
      { metadata: {} },
      { cookie: 'c=d', 'openai-organization': 'mine' },
    );
    const [asked] = upstream.asked;
    expect(asked?.headers).toMatchObject({
      authorization: 'Bearer credential-of-up',
      host: new URL(upstream.baseUrl).host,
    });
    expect(asked?.headers.cookie ?? asked?.headers['openai-organization']).toBeUndefined();
    expect(asked?.text).toBe('{"metadata":{}}');
    expect(answer.headers.get('set-cookie') ?? answer.headers.get('openai-organization')).toBeNull();
    expect(answer.headers.get('openai-processing-ms')).toBe('7');
    expect(answer.headers.get('x-request-id')).toMatch(/^req_/);
    // The upstream's own bytes, line ends and all.
    expect(answer.text).toMatch(/^\{\n "metadata"/);
  });

  test('is listed in pages, without objects that no longer exist', async () => {
    const client = clientOf(await gateway.issueKey());
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) ids.push((await client.vectorStores.create({ name: String(i) })).id);
    upstream.things.delete(ids[3] ?? '');
    const present = ids.filter((_, index) => index !== 3);
    const seen: string[] = [];
    for await (const each of client.vectorStores.list({ limit: 2, order: 'asc' })) seen.push(each.id);
    expect(seen).toEqual(present);
    const newest = await client.vectorStores.list({ limit: 3 });
    expect(newest.data.map(({ id }) => id)).toEqual(present.slice(-3).reverse());
    expect(newest).toMatchObject({ has_more: true });
    const back = await client.vectorStores.list({ limit: 2, order: 'asc', before: present[5] ?? '' });
    expect(back.data.map(({ id }) => id)).toEqual(present.slice(3, 5));
    expect((await client.vectorStores.list({ after: ids[0] ?? '' })).data).toEqual([]);
    expect((await clientOf(await gateway.issueKey()).vectorStores.list()).data).toEqual([]);
    for (const [param, value] of Object.entries({ limit: '0', order: 'up' })) {
      const { status, text } = await call(keys[0], 'GET', `/v1/vector_stores?${param}=${value}`);
      expect([status, JSON.parse(text).error.param]).toEqual([400, param]);
    }
  });

  test('includes the results of its batches, from the answer that first names them', async () => {
    const input = await fileOf(one, LINE, 'batch');
    const batch = await one.batches.create({
      input_file_id: input,
      endpoint: '/v1/embeddings',
      completion_window: '24h',
    });
    const output = upstream.put('files', { object: 'file' });
    const thing = upstream.things.get(batch.id);
    await expect(one.files.retrieve(output)).rejects.toMatchObject({ status: 404 });
    upstream.things.set(batch.id, { ...thing, id: batch.id, output_file_id: output, error_file_id: null });
    await one.batches.list();
    expect(await one.files.retrieve(output)).toMatchObject({ id: output });
    await expect(other.files.retrieve(output)).rejects.toMatchObject({ status: 404 });
  });

  test('of a completed upload is had by its holder, although the client left before the answer', async () => {
    const [leaving, client] = [new AbortController(), clientOf(await gateway.issueKey())];
    const upload = await client.uploads.create({
      bytes: 3,
      filename: 'f',
      mime_type: 'text/plain',
      purpose: 'assistants',
    });
    const part = await client.uploads.parts.create(upload.id, {
      data: await toFile(Buffer.from('abc'), 'p'),
    });
    let made: string | undefined;
    upstream.intercept = (request, response) => {
      if (request.url?.endsWith('/complete') !== true) return false;
      request.resume().on('end', async () => {
        leaving.abort();
        // A call that is not kept ends here.
        await Promise.race([once(response, 'close'), pause(500)]);
        made = upstream.put('files', { object: 'file', purpose: 'assistants' });
        const answer = { ...upstream.things.get(upload.id), file: upstream.things.get(made) };
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
      });
      return true;
    };
    const completed = client.uploads.complete(upload.id, { part_ids: [part.id] }, { signal: leaving.signal });
    await expect(completed).rejects.toThrow();
    await until(
      async () => (await client.files.list()).data.some(({ id }) => id === made),
      'the file of the upload',
    );
  });

  test('is deleted by an answer without a body, as that of Azure', async () => {
    const file = await fileOf(one);
    upstream.intercept = (request, response) => {
      if (request.method !== 'DELETE') return false;
      response.writeHead(204).end();
      return true;
    };
    expect(await call(keys[0], 'DELETE', `/v1/files/${file}`)).toMatchObject({ status: 204, text: '' });
    upstream.asked.length = 0;
    expect((await one.files.list()).data.map(({ id }) => id)).not.toContain(file);
    expect(upstream.asked.map(({ url }) => url)).not.toContain(`/v1/files/${file}`);
  });

  test('that an upstream calls gone is left out of a list', async () => {
    const client = clientOf(await gateway.issueKey());
    const files = [await fileOf(client), await fileOf(client)];
    upstream.intercept = (request, response) => {
      if (request.url !== `/v1/files/${files[0]}`) return false;
      response.writeHead(410, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify({ error: { message: 'This file has expired.', type: 'invalid_request_error' } }),
      );
      return true;
    };
    expect((await client.files.list()).data.map(({ id }) => id)).toEqual([files[1]]);
  });

  test('can be deleted during a list', async () => {
    const client = clientOf(await gateway.issueKey());
    for (let i = 0; i < 5; i++) await client.vectorStores.create({});
    let count = 0;
    for await (const { id } of client.vectorStores.list({ limit: 2 })) {
      await client.vectorStores.delete(id);
      count += 1;
    }
    expect(count).toBe(5);
    expect((await client.vectorStores.list()).data).toEqual([]);
  });
});

test('a file of any size is forwarded byte for byte, in flat memory', async () => {
  const size = 192 * 1024 * 1024;
  await using own = await startGateway({
    process: true,
    upstreams: { up: upstream.baseUrl },
    config: { passthrough: { upstream: 'up', paths: ['/v1/files'] } },
  });
  const key = await own.key();
  await call(key, 'GET', '/v1/files', undefined, {}, own);
  const memory = async (name: string) => {
    const status = await readFile(`/proc/${own.child.pid}/status`, 'utf8');
    return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) * 1024;
  };
  const before = await memory('VmRSS');
  const piece = randomBytes(1024 * 1024);
  const hash = createHash('sha256');
  const answer = new Promise<number | undefined>((resolve, reject) => {
    const request = httpRequest(`${own.url}/v1/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'multipart/form-data; boundary=b' },
    });
    request.once('error', reject);
    request.once('response', (response) => {
      response.resume();
      response.once('end', () => resolve(response.statusCode));
    });
    let left = size;
    const more = () => {
      if (left === 0) return void request.end();
      left -= piece.length;
      hash.update(piece);
      if (request.write(piece)) setImmediate(more);
      else request.once('drain', more);
    };
    more();
  });
  expect(await within(answer, 'the upload')).toBe(200);
  const asked = upstream.asked.at(-1);
  expect([asked?.bytes, asked?.sha256]).toEqual([size, hash.digest('hex')]);
  await own.logLine((line) => line['bytes_in'] === size);
  expect((await memory('VmHWM')) - before).toBeLessThan(size / 2);
});

describe('an object of another holder', () => {
  let file: string;
  let batch: string;
  let store: string;
  let conversation: string;
  let upload: string;
  let part: string;
  let mine: string;

  beforeAll(async () => {
    upstream.intercept = undefined;
    file = await fileOf(one, 'secret');
    const input = await fileOf(one, LINE, 'batch');
    batch = (
      await one.batches.create({ input_file_id: input, endpoint: '/v1/embeddings', completion_window: '24h' })
    ).id;
    store = (await one.vectorStores.create({})).id;
    conversation = (await one.conversations.create({})).id;
    upload = (
      await one.uploads.create({ bytes: 1, filename: 'f', mime_type: 'text/plain', purpose: 'assistants' })
    ).id;
    part = (await one.uploads.parts.create(upload, { data: await toFile(Buffer.from('a'), 'p') })).id;
    mine = (await other.vectorStores.create({})).id;
  });

  const attempts = (): readonly (readonly [string, string, object?])[] => [
    ['GET', `/v1/files/${file}`],
    ['DELETE', `/v1/files/${file}`],
    ['GET', `/v1/files/${file}/content`],
    ['GET', `/v1/batches/${batch}`],
    ['POST', `/v1/batches/${batch}/cancel`],
    ['GET', `/v1/vector_stores/${store}`],
    ['POST', `/v1/vector_stores/${store}`, { name: 'x' }],
    ['DELETE', `/v1/vector_stores/${store}`],
    ['POST', `/v1/vector_stores/${store}/search`, { query: 'x' }],
    ['GET', `/v1/vector_stores/${store}/files`],
    ['GET', `/v1/vector_stores/${mine}/files/${file}`],
    ['GET', `/v1/vector_stores/${mine}/files/${file}/content`],
    ['DELETE', `/v1/vector_stores/${mine}/files/${file}`],
    ['GET', `/v1/conversations/${conversation}`],
    ['GET', `/v1/conversations/${conversation}/items`],
    ['DELETE', `/v1/conversations/${conversation}`],
    ['POST', `/v1/uploads/${upload}/complete`, { part_ids: [] }],
    ['POST', `/v1/uploads/${upload}/cancel`],
    ['POST', '/v1/batches', { input_file_id: file, endpoint: '/v1/embeddings', completion_window: '24h' }],
    ['POST', '/v1/vector_stores', { file_ids: [file] }],
    ['POST', `/v1/vector_stores/${mine}/files`, { file_id: file }],
    ['POST', `/v1/vector_stores/${mine}/file_batches`, { file_ids: [file] }],
    ['POST', `/v1/vector_stores/${mine}/file_batches`, { files: [{ file_id: file }] }],
    [
      'POST',
      '/v1/conversations',
      { items: [{ type: 'message', role: 'user', content: [{ type: 'input_image', file_id: file }] }] },
    ],
    ['POST', '/v1/conversations', { anything: { deep: [[file]] } }],
    ['POST', '/v1/conversations', { conversation: { id: conversation } }],
    ['POST', '/v1/conversations', { items: [{ type: 'item_reference', id: 'msg_1' }] }],
    ['GET', `/v1/vector_stores/${mine}/files?after=${file}`],
    ['GET', `/v1/vector_stores/${mine}/files?x=%66ile${file.slice(4)}`],
  ];

  test('is not found, however it is named, and the upstream is not asked', async () => {
    const unknown = await call(keys[1], 'GET', `/v1/files/file-${'0'.repeat(24)}`);
    for (const [method, path, body] of attempts()) {
      upstream.asked.length = 0;
      const answer = await call(keys[1], method, path, body);
      expect([method, path, body, answer.status, codeIn(answer.text)]).toEqual([
        method,
        path,
        body,
        404,
        'object_not_found',
      ]);
      expect(answer.text).toBe(unknown.text);
      expect(upstream.asked).toEqual([]);
    }
    expect(await (await one.files.content(file)).text()).toBe('secret');
  });

  test.each([
    ['twice, the other first', () => `{"file_ids":["${file}"],"file_ids":[]}`],
    ['twice, the other last', () => `{"file_ids":[],"file_ids":["${file}"]}`],
    ['in another spelling', () => `{"f\\u0069le_ids":["\\u0066${file.slice(1)}"]}`],
    ['beside what is free', () => `{"metadata":{"a":"b"},"file_ids":["${file}"]}`],
  ])('is not found if it is named %s', async (_what, body) => {
    upstream.asked.length = 0;
    expect((await call(keys[1], 'POST', '/v1/vector_stores', body())).status).toBe(404);
    expect(upstream.asked).toEqual([]);
  });

  test('is not reachable through the input file of a batch', async () => {
    const lines = [
      '{"custom_id":"1","body":{"model":"m"}}',
      `{"custom_id":"2","body":{"input":[{"type":"input_file","file_id":"${file}"}]}}`,
    ];
    const input = await fileOf(other, lines.join('\n'), 'batch');
    upstream.asked.length = 0;
    const body = { input_file_id: input, endpoint: '/v1/responses', completion_window: '24h' };
    expect(codeIn((await call(keys[1], 'POST', '/v1/batches', body)).text)).toBe('object_not_found');
    expect(upstream.asked.map(({ method }) => method)).toEqual(['GET']);
    const stored = await fileOf(other, '{"body":{"previous_response_id":"resp_1"}}', 'batch');
    const third = await call(keys[1], 'POST', '/v1/batches', { ...body, input_file_id: stored });
    expect(codeIn(third.text)).toBe('object_not_found');
    const odd = await fileOf(other, '{"custom_id":', 'batch');
    expect(codeIn((await call(keys[1], 'POST', '/v1/batches', { ...body, input_file_id: odd })).text)).toBe(
      'invalid_json',
    );
  });

  test('is not reachable through a completion', async () => {
    const content = [{ type: 'file', file: { file_id: file } }];
    const ask = (key: string) =>
      call(key, 'POST', '/v1/chat/completions', {
        model: 'test-model',
        messages: [{ role: 'user', content }],
      });
    upstream.asked.length = 0;
    expect(codeIn((await ask(keys[1])).text)).toBe('object_not_found');
    expect(upstream.asked).toEqual([]);
    await ask(keys[0]);
    expect(upstream.asked.map(({ url }) => url)).toEqual(['/v1/chat/completions']);
  });

  test('is in no list, and neither are objects without an owner', async () => {
    const stranger = upstream.put('files', { object: 'file' });
    for (const list of [
      await other.files.list(),
      await other.batches.list(),
      await other.vectorStores.list(),
    ]) {
      const ids = list.data.map(({ id }) => id);
      for (const id of [file, batch, store, stranger]) expect(ids).not.toContain(id);
    }
    await expect(other.files.retrieve(stranger)).rejects.toMatchObject({ status: 404 });
  });

  test('keeps its owner if the upstream returns its id again', async () => {
    upstream.intercept = (request, response) => {
      request.resume();
      request.once('end', () => response.end(JSON.stringify({ id: file, object: 'file', secret: 1 })));
      return true;
    };
    const answer = await call(keys[1], 'POST', '/v1/conversations', {});
    expect([answer.status, codeIn(answer.text)]).toEqual([502, 'upstream_invalid_response']);
    expect(answer.text).not.toContain('secret');
  });

  test('texts that only resemble ids are texts', async () => {
    const answer = await call(keys[1], 'POST', '/v1/conversations', {
      metadata: { file_id: file, note: part },
      items: [
        { type: 'message', role: 'user', content: 'file-system' },
        { type: 'function_call_output', call_id: 'call_1', output: `see ${file}` },
      ],
    });
    expect(answer.status).toBe(200);
  });
});

describe('a call', () => {
  test.each([
    ['GET', '/v1/files/../batches', 404],
    ['GET', '/v1/files/..%2fbatches', 404],
    ['GET', '/v1/files/%66ile-1', 404],
    ['GET', '/v1/files//content', 404],
    ['GET', '/v1/files/', 404],
    ['GET', '/v1/files/file-1/content/x', 404],
    ['POST', '/v1/files/file-1/content', 405],
    ['DELETE', '/v1/batches', 405],
    ['GET', '/v1/assistants', 404],
    ['GET', '/v1/filesystem', 404],
  ])('%s %s is not in the table', async (method, path, status) => {
    using raw = await gateway.connect();
    const response = await raw.ask({
      method,
      target: path,
      headers: { authorization: `Bearer ${keys[0]}`, 'content-length': '0' },
    });
    expect(response.status).toBe(status);
    expect(upstream.asked).toEqual([]);
  });

  test('without a key is rejected, and so is one that is not offered', async () => {
    expect((await call('0'.repeat(32), 'GET', '/v1/files')).status).toBe(401);
    await using plain = await startGateway();
    const answer = await fetch(`${plain.url}/v1/files`, {
      headers: { authorization: `Bearer ${await plain.key()}` },
    });
    expect([answer.status, codeIn(await answer.text())]).toEqual([404, 'unknown_url']);
  });

  test.each([
    [401, 406, 'upstream_auth_error'],
    [400, 400, 'theirs'],
    [429, 429, 'theirs'],
    [500, 500, 'theirs'],
    [302, 502, 'upstream_invalid_response'],
  ])('that the upstream answers with %i', async (given, status, code) => {
    upstream.intercept = (request, response) => {
      request.resume();
      response.writeHead(given, { 'content-type': 'application/json', location: 'http://127.0.0.1:9/' });
      response.end(JSON.stringify({ error: { message: 'no', type: 't', param: null, code: 'theirs' } }));
      return true;
    };
    const answer = await call(keys[0], 'POST', '/v1/conversations', {});
    expect([answer.status, codeIn(answer.text)]).toEqual([status, code]);
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')).toBe(0);
  });

  test('with HEAD has the headers of GET, and no body', async () => {
    const file = await fileOf(one, 'x'.repeat(1000));
    const content = await call(keys[0], 'HEAD', `/v1/files/${file}/content`);
    expect([content.status, content.headers.get('content-length'), content.text]).toEqual([200, '1000', '']);
    const list = await call(keys[0], 'HEAD', '/v1/files');
    expect([list.status, list.text]).toEqual([200, '']);
    expect(Number(list.headers.get('content-length'))).toBeGreaterThan(100);
    expect((await call(keys[1], 'HEAD', `/v1/files/${file}/content`)).status).toBe(404);
    await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
  });

  test('that the upstream does not answer, or not completely', async () => {
    const file = await fileOf(one, 'x'.repeat(1000));
    upstream.intercept = (request) => {
      request.resume();
      return true;
    };
    const silent = await call(keys[0], 'POST', '/v1/conversations', {});
    expect([silent.status, codeIn(silent.text)]).toEqual([504, 'upstream_timeout']);
    upstream.intercept = (_request, response) => {
      response.writeHead(200, { 'content-length': '1000' });
      response.write('half', () => response.destroy());
      return true;
    };
    await expect(call(keys[0], 'GET', `/v1/files/${file}/content`)).rejects.toThrow();
    upstream.intercept = (_request, response) => {
      response.write('half', () => response.destroy());
      return true;
    };
    await expect(call(keys[0], 'GET', `/v1/files/${file}/content`)).rejects.toThrow();
    const cut = await call(keys[0], 'GET', '/v1/batches');
    expect([cut.status, codeIn(cut.text)]).toEqual([502, 'upstream_invalid_response']);
  });

  test('with a body that is too large, or not JSON', async () => {
    const large = await call(keys[0], 'POST', '/v1/files', undefined, {}).then(() =>
      fetch(`${gateway.url}/v1/files`, {
        method: 'POST',
        headers: { authorization: `Bearer ${keys[0]}` },
        body: new Blob([Buffer.alloc(41 * 1024 * 1024)]),
      }),
    );
    expect(large.status).toBe(413);
    await large.text();
    expect(codeIn((await call(keys[0], 'POST', '/v1/batches', '{"a":')).text)).toBe('invalid_json');
    expect(
      codeIn((await call(keys[0], 'POST', '/v1/batches', 'x', { 'content-type': 'text/plain' })).text),
    ).toBe('unsupported_content_type');
  });

  test('whose client disconnects during its file ends at the upstream', async () => {
    let ended: { readonly promise: Promise<unknown> } | undefined;
    upstream.intercept = (request) => {
      request.resume();
      ended = { promise: new Promise((resolve) => request.once('close', () => resolve(request.complete))) };
      return true;
    };
    using raw = await gateway.connect();
    await raw.write(
      `POST /v1/files HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${keys[0]}\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: 1000000\r\n\r\n--b`,
    );
    const { promise } = await until(() => ended, 'the upload at the upstream');
    raw.destroy();
    expect(await within(promise, 'its end')).toBe(false);
    const line = await gateway.logLine(
      (each) => each['status'] === 499 && each['route'] === '/v1/files',
      'its line',
    );
    expect(line).toMatchObject({ outcome: 'client_closed', upstream: 'up' });
  });

  test('counts as a request', async () => {
    await using small = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        passthrough: { upstream: 'up', paths: ['/v1/conversations'] },
        tiers: { Pro: { requests_per_minute: 1, tokens_per_minute: 1 } },
      },
    });
    const ask = async () => {
      const headers = { authorization: `Bearer ${await small.key()}`, 'content-type': 'application/json' };
      return await fetch(`${small.url}/v1/conversations`, { method: 'POST', headers, body: '{}' });
    };
    const first = await ask();
    expect([first.status, first.headers.get('x-ratelimit-remaining-requests')]).toEqual([200, '0']);
    expect((await ask()).status).toBe(429);
  });

  test('counts as a request of its key and team, too', async () => {
    await using small = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { passthrough: { upstream: 'up', paths: ['/v1/conversations'] } },
    });
    const { key } = await small.app.issuer.issue({
      tier: 'Pro',
      key: { terms: { limits: { requests_per_day: 1, tokens_per_day: 1 }, budget: { per_day: 1 } } },
    });
    const headers = { authorization: `Bearer ${key.reveal()}`, 'content-type': 'application/json' };
    const ask = () => fetch(`${small.url}/v1/conversations`, { method: 'POST', headers, body: '{}' });
    expect((await ask()).status).toBe(200);
    expect(await (await ask()).json()).toMatchObject({
      error: { message: 'The limit of 1 requests per day of the key is reached.' },
    });
  });

  test('is answered 503 while the store is unavailable', async () => {
    await using own = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { passthrough: { upstream: 'up', paths: ['/v1/files'] } },
    });
    const client = new OpenAI({ apiKey: await own.key(), baseURL: `${own.url}/v1`, maxRetries: 0 });
    const file = await fileOf(client);
    const { DatabaseSync } = await import('node:sqlite');
    const database = new DatabaseSync(own.directory.file('tollgate.db'));
    database.exec('alter table objects rename to objects_away');
    upstream.asked.length = 0;
    await expect(client.files.retrieve(file)).rejects.toMatchObject({
      status: 503,
      code: 'store_unavailable',
    });
    await expect(client.files.list()).rejects.toMatchObject({ status: 503 });
    expect(upstream.asked).toEqual([]);
    await expect(fileOf(client)).rejects.toMatchObject({ status: 503 });
    database.exec('alter table objects_away rename to objects');
    database.close();
    expect((await client.files.retrieve(file)).id).toBe(file);
  });
});
