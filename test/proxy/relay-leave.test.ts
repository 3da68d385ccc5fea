// How soon the upstream is let go when a client leaves, by FIN and by RST, before the answer and within it. The figures are
// printed; the bound is wide, because a machine that runs tests may be slow.
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
import { chatRequest, contentChunk, frame, HostileUpstream } from '../helpers/hostile-upstream.ts';
import { RawClient } from '../helpers/raw-client.ts';

const TURNS = 20;

test.each([
  ['FIN', 'before the answer'],
  ['RST', 'before the answer'],
  ['FIN', 'within a silent stream'],
  ['RST', 'within a silent stream'],
])('a client that leaves by %s %s lets the upstream go at once', async (how, when) => {
  await using upstream = await HostileUpstream.start(async (c) => {
    if (when === 'within a silent stream') {
      await c.head(200, { 'content-type': 'text/event-stream' });
      await c.chunk(frame(contentChunk('a')));
    }
    await c.silence();
  });
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const key = await gateway.key();
  const took: number[] = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    using client = await RawClient.connect(gateway.url);
    await client.send({ headers: { authorization: `Bearer ${key}` }, body: chatRequest({ stream: true }) });
    const request = await upstream.request(turn);
    if (when === 'within a silent stream') await client.readUntil('data: ');
    const left = performance.now();
    if (how === 'RST') client.reset();
    else client.destroy();
    await request.closed;
    took.push(performance.now() - left);
  }
  took.sort((a, b) => a - b);
  console.log(`${how} ${when}: median ${took[TURNS / 2]?.toFixed(1)} ms, most ${took.at(-1)?.toFixed(1)} ms`);
  expect(took.at(-1)).toBeLessThan(5_000);
});
