// `retry.deadline` bounds the search for a target. An answer that has begun for the client is never cut by it.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  type Script,
  SSE_HEADERS,
  silence,
} from '../helpers/hostile-upstream.ts';

const DEADLINE_MS = 300;
const STREAM = chatRequest({ stream: true });
const own = { model: 'test-model' };
const WORDS = 12;

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway | undefined;

beforeEach(async () => {
  one = await HostileUpstream.start();
  two = await HostileUpstream.start();
});
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
  await Promise.all([one.close(), two.close()]);
});

async function start(config: NonNullable<GatewayOptions['config']> = {}): Promise<Gateway> {
  gateway = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    config: { retry: { deadline: `${DEADLINE_MS}ms` }, ...config },
  });
  return gateway;
}

/** A healthy stream that takes several times as long as the deadline. */
const talks: Script = async (c) => {
  await c.head(200, SSE_HEADERS);
  for (let i = 0; i < WORDS; i += 1) {
    await c.chunk(frame(contentChunk(`word${i} `, own)));
    await c.wait(100);
  }
  await c.chunk(frame(finishChunk('stop', own)) + DONE);
  await c.lastChunk();
};

/** Its connection is there and its head, but nothing for the client. */
const comments: Script = async (c) => {
  await c.head(200, SSE_HEADERS);
  for (;;) {
    await c.chunk(': thinking\n\n');
    await c.wait(20);
  }
};

describe('after the client has the first bytes', () => {
  test('a stream goes on to its end', async () => {
    const running = await start();
    one.always(talks);
    const response = await running.chat(STREAM);
    expect([response.complete, response.text().match(/word/g)?.length]).toEqual([true, WORDS]);
    expect(await running.accessLine(response)).toMatchObject({ outcome: 'ok', attempts: 1 });
  });

  test('a stream goes on that was opened without output', async () => {
    const running = await start({ stream: { commit_after: '50ms' } });
    one.always(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.wait(4 * DEADLINE_MS);
      await c.chunk(frame(contentChunk('late', own)) + frame(finishChunk('stop', own)) + DONE);
      await c.lastChunk();
    });
    const response = await running.chat(STREAM);
    expect([response.complete, response.text()]).toEqual([true, expect.stringContaining('late')]);
  });

  test('a stream goes on that a second target has won', async () => {
    const running = await start({
      models: {
        'test-model': {
          targets: [
            { upstream: 'one', model: 'upstream-model' },
            { upstream: 'two', model: 'upstream-model', priority: 2 },
          ],
          hedge: { after: '20ms' },
        },
      },
    });
    one.always(silence());
    two.always(talks);
    const response = await running.chat(STREAM);
    expect([response.complete, response.text().match(/word/g)?.length]).toEqual([true, WORDS]);
  });

  test('`timeouts.total` still bounds it', async () => {
    const running = await start({ upstreams: { one: { timeouts: { total: '600ms' } } } });
    one.always(talks);
    const response = await running.chat(STREAM);
    expect([response.complete, response.text()]).toEqual([
      false,
      expect.stringContaining('upstream_timeout'),
    ]);
    expect(await running.accessLine(response)).toMatchObject({ cause: 'deadline: total' });
  });
});

test('a JSON answer whose head has come is waited for', async () => {
  const running = await start();
  one.always(async (c) => {
    const text = JSON.stringify(completion({ content: 'slow' }));
    await c.send(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n`,
    );
    for (const letter of [text.slice(0, 10), text.slice(10, 20), text.slice(20)]) {
      await c.wait(DEADLINE_MS);
      await c.send(letter);
    }
  });
  const response = await running.chat(chatRequest());
  expect([response.status, response.text().includes('slow')]).toEqual([200, true]);
});

describe('before', () => {
  test.each<[string, Script, boolean]>([
    ['a stream that has only comments', comments, true],
    ['a stream that is silent', silence(), true],
    ['a JSON answer without a head', silence(), false],
  ])('the search ends, no other target is asked, and none is to blame: %s', async (_name, script, stream) => {
    const running = await start({ retry: { deadline: `${DEADLINE_MS}ms`, after_send: true } });
    one.always(script);
    for (let i = 0; i < 6; i += 1) {
      const response = await running.chat(chatRequest({ stream }));
      expect([response.status, response.json()]).toMatchObject([
        504,
        { error: { code: 'upstream_timeout' } },
      ]);
      expect(await running.accessLine(response)).toMatchObject({ cause: 'deadline: search', attempts: 1 });
    }
    expect([one.requests.length, two.requests.length]).toEqual([6, 0]);
  });
});
