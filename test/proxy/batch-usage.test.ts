// Batches whose output nobody reads, or that are read early, late, by another key or at another replica: the gateway follows each
// until it ends, and counts it once, for the key that created it.
import { once } from 'node:events';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout } from 'node:timers/promises';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isPrefix } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';

const CHAT = '/v1/chat/completions';
const USAGE = { prompt_tokens: 400, completion_tokens: 100, total_tokens: 500 };
const REPORT = { input_tokens: 4000, output_tokens: 1000, total_tokens: 5000 };
/** A line of an output file. */
const ANSWER = JSON.stringify({ custom_id: '1', response: { status_code: 200, body: { usage: USAGE } } });

let upstream: ObjectsUpstream;
let directory: TempDir;
let gateway: Gateway;
let replica: Gateway;
let store: Store;

function start(): Promise<Gateway> {
  const target = (model: string) => ({ targets: [{ upstream: 'up', model }] });
  return startGateway({
    config: {
      currency: 'EUR',
      store: `sqlite:${directory.file('tollgate.db')}`,
      upstreams: { up: { base_url: upstream.baseUrl } },
      models: {
        mine: { ...target('theirs'), price: { input: 2, output: 8, request: 0.01 } },
        sound: { ...target('sound'), price: { input: 2, output: 8, audio_output: 40 } },
      },
      passthrough: {
        upstream: 'up',
        paths: ['/v1/files', '/v1/batches'],
        batch_discount: 25,
        batch_poll: '1s',
      },
      tiers: { Lite: { tokens_per_day: 1_000 }, Pro: {} },
    },
  });
}

beforeAll(async () => {
  upstream = await ObjectsUpstream.start();
  directory = await tempDir();
  gateway = await start();
  replica = await start();
  store = await openStore({ kind: 'sqlite', path: directory.file('tollgate.db') });
});
afterAll(async () => {
  await store?.close();
  await replica?.close();
  await gateway?.close();
  await directory?.remove();
  await upstream?.[Symbol.asyncDispose]();
});

const clientOf = (apiKey: string, { url } = gateway) =>
  new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });

/** A batch that a new holder created, and never asks for. */
async function create(model = 'mine', at = gateway) {
  const key = await gateway.issueKey('Pro');
  const client = clientOf(key, at);
  const line = `{"custom_id":"1","method":"POST","url":"${CHAT}","body":{"model":"${model}","messages":[]}}`;
  const input = await client.files.create({
    file: await toFile(Buffer.from(line), 'a.jsonl'),
    purpose: 'batch',
  });
  const { id } = await client.batches.create({
    input_file_id: input.id,
    endpoint: CHAT,
    completion_window: '24h',
  });
  const set = (fields: object) => {
    upstream.things.set(id, { ...upstream.things.get(id), ...fields, id });
  };
  set({ status: 'in_progress' });
  /** @returns the id of the output file */
  const write = (text: string) => {
    const file = upstream.put('files', { object: 'file' });
    upstream.contents.set(file, Buffer.from(text));
    return file;
  };
  return { key, client, id, set, write };
}

/** What the holder of a key has used: tokens of input, of output, and the cost. */
async function used(key: string): Promise<[number, number, number | null]> {
  const headers = { authorization: `Bearer ${key}` };
  const { totals } = JSON.parse(await (await fetch(`${gateway.url}/admin/usage`, { headers })).text());
  return [totals.prompt_tokens, totals.completion_tokens, totals.cost];
}

const isCounted = (key: string) =>
  until(async () => (await used(key)).some((each, index) => index < 2 && each !== 0), 'the usage');
/** The batch is not asked for any more. */
const isForgotten = (id: string) =>
  until(async () => {
    const open = await store.objects.objectsOf({
      upstream: '',
      holderId: '',
      kind: 'uncounted batch',
      order: 'asc',
      limit: 1000,
    });
    return !open.some((each) => each.id === `up/${id}`);
  }, 'the end of the batch');
/** What a key has used in the store: model, target and tokens of input. */
async function groupsOf(key: string): Promise<string[]> {
  const lines = await store.usage.usageReport({ from: '2000', by: ['key', 'model', 'target'], limit: 1000 });
  const own = lines.filter(({ group }) => group[0] === key.slice(0, 8));
  return own.map(({ group, sums }) => `${group[1]} ${group[2]} ${sums.prompt}`);
}
const asksFor = (path: string) => upstream.asked.filter(({ url }) => url === path).length;
const costOf = (input: number, output: number, requests: number) =>
  (input * 2e-6 + output * 8e-6 + requests * 0.01) * 0.75;

describe.concurrent('a batch that nobody reads', () => {
  test('counts once it has ended, by its output file, and not again when that is read', async () => {
    const { key, client, id, set, write } = await create();
    await until(() => asksFor(`/v1/batches/${id}`) > 0, 'a question');
    expect(await used(key)).toEqual([0, 0, null]);
    const file = write(`${ANSWER}\n${ANSWER}\n`);
    set({ status: 'completed', output_file_id: file });
    await isCounted(key);
    const expected = [800, 200, expect.closeTo(costOf(800, 200, 2), 12)];
    expect(await used(key)).toEqual(expected);
    await isForgotten(id);
    expect((await client.batches.retrieve(id)).output_file_id).toBe(file);
    await (await client.files.content(file)).text();
    await (await clientOf(key, replica).files.content(file)).text();
    expect(await used(key)).toEqual(expected);
    await until(async () => (await groupsOf(key)).includes('mine theirs 800'), 'the usage of the key');
  });

  test('counts by its own report where that tells everything, without a read of the file', async () => {
    const { key, id, set, write } = await create();
    const file = write('');
    const report = { usage: REPORT, request_counts: { total: 9, completed: 7, failed: 2 } };
    set({ status: 'completed', output_file_id: file, ...report });
    await isCounted(key);
    expect(await used(key)).toEqual([4000, 1000, expect.closeTo(costOf(4000, 1000, 7), 12)]);
    await isForgotten(id);
    expect(asksFor(`/v1/files/${file}/content`)).toBe(0);
  });

  test('counts by its file where the price needs more than its report', async () => {
    const { key, set, write } = await create('sound');
    const details = { completion_tokens_details: { audio_tokens: 60 } };
    const body = { choices: [], usage: { ...USAGE, ...details } };
    const file = write(JSON.stringify({ response: { status_code: 200, body } }));
    set({ status: 'completed', output_file_id: file, usage: REPORT, request_counts: { completed: 1 } });
    await isCounted(key);
    const cost = (400 * 2 + 40 * 8 + 60 * 40) * 0.75e-6;
    expect(await used(key)).toEqual([400, 100, expect.closeTo(cost, 12)]);
  });

  test.each<[how: string, end: (write: (text: string) => string) => object, prompt: number]>([
    [
      'is cancelled counts what it did',
      (write) => ({ status: 'cancelled', output_file_id: write(ANSWER) }),
      400,
    ],
    [
      'expires counts what it did, also without a file',
      () => ({ status: 'expired', usage: REPORT, request_counts: { completed: 3 } }),
      4000,
    ],
    [
      'has lost its file counts what it reports',
      () => ({
        status: 'completed',
        output_file_id: 'file-gone',
        usage: REPORT,
        request_counts: { completed: 3 },
      }),
      4000,
    ],
    [
      'fails in part counts what did not fail',
      (write) => {
        const failed = '{"response":{"status_code":429,"body":{"error":{}}}}';
        const errors = write(failed);
        return { status: 'completed', output_file_id: write(`${failed}\n${ANSWER}`), error_file_id: errors };
      },
      400,
    ],
    ['fails counts nothing', () => ({ status: 'failed', request_counts: { completed: 0 } }), 0],
  ])('and %s', async (_how, end, prompt) => {
    const { key, id, set, write } = await create();
    set({ status: 'cancelling' });
    set(end(write));
    await isForgotten(id);
    await until(async () => (await used(key))[0] === prompt, 'the usage');
  });

  test('counts at another process when that which created it has ended', async () => {
    const brief = await start();
    const { key, id, set, write } = await create('mine', brief);
    await brief.close();
    set({ status: 'completed', output_file_id: write(ANSWER) });
    await isCounted(key);
    await isForgotten(id);
    expect((await used(key))[0]).toBe(400);
  });

  test('is followed by one process of the fleet', async () => {
    const { id, set } = await create();
    await until(() => asksFor(`/v1/batches/${id}`) >= 2, 'questions');
    const gauges = [gateway, replica].map((each) => each.metric('tollgate_followed_usage{kind="batch"}'));
    expect((await Promise.all(gauges)).filter((each) => each > 0)).toHaveLength(1);
    set({ status: 'failed' });
    await isForgotten(id);
  });

  test('is given up where the upstream has neither a report nor the file', async () => {
    const sample = 'tollgate_followed_usage_given_up_total{kind="batch",reason="gone"}';
    const gone = async () => (await gateway.metric(sample)) + (await replica.metric(sample));
    const before = await gone();
    const { key, id, set } = await create();
    set({ status: 'completed', output_file_id: `file-${id}` });
    await isForgotten(id);
    expect(await gone()).toBe(before + 1);
    expect((await used(key))[0]).toBe(0);
  });
});

describe.concurrent('the output of a batch', () => {
  test('that is read while it is written counts when it is complete', async () => {
    const { key, client, id, set, write } = await create();
    const file = write(ANSWER);
    set({ status: 'in_progress', output_file_id: file });
    await client.batches.retrieve(id);
    await (await client.files.content(file)).text();
    expect((await used(key))[0]).toBe(0);
    upstream.contents.set(file, Buffer.from([ANSWER, ANSWER, ANSWER].join('\n')));
    set({ status: 'completed' });
    await isCounted(key);
    expect((await used(key))[0]).toBe(1200);
  });

  test('counts for the key that created the batch, whichever key of the holder reads it', async () => {
    const { key, id, set, write } = await create();
    const prefix = key.slice(0, 8);
    if (!isPrefix(prefix)) throw new Error('no prefix');
    const issued = await gateway.app.issuer.issueFor(prefix);
    const reader = clientOf(issued?.key.reveal() ?? '');
    const file = write(ANSWER);
    set({ status: 'completed', output_file_id: file });
    await reader.batches.retrieve(id);
    await (await reader.files.content(file)).text();
    await isCounted(key);
    await until(async () => (await groupsOf(key)).includes('mine theirs 400'), 'the usage of the key');
  });

  test('counts before it is deleted, and is not deleted when it cannot be counted', async () => {
    const { key, client, id, set, write } = await create();
    const file = write(ANSWER);
    await until(() => asksFor(`/v1/batches/${id}`) >= 2, 'a long pause');
    set({ status: 'completed', output_file_id: file });
    await client.batches.retrieve(id);
    upstream.intercept = (request, response) => {
      if (request.url !== `/v1/files/${file}/content`) return false;
      response.writeHead(500).end('{}');
      return true;
    };
    await expect(client.files.delete(file)).rejects.toMatchObject({ status: 504, code: 'upstream_timeout' });
    expect(upstream.things.has(file)).toBe(true);
    upstream.intercept = undefined;
    await client.files.delete(file);
    expect(upstream.things.has(file)).toBe(false);
    await isCounted(key);
    expect((await used(key))[0]).toBe(400);
  });
});

describe('the creation of a batch', () => {
  /** The body of a request for one. */
  async function order(key: string) {
    const line = `{"custom_id":"1","url":"${CHAT}","body":{"model":"mine","messages":[]}}`;
    const file = await toFile(Buffer.from(line), 'a.jsonl');
    const input = await clientOf(key).files.create({ file, purpose: 'batch' });
    return JSON.stringify({ input_file_id: input.id, endpoint: CHAT, completion_window: '24h' });
  }

  test('counts also when its client leaves before the answer', async () => {
    const key = await gateway.issueKey('Pro');
    const body = await order(key);
    const leaving = new AbortController();
    let made: string | undefined;
    upstream.intercept = (request, response) => {
      if (request.url !== '/v1/batches' || request.method !== 'POST') return false;
      request.resume().on('end', async () => {
        leaving.abort();
        // A call that is not kept ends here.
        await Promise.race([once(response, 'close'), setTimeout(500)]);
        made = upstream.put('batches', { status: 'completed', output_file_id: upstream.put('files') });
        const batch = upstream.things.get(made);
        upstream.contents.set(String(batch?.['output_file_id']), Buffer.from(ANSWER));
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(batch));
      });
      return true;
    };
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const sent = fetch(`${gateway.url}/v1/batches`, {
      method: 'POST',
      headers,
      body,
      signal: leaving.signal,
    });
    await expect(sent).rejects.toThrow();
    await until(() => made !== undefined, 'the batch');
    upstream.intercept = undefined;
    await isCounted(key);
    expect((await used(key))[0]).toBe(400);
    expect((await clientOf(key).batches.list()).data.map(({ id }) => id)).toEqual([made]);
  });

  test('is undone where the store cannot record it', async () => {
    const key = await gateway.issueKey('Pro');
    const body = await order(key);
    const database = new DatabaseSync(directory.file('tollgate.db'));
    let made: string | undefined;
    upstream.intercept = (request, response) => {
      if (request.url !== '/v1/batches' || request.method !== 'POST') return false;
      database.exec('alter table objects rename to objects_away');
      made = upstream.put('batches', { status: 'validating' });
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(upstream.things.get(made)));
      return true;
    };
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(`${gateway.url}/v1/batches`, { method: 'POST', headers, body });
    database.exec('alter table objects_away rename to objects');
    database.close();
    upstream.intercept = undefined;
    expect(answer.status).toBe(503);
    expect(asksFor(`/v1/batches/${made}/cancel`)).toBe(1);
  });
});
