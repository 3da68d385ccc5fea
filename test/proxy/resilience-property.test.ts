// For any sequence of upstream outcomes: few requests, none after the point of no return, and nothing left over.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  close,
  contentChunk,
  HostileUpstream,
  head,
  json,
  reset,
  type Script,
  SSE_HEADERS,
  send,
  sse,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const ATTEMPTS = 4;

/** `last`: whether nobody may be asked after it. */
const OUTCOMES: Readonly<Record<string, { script: Script; last: boolean }>> = {
  answer: { script: standardAnswer, last: true },
  'broken after output': { script: sse([contentChunk('x')], { done: false }), last: true },
  'caller at fault': { script: json(400, upstreamError('no')), last: true },
  'reset when sent': { script: reset(), last: true },
  limit: { script: json(429, upstreamError('slow'), { 'retry-after-ms': '1' }), last: false },
  failure: { script: json(500, upstreamError('oops')), last: false },
  credentials: { script: json(401, upstreamError('key')), last: false },
  redirect: { script: json(302, {}, { location: '/' }), last: false },
  garbage: { script: [send('garbage\r\n\r\n'), close()], last: false },
  'cut before output': { script: [head(200, SSE_HEADERS), reset()], last: false },
  'error frame': { script: sse([upstreamError('first')], { done: false }), last: false },
};

const upstreams: HostileUpstream[] = [];
let gateway: Gateway;

beforeAll(async () => {
  for (let i = 0; i < 3; i += 1) upstreams.push(await HostileUpstream.start());
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: Object.fromEntries(upstreams.map(({ baseUrl }, index) => [`up${index}`, baseUrl])),
    config: { retry: { attempts: ATTEMPTS } },
  });
  await gateway.key();
});
afterAll(async () => {
  await gateway?.close();
  for (const upstream of upstreams) await upstream.close();
});

test('at most `attempts` requests, none after the point of no return, all permits back', async () => {
  const sequence = fc.array(fc.constantFrom(...Object.keys(OUTCOMES)), {
    minLength: ATTEMPTS + 2,
    maxLength: ATTEMPTS + 2,
  });
  await fc.assert(
    fc.asyncProperty(sequence, fc.boolean(), async (outcomes, stream) => {
      const asked: string[] = [];
      for (const upstream of upstreams) {
        upstream.always(async (conversation) => {
          const name = outcomes[asked.length] ?? 'answer';
          asked.push(name);
          const script = OUTCOMES[name]?.script ?? standardAnswer;
          const steps = typeof script === 'function' ? [script] : 'early' in script ? script.early : script;
          for (const step of steps) await step(conversation);
        });
      }
      const response = await gateway.chat(chatRequest({ stream }));
      await until(() => gateway.app.inFlight === 0, 'the end of the request');
      expect(asked.length).toBeGreaterThanOrEqual(1);
      // A kept connection that is reset is tried again on a new one, so a reset need not be the last.
      expect(asked.length).toBeLessThanOrEqual(ATTEMPTS);
      const isLast = (name: string) => name !== 'reset when sent' && OUTCOMES[name]?.last === true;
      // Without a stream an event stream is no answer, and the next may be asked.
      const final = asked.findIndex((name) => isLast(name) && (stream || name !== 'broken after output'));
      if (final !== -1) expect(asked.length).toBe(final + 1);
      if (asked.at(-1) === 'answer') expect(response.status).toBe(200);
      for (const index of upstreams.keys()) {
        expect(gateway.app.breaker(`up${index}`, 'upstream-model')?.inFlight ?? 0).toBe(0);
        expect(await gateway.metric(`tollgate_upstream_in_flight{upstream="up${index}"}`)).toBe(0);
      }
    }),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 40) },
  );
});
