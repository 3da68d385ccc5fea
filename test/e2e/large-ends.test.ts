// Large bodies that end in any way, of any framing: the place and the reservation that they took are given back, always.
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FORM_TYPE, file, formBytes, field as formField, noise } from '../helpers/forms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  type Step,
  silence,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';

const RUNS = Math.min(Number(process.env['FUZZ_RUNS'] ?? 80), 2_000);
const AT_ONCE = 8;
const THRESHOLD = 64 * 1024;

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  // Not every request arrives there, so that each says itself how it is to be answered.
  const script: Step = (c) => (SCRIPTS[c.request.header('x-client-request-id') ?? ''] ?? silence())(c);
  upstream = await HostileUpstream.start({ script });
  gateway = await startGateway({
    config: {
      upstreams: { up: { base_url: upstream.baseUrl } },
      models: {
        m: { targets: [{ upstream: 'up', model: 'm' }] },
        whisper: { targets: [{ upstream: 'up', model: 'whisper' }] },
      },
      max_body: '1MiB',
      tiers: {
        Free: { concurrency: 4, requests_per_minute: 100_000, tokens_per_minute: 1_000_000 },
        Lite: {},
        Pro: {},
      },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

const chat = (fill: string) =>
  Buffer.from(JSON.stringify(chatRequest({ model: 'm', max_tokens: 5, user: fill })));
const CHAT = '/v1/chat/completions';
const FORM = '/v1/audio/transcriptions';

interface Body {
  readonly target: string;
  readonly bytes: Buffer;
  readonly headers: Record<string, string>;
}

const jsonBody = (bytes: Buffer, headers: Record<string, string> = {}): Body => ({
  target: CHAT,
  bytes,
  headers: { 'content-type': 'application/json', ...headers },
});

const BODIES: Record<string, Body> = {
  'just over the threshold': jsonBody(chat('x'.repeat(THRESHOLD))),
  large: jsonBody(chat('x'.repeat(500_000))),
  'small on the wire': jsonBody(gzipSync(chat('x'.repeat(600_000))), { 'content-encoding': 'gzip' }),
  'too large when decoded': jsonBody(gzipSync(chat('x'.repeat(3_000_000))), { 'content-encoding': 'gzip' }),
  'too large': jsonBody(chat('x'.repeat(1_100_000))),
  'no JSON at its end': jsonBody(Buffer.concat([chat('x'.repeat(200_000)), Buffer.from('}')])),
  'no UTF-8': jsonBody(
    Buffer.concat([chat('x'.repeat(200_000)).subarray(0, -3), Buffer.from([0xff, 0x22, 0x7d])]),
  ),
  'damaged gzip': jsonBody(gzipSync(noise(200_000)).fill(0, 7_000, 7_100), { 'content-encoding': 'gzip' }),
  'a form': {
    target: FORM,
    bytes: formBytes([formField('model', 'whisper'), file(noise(200_000))]),
    headers: { 'content-type': FORM_TYPE },
  },
  'a form whose model comes last': {
    target: FORM,
    bytes: formBytes([file(noise(200_000)), formField('model', 'whisper')]),
    headers: { 'content-type': FORM_TYPE },
  },
  'a form without a model': {
    target: FORM,
    bytes: formBytes([file(noise(200_000))]),
    headers: { 'content-type': FORM_TYPE },
  },
};

const SCRIPTS: Record<string, Step> = {
  good: json(200, completion({ content: 'yes' })),
  failing: json(500, {}),
  silent: silence(),
  resetting: (c) => c.reset(),
};

const run = fc.record({
  body: fc.constantFrom(...Object.keys(BODIES)),
  script: fc.constantFrom(...Object.keys(SCRIPTS)),
  isChunked: fc.boolean(),
  expects: fc.boolean(),
  /** Of the body; the client leaves, or stays, behind it. */
  share: fc.oneof(fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true })),
  end: fc.constantFrom('stays', 'FIN', 'RST'),
  waitMs: fc.integer({ min: 0, max: 40 }),
});
type Run = typeof run extends fc.Arbitrary<infer T> ? T : never;

async function carryOut(
  key: string,
  { body, script, isChunked, expects, share, end, waitMs }: Run,
): Promise<void> {
  const { target, bytes, headers } = BODIES[body] ?? jsonBody(chat(''));
  const client = await gateway.connect();
  const framing = isChunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': String(bytes.length) };
  const all = {
    authorization: `Bearer ${key}`,
    ...headers,
    ...framing,
    'x-client-request-id': script,
    ...(expects ? { expect: '100-continue' } : {}),
  };
  const part = bytes.subarray(0, Math.floor(bytes.length * share));
  try {
    await client.send({ method: 'POST', target, headers: Object.entries(all), body: '' });
    if (isChunked) {
      await client.write(`${part.length.toString(16)}\r\n`);
      await client.write(part);
      await client.write(share === 1 ? '\r\n0\r\n\r\n' : '\r\n');
    } else await client.write(part);
  } catch {
    // The gateway has answered and closed.
  }
  await pause(waitMs);
  // A silent upstream, or a body that does not come, would be waited for.
  if (end === 'stays' && share === 1 && script !== 'silent') await client.response().catch(() => undefined);
  else if (end === 'RST') client.reset();
  else client.destroy();
}

test('whatever becomes of a large body, its place is free again', async () => {
  const key = await gateway.issueKey('Free');
  await fc.assert(
    fc.asyncProperty(fc.array(run, { minLength: AT_ONCE, maxLength: AT_ONCE }), async (runs) => {
      await Promise.all(runs.map((each) => carryOut(key, each)));
      await until(
        async () =>
          (await gateway.metric('tollgate_limit_leases')) === 0 &&
          (await gateway.metric('tollgate_requests_in_flight')) === 0 &&
          (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0,
        'everything to be given back',
        10_000,
      );
    }),
    // Each failure waits for as long as it takes to be sure.
    { numRuns: RUNS / AT_ONCE, endOnFailure: true },
  );
  expect(gateway.logs.filter(({ level }) => level === 'error')).toEqual([]);
});
