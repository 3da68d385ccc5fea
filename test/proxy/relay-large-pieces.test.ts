// Answers that are large because of what is in them: an image in a frame of chat, and as many embeddings as the API makes at once.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { base64Edits } from '../../src/proxy/answer/embeddings-form.ts';
import { EmbeddingsScan } from '../../src/proxy/answer/embeddings-scan.ts';
import { spliceSpans } from '../../src/proxy/request/request-scan.ts';
import { startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunkOf,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  lastChunk,
  reset,
  type Step,
  sse,
  wait,
} from '../helpers/hostile-upstream.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

const MIB = 1024 * 1024;
const OWN = { model: 'test-model' };

test('an image in a frame of chat comes through, and counts as an image', async () => {
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const url = `data:image/png;base64,${'QUJD'.repeat(2 * MIB)}`;
  const images = [{ type: 'image_url', image_url: { url } }];
  const frames = [frame(chunkOf({ images }, OWN)), frame(finishChunk('stop', OWN)), DONE];
  upstream.next(sse(frames, { done: false }));
  const answer = await gateway.chat(chatRequest({ stream: true }));
  expect([answer.complete, answer.text() === frames.join('')]).toEqual([true, true]);
  expect(await gateway.accessLine(answer)).toMatchObject({ outcome: 'ok' });
});

/** `count` vectors, each the same; ends in `rest`. */
const embeddings =
  (count: number, vector: string, rest: string, end: Step = lastChunk()): Step =>
  async (c) => {
    await head(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' })(c);
    await c.chunk('{"object":"list","data":[');
    for (let index = 0; index < count; index++)
      await c.chunk(`${index === 0 ? '' : ','}{"object":"embedding","index":${index},"embedding":${vector}}`);
    await c.chunk(`],${rest}`);
    await end(c);
  };
const REST = '"model":"upstream-model","usage":{"prompt_tokens":2048,"total_tokens":2048}}';

const numbers = (count: number) =>
  Array.from({ length: count }, (_, i) => ((i * 7919) % 100_003) / 100_003 - 0.51);
const peakMib = (pid: number | undefined) =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

describe('the largest answer of embeddings', () => {
  test('reaches the client in flat memory, as numbers and in base64', { timeout: 120_000 }, async () => {
    await using upstream = await HostileUpstream.start();
    await using gateway = await startGateway({ process: true, upstreams: { up: upstream.baseUrl } });
    const vector = numbers(3072);
    const text = JSON.stringify(vector);
    const base64 = Buffer.from(new Float32Array(vector).buffer).toString('base64');
    const whole = (count: number, each: string) => {
      const hash = createHash('sha256').update('{"object":"list","data":[');
      for (let index = 0; index < count; index++)
        hash.update(`${index === 0 ? '' : ','}{"object":"embedding","index":${index},"embedding":${each}}`);
      return hash.update(`],${REST.replace('upstream-model', 'test-model')}`).digest('hex');
    };
    const ask = async (count: number, format: object) => {
      upstream.next(embeddings(count, text, REST));
      const response = await fetch(`${gateway.url}/v1/embeddings`, {
        method: 'POST',
        headers: { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'test-model', input: ['x'], ...format }),
      });
      expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/json']);
      const hash = createHash('sha256');
      for await (const piece of response.body ?? []) hash.update(piece);
      return hash.digest('hex');
    };
    for (const format of [{}, { encoding_format: 'base64' }]) await ask(500, format);
    const before = peakMib(gateway.child.pid);
    const count = 2048;
    expect(await ask(count, {})).toBe(whole(count, text));
    expect(await ask(count, { encoding_format: 'base64' })).toBe(whole(count, `"${base64}"`));
    expect(text.length * count).toBeGreaterThan(80 * MIB);
    const grown = peakMib(gateway.child.pid) - before;
    console.log('GROWN', grown, (text.length * count) / MIB);
    expect(grown).toBeLessThan(64);
    const linesOf = () => gateway.logs.filter((line) => line['route'] === '/v1/embeddings');
    const lines = await until(
      () => (linesOf().length === 4 ? linesOf() : undefined),
      'the lines of the access log',
    );
    expect(lines.map((line) => [line['outcome'], line['prompt_tokens']])).toEqual([
      ['ok', 2048],
      ['ok', 2048],
      ['ok', 2048],
      ['ok', 2048],
    ]);
  });

  test('can be read by the SDK, and stops for a client that does not read', async () => {
    await using upstream = await HostileUpstream.start();
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    upstream.always(embeddings(200, JSON.stringify(numbers(3072)), REST));
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key() });
    const { data, model } = await client.embeddings.create({ model: 'test-model', input: ['x'] });
    expect([data.length, data[199]?.embedding.length, model]).toEqual([200, 3072, 'test-model']);

    upstream.always(embeddings(2000, JSON.stringify(numbers(3072)), REST));
    using slow = await RawClient.connect(gateway.url);
    slow.pause();
    const asked = upstream.requests.length;
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    await slow.send({ target: '/v1/embeddings', headers, body: { model: 'test-model', input: 'x' } });
    const request = await upstream.request(asked);
    let sent = -1;
    await until(async () => {
      const was = sent;
      sent = request.bytesSent;
      await new Promise((resolve) => setTimeout(resolve, 150));
      return was === request.bytesSent && sent > MIB;
    }, 'the upstream to be stopped');
    expect(sent).toBeLessThan(40 * MIB);
  });

  test.each<[string, Step, string]>([
    [
      'breaks off',
      embeddings(100, JSON.stringify(numbers(3072)), '', async (c) => await reset()(c)),
      'stream_incomplete',
    ],
    ['ends too early', embeddings(100, JSON.stringify(numbers(3072)), ''), 'stream_incomplete'],
    [
      'has vectors of something else',
      embeddings(100, `[${'"x",'.repeat(9000)}1]`, REST),
      'upstream_invalid_response',
    ],
  ])('is cut where it %s', async (_name, script, outcome) => {
    await using upstream = await HostileUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { retry: { attempts: 1 } },
    });
    upstream.next([script, wait(1)]);
    using client = await gateway.connect();
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const body = { model: 'test-model', input: 'x', encoding_format: 'base64' };
    const answer = await client.ask({ target: '/v1/embeddings', headers, body });
    if (answer.status === 200) expect(answer.complete).toBe(false);
    expect(await gateway.accessLine(answer)).toMatchObject({ outcome });
  });
});

test('embeddings that are read as they come are what they would be as a whole, however they are cut', async () => {
  const space = fc.constantFrom('', ' ', '\n', '\r\n\t');
  const key = fc.constantFrom(
    '"id"',
    '"usage"',
    '"embedding"',
    '"mod\\u0065l"',
    '"a\\"b"',
    '"x\\\\"',
    '"data"',
    '"index"',
  );
  const plain = fc.oneof(
    fc.constantFrom(
      '1',
      'null',
      'true',
      '"model"',
      '"\\\\"',
      '"a,]}\\""',
      '{}',
      '[]',
      '[1,[2]]',
      '{"model":"x","data":[1]}',
    ),
    fc.string({ maxLength: 8 }).map((text) => JSON.stringify(text)),
  );
  const vector = fc.oneof(
    fc
      .array(fc.float({ noNaN: true, noDefaultInfinity: true }), { maxLength: 5 })
      .map((each) => JSON.stringify(each)),
    fc.constantFrom('"AAAA"', 'null', '[ 1.0 ,-2e0 ]'),
  );
  const element = fc
    .tuple(space, key, plain, vector)
    .map(
      ([pad, name, value, each]) =>
        `{${pad}"index":0,${name === '"embedding"' || name === '"data"' ? '"n"' : name}:${value},${pad}"embedding"${pad}:${pad}${each}${pad}}`,
    );
  const answer = fc
    .tuple(space, fc.array(element, { maxLength: 4 }), key, plain, fc.boolean())
    .map(([pad, elements, name, value, isFirst]) => {
      const own = ['"id"', '"a\\"b"', '"x\\\\"', '"embedding"'].includes(name) ? name : '"other"';
      const model = `"model"${pad}:${pad}"up\\"stream"`;
      const data = `"data":[${elements.join(`${pad},`)}]`;
      const usage = '"usage":{"prompt_tokens":3,"x":{"y":[1]},"total_tokens":3}';
      return `${pad}{${(isFirst ? [model, `${own}:${value}`, data, usage] : [data, usage, `${own}:${value}`, model]).join(`${pad},`)}}${pad}`;
    });
  const alias = Buffer.from('"alias"');
  await fc.assert(
    fc.asyncProperty(answer, fc.array(fc.nat(400)), fc.boolean(), async (text, cuts, inBase64) => {
      const body = Buffer.from(text);
      const at = text.indexOf('"up\\"stream"');
      const span = {
        start: Buffer.byteLength(text.slice(0, at)),
        end: Buffer.byteLength(text.slice(0, at)) + 12,
      };
      const edits = [...(inBase64 ? await base64Edits(body) : []), { span, bytes: alias }];
      const scan = new EmbeddingsScan(alias, inBase64);
      const out: Buffer[] = [];
      let from = 0;
      for (const to of [...cuts.sort((a, b) => a - b), body.length]) {
        if (to > body.length || to < from) continue;
        out.push(...scan.next(Buffer.from(body.subarray(from, to))));
        from = to;
      }
      expect(Buffer.concat(out).toString()).toBe(spliceSpans(body, edits).toString());
      expect([scan.isWhole, scan.hasData, scan.usage?.prompt]).toEqual([true, true, 3]);
    }),
    { numRuns: 500 },
  );
});
