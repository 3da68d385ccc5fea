// A client that takes its time between tokens still gets them all, and then the error: Node's fetch drops what it has queued
// when a connection breaks, so the gateway leaves a broken stream open for a moment.
import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
import { contentChunk, HostileUpstream, sse } from '../helpers/hostile-upstream.ts';
import { pause } from '../helpers/wait.ts';

test('a slow reader of a stream that breaks gets all that came, and the error', async () => {
  const chunks = [contentChunk('a'), contentChunk('b'), contentChunk('c')];
  await using upstream = await HostileUpstream.start(sse(chunks, { done: false }));
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
  for (let turn = 0; turn < 20; turn += 1) {
    let text = '';
    const reading = (async () => {
      const messages = [{ role: 'user' as const, content: 'x' }];
      const stream = await client.chat.completions.create({ model: 'test-model', messages, stream: true });
      for await (const each of stream) {
        text += each.choices[0]?.delta.content ?? '';
        await pause(10);
      }
    })();
    await expect(reading).rejects.toMatchObject({ code: 'stream_incomplete' });
    expect(text).toBe('abc');
  }
});
