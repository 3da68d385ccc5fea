// A request costs what the target charges that answered it, by whatever way it came there, and so does what was used elsewhere.
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket as Client } from 'ws';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  roleChunk,
  SSE_HEADERS,
  type Step,
  silence,
  sse,
  upstreamError,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { RealtimeUpstream, responseDone } from '../helpers/realtime-upstream.ts';
import { until, within } from '../helpers/wait.ts';

const TOKENS = { prompt: 1000, completion: 100 };
const WHOLE = json(200, completion({ tokens: TOKENS }));
const BUSY = json(503, upstreamError('busy'));
const STREAM = sse([
  frame(roleChunk()),
  frame(contentChunk('a')),
  frame(finishChunk()),
  frame(usageChunk(TOKENS)),
]);
const SILENT: Step[] = [head(200, SSE_HEADERS), silence()];
/** Its usage comes before its end, which does not come. */
const CUT: Step[] = [
  head(200, SSE_HEADERS),
  (c) => c.chunk(frame(contentChunk('a')) + frame(usageChunk(TOKENS))),
  silence(),
];
/** A failure that reports usage, before anything was sent to the client. */
const COSTLY = sse([frame(usageChunk(TOKENS)), upstreamError('broken')], { done: false });

/** By a price of a million for a million tokens. */
const ofFirst = 2 * TOKENS.prompt + 3 * TOKENS.completion;
const ofSecond = 50 * TOKENS.prompt + 70 * TOKENS.completion;
const ofModel = 500 * TOKENS.prompt + 700 * TOKENS.completion;

let first: HostileUpstream;
let second: HostileUpstream;
let session: RealtimeUpstream;
let gateway: Gateway;

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start();
  session = await RealtimeUpstream.start();
  const price = (input: number, output: number) => ({ input: input * 1e6, output: output * 1e6 });
  const cheap = { upstream: 'first', model: 'x', price: price(2, 3) };
  const dear = { upstream: 'second', model: 'x', priority: 2, price: price(50, 70) };
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: {
        first: { base_url: first.baseUrl },
        second: { base_url: second.baseUrl },
        session: { base_url: session.baseUrl },
      },
      models: {
        both: { targets: [cheap, dear], price: price(500, 700) },
        inherited: {
          targets: [cheap, { upstream: 'second', model: 'x', priority: 2 }],
          price: price(500, 700),
        },
        partly: { targets: [cheap, { upstream: 'second', model: 'x', priority: 2 }] },
        hedged: { targets: [cheap, dear], hedge: { after: '20ms' } },
        'some/*': { targets: [{ ...cheap, model: '*' }, dear] },
        session: {
          targets: [{ upstream: 'session', model: 'x', price: { ...price(2, 3), request: 5 } }],
          price: price(500, 700),
        },
      },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
  await session?.[Symbol.asyncDispose]();
});

async function totalsOf(key: string): Promise<Record<string, number>> {
  await until(() => gateway.app.inFlight === 0, 'the end of the request');
  const answer = await fetch(`${gateway.url}/admin/usage`, { headers: { authorization: `Bearer ${key}` } });
  return Object(Reflect.get(Object(await answer.json()), 'totals'));
}

test.each([
  ['the first target', 'both', false, WHOLE, WHOLE, ofFirst],
  ['the next target', 'both', false, BUSY, WHOLE, ofSecond],
  ['the next target of a pattern', 'some/model', false, BUSY, WHOLE, ofSecond],
  ['a stream of the next target', 'both', true, BUSY, STREAM, ofSecond],
  ['a target without a price of its own', 'inherited', false, BUSY, WHOLE, ofModel],
  ['a target without any price', 'partly', false, BUSY, WHOLE, null],
  ['a hedge', 'hedged', true, SILENT, STREAM, ofSecond],
  ['both targets, where both report usage', 'both', true, COSTLY, STREAM, ofFirst + ofSecond],
])('a request costs what %s charges', async (_, model, stream, one, two, expected) => {
  first.always(one);
  second.always(two);
  const key = await gateway.issueKey();
  const { status } = await gateway.chat(chatRequest({ model, stream }), { key });
  expect(status).toBe(200);
  expect((await totalsOf(key))['cost']).toBe(expected);
});

test('a request that its client left costs what the target charges that was answering', async () => {
  first.always(BUSY);
  second.always(CUT);
  const key = await gateway.issueKey();
  const client = await gateway.open(chatRequest({ model: 'both', stream: true }), { key });
  await client.readUntil('data: ');
  client.destroy();
  const { cost, prompt_tokens: prompt = 0, completion_tokens: output = 0 } = await totalsOf(key);
  expect(prompt).toBeGreaterThan(0);
  expect(cost).toBe(50 * prompt + 70 * output);
});

test('a session costs what its target charges', async () => {
  const key = await gateway.issueKey();
  const next = session.next();
  const client = new Client(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=session`, ['realtime'], {
    headers: { authorization: `Bearer ${key}` },
  });
  const got = within(once(client, 'message'), 'the answer');
  await within(once(client, 'open'), 'the session to open');
  (await next).socket.send(responseDone(10, 1));
  await got;
  client.close();
  await within(once(client, 'close'), 'the end of the session');
  // A session is one request.
  expect((await totalsOf(key))['cost']).toBe(2 * 10 + 3 + 5);
});
