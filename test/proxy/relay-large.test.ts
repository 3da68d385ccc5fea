// Bodies at the limit: what a client sends in 32 MiB reaches the upstream byte for byte, in every way of sending it.
import { createHash } from 'node:crypto';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
import { HostileUpstream } from '../helpers/hostile-upstream.ts';

const LIMIT = 32 * 1024 * 1024;
const HEAD = '{"seed":9223372036854775807,"model":"test-model","messages":[{"role":"user","content":"';
const TAIL = '"}] , "n":1.0}';
/** Image-like: base64 of bytes that follow each other without a short period. */
const IMAGE = Buffer.from(Array.from({ length: 3 << 16 }, (_, i) => (i * i * 31 + (i >> 3)) & 0xff)).toString(
  'base64',
);
const ROOM = LIMIT - HEAD.length - TAIL.length;
const BODY = Buffer.from(`${HEAD}${IMAGE.repeat(Math.ceil(ROOM / IMAGE.length)).slice(0, ROOM)}${TAIL}`);
const EXPECTED = digest(
  Buffer.from(BODY.toString('latin1').replace('"test-model"', '"upstream-model"'), 'latin1'),
);

const fast = { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } };

test.each([
  ['identity', (body: Buffer) => body],
  ['gzip', (body: Buffer) => gzipSync(body, { level: 1 })],
  ['deflate', (body: Buffer) => deflateSync(body, { level: 1 })],
  ['br', (body: Buffer) => brotliCompressSync(body, fast)],
  ['zstd', (body: Buffer) => zstdCompressSync(body)],
])('32 MiB sent as %s arrive byte for byte', async (coding, encode) => {
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({ process: true, upstreams: { up: upstream.baseUrl } });
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${await gateway.key()}`,
      'content-type': 'application/json',
      ...(coding === 'identity' ? {} : { 'content-encoding': coding }),
    },
    body: new Uint8Array(encode(BODY)),
  });
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  const request = await upstream.request(0);
  expect(request.header('content-encoding')).toBeUndefined();
  expect(digest(request.body)).toBe(EXPECTED);
});

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
