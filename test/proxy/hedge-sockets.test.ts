// Two upstreams on real sockets with any answers and any delays: one answer for the client, and no connection, place or
// permit left over. Every order within one tick is in hedge-property.test.ts.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  roleChunk,
  SSE_HEADERS,
  type Step,
  silence,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';

const NAMES = ['one', 'two', 'three'];
const ATTEMPTS = 3;
const own = { model: 'test-model' };
const framesOf = (name: string) => [
  frame(roleChunk(own)),
  frame(contentChunk(`from ${name}`, own)),
  frame(contentChunk(`and ${name} again`, own)),
  frame(finishChunk('stop', own)),
];

const SCRIPTS: Readonly<Record<string, (name: string) => Step[]>> = {
  stream: (name) => [sse(framesOf(name))],
  json: (name) => [json(200, completion({ content: `from ${name}` }))],
  silent: () => [head(200, SSE_HEADERS), silence()],
  mute: () => [silence()],
  failure: (name) => [json(503, upstreamError(`from ${name}`))],
  'caller at fault': (name) => [json(400, upstreamError(`from ${name}`))],
  'reset when sent': () => [reset()],
  'cut before output': () => [head(200, SSE_HEADERS), reset()],
  'error frame': (name) => [sse([upstreamError(`from ${name}`)], { done: false })],
  'cut after output': (name) => [
    head(200, SSE_HEADERS),
    (c) => c.chunk(framesOf(name).slice(0, 2).join('')),
    (c) => c.wait(5),
    reset(),
  ],
};

const upstreams: HostileUpstream[] = [];
let gateway: Gateway;

beforeAll(async () => {
  for (const _ of NAMES) upstreams.push(await HostileUpstream.start());
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      upstreams: {
        echo: null,
        ...Object.fromEntries(
          upstreams.map(({ baseUrl }, index) => [
            NAMES[index] ?? '',
            { base_url: baseUrl, timeouts: { headers: '200ms', first_token: '200ms' } },
          ]),
        ),
      },
      models: {
        'test-model': {
          targets: NAMES.map((upstream, index) => ({ upstream, model: 'x', priority: index + 1 })),
          hedge: { after: '15ms' },
        },
      },
      retry: { attempts: ATTEMPTS },
      stream: { commit_after: '100ms' },
    },
  });
  await gateway.key();
});
afterAll(async () => {
  await gateway?.close();
  for (const upstream of upstreams) await upstream.close();
});

const reply = fc.record({ script: fc.constantFrom(...Object.keys(SCRIPTS)), after: fc.nat(35) });

test('one answer, whole or visibly broken, and nothing left over', async () => {
  const plot = fc.record({
    replies: fc.array(reply, { minLength: 3, maxLength: 3 }),
    leaves: fc.option(fc.nat(60), { freq: 6 }),
  });
  await fc.assert(
    fc.asyncProperty(plot, async ({ replies, leaves }) => {
      const before = upstreams.map(({ requests }) => requests.length);
      for (const [index, upstream] of upstreams.entries()) {
        const { script, after } = replies[index] ?? { script: 'stream', after: 0 };
        const steps = SCRIPTS[script]?.(NAMES[index] ?? '') ?? [];
        upstream.always([(c) => c.wait(after), ...steps]);
      }
      const client = await gateway.open(chatRequest({ stream: true }));
      if (leaves !== null) {
        await until(() => (upstreams[0]?.requests.length ?? 0) > (before[0] ?? 0), 'the first request');
        await pause(leaves);
        client.destroy();
      } else {
        const response = await client.response();
        const text = response.text();
        const said = NAMES.filter((name) => text.includes(`from ${name}`));
        expect(said.length).toBeLessThanOrEqual(1);
        const [name = ''] = said;
        const isJson = replies[NAMES.indexOf(name)]?.script === 'json';
        if (response.status === 200 && response.complete && !isJson)
          expect(text).toBe([...framesOf(name), DONE].join(''));
        if (response.status === 200 && isJson) expect(text.endsWith(DONE)).toBe(true);
        client.destroy();
      }
      await until(() => gateway.app.inFlight === 0, 'the end of the request');
      await until(() => upstreams.every(({ answering }) => answering === 0), 'the end of every answer');
      const asked = upstreams.map(({ requests }, index) => requests.length - (before[index] ?? 0));
      expect(asked.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(ATTEMPTS);
      const exposed = await gateway.metrics();
      for (const name of NAMES) {
        expect(gateway.app.breaker(name, 'x')?.inFlight ?? 0).toBe(0);
        expect(exposed).not.toMatch(new RegExp(`tollgate_upstream_in_flight{upstream="${name}"} [^0]`));
      }
    }),
    { numRuns: 60 },
  );
  expect(await gateway.metric('tollgate_hedges_total{result="won"}')).toBeGreaterThan(0);
  expect(await gateway.metric('tollgate_hedges_total{result="lost"}')).toBeGreaterThan(0);
});
