// The usage of background responses that no call of their client shows: the gateway reads it from the upstream itself.
import { createServer, type Server, type ServerResponse } from 'node:http';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { eventFrame, inputUsage, responseObject } from '../helpers/recorded.ts';
import { until } from '../helpers/wait.ts';

const INPUT = 'x'.repeat(400);
const TEXT = 'word '.repeat(400);
const DONE = { usage: inputUsage({ input: 1000, output: 50 }) };
const RUNNING = { status: 'in_progress', usage: null };

/** Responses by id, as the upstream has them now. */
const responses = new Map<string, object>();
const asked: string[] = [];
let server: Server;
let gateway: Gateway;
let created = 0;

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

/** Of a stream: the text and no end. */
function stream(response: ServerResponse, id: string): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const at = { item_id: 'msg_1', output_index: 0, content_index: 0 };
  response.write(eventFrame({ type: 'response.created', response: responseObject({ id, ...RUNNING }) }));
  response.write(eventFrame({ type: 'response.output_text.delta', ...at, delta: TEXT }));
}

beforeAll(async () => {
  server = createServer((request, response) => {
    const { method = '', url = '' } = request;
    const { pathname, searchParams } = new URL(url, 'http://localhost');
    const id = pathname.split('/')[3] ?? '';
    asked.push(`${method} ${id}`);
    request.resume().on('end', () => {
      if (method === 'POST') {
        created += 1;
        const made = `resp_${created}`;
        responses.set(made, RUNNING);
        send(response, 200, responseObject({ id: made, ...RUNNING }));
      } else if (method === 'DELETE') {
        responses.delete(id);
        send(response, 200, { id, object: 'response', deleted: true });
      } else if (searchParams.get('stream') === 'true') stream(response, id);
      else {
        const found = responses.get(id);
        if (found === undefined) send(response, 404, { error: { message: 'gone', type: 'x' } });
        else send(response, 200, responseObject({ id, ...found }));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  gateway = await startGateway({
    upstreams: { up: `http://127.0.0.1:${address.port}/v1` },
    config: {
      models: { m: { targets: [{ upstream: 'up', model: 'm' }], price: { input: 1, output: 2 } } },
      tiers: { Lite: { tokens_per_day: 100_000, budget: { per_day: 1 } }, Pro: {} },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  server?.closeAllConnections();
  server?.close();
});

async function begin() {
  const apiKey = await gateway.issueKey('Lite');
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 });
  const { id } = await client.responses.create({ model: 'm', input: INPUT, background: true });
  const read = async () => {
    const headers = { authorization: `Bearer ${apiKey}` };
    return JSON.parse(await (await fetch(`${gateway.url}/admin/usage`, { headers })).text());
  };
  const counted = async () => {
    const { totals } = await read();
    return [totals.prompt_tokens, totals.completion_tokens];
  };
  return { client, id, read, counted };
}

/** Reads the text of a response as a stream, and leaves before its end. */
async function peek(client: OpenAI, id: string): Promise<void> {
  for await (const event of await client.responses.retrieve(id, { stream: true }))
    if (event.type === 'response.output_text.delta') break;
}

describe('a background response', () => {
  test('whose client reads only its text, from a stream that it leaves, counts what the upstream says', async () => {
    const { client, id, read, counted } = await begin();
    await peek(client, id);
    expect((await counted())[1]).toBe(0);
    responses.set(id, DONE);
    await until(async () => (await counted())[1] === 50, 'the usage');
    const { totals, limits } = await read();
    expect(totals).toMatchObject({ prompt_tokens: 1000, completion_tokens: 50, requests: 2 });
    expect(totals.cost).toBeCloseTo((1000 + 2 * 50) * 1e-6, 12);
    expect(limits).toContainEqual(expect.objectContaining({ limit: 'tokens_per_day', used: 1050 }));
    const used: unknown = expect.closeTo(0.0011, 9);
    expect(limits).toContainEqual(expect.objectContaining({ limit: 'cost_per_day', used }));
    expect(await gateway.metric('tollgate_followed_usage{kind="response"}')).toBe(0);
    await client.responses.retrieve(id);
    expect(await counted()).toEqual([1000, 50]);
  });

  test('is asked for its usage before it is deleted', async () => {
    const { client, id, counted } = await begin();
    responses.set(id, DONE);
    asked.length = 0;
    await client.responses.delete(id);
    expect(asked).toEqual([`GET ${id}`, `DELETE ${id}`]);
    await until(async () => (await counted())[1] === 50, 'the usage');
    expect(await counted()).toEqual([1000, 50]);
  });

  test('that ends without usage counts the text that was read of it', async () => {
    const ends = [
      (id: string) => responses.delete(id),
      (id: string) => responses.set(id, { status: 'cancelled', usage: null }),
    ];
    const ended = ends.map(async (end) => {
      const { client, id, counted } = await begin();
      await peek(client, id);
      end(id);
      await until(async () => (await counted())[1] > 0, 'the usage');
      expect((await counted())[1]).toBe(TEXT.length / 4);
    });
    await Promise.all(ended);
  });

  test('that the client polls is not asked for again', async () => {
    const { client, id, counted } = await begin();
    responses.set(id, DONE);
    await client.responses.retrieve(id);
    await until(async () => (await counted())[1] === 50, 'the usage');
    expect(await gateway.metric('tollgate_followed_usage{kind="response"}')).toBe(0);
    expect(await counted()).toEqual([1000, 50]);
  });
});
