// Which streams count as open when many begin.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { lastingStreams } from '../../src/proxy/answer/stream/lasting-streams.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
} from '../helpers/hostile-upstream.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

const STEP = 32;
const WHOLE = frame(contentChunk('one')) + frame(finishChunk()) + DONE;

/** How the upstream ends streams that have begun. */
type End = 'whole' | 'cut';

describe('streams that begin', () => {
  let upstream: HostileUpstream;
  let gateway: Gateway;
  let calls = 0;
  let isAtOnce = false;
  const ends: ((end: End) => void)[] = [];

  beforeAll(async () => {
    upstream = await HostileUpstream.start(async (c) => {
      await c.head(200, { 'content-type': 'text/event-stream' });
      if (isAtOnce) {
        await c.send(WHOLE);
        c.close();
        return;
      }
      await c.send(frame(contentChunk('one')));
      const end = await new Promise<End>((resolve) => ends.push(resolve));
      if (end === 'whole') await c.send(frame(finishChunk()) + DONE);
      c.close();
    });
    gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  });

  afterAll(async () => {
    lastingStreams.onGrowth = undefined;
    await gateway[Symbol.asyncDispose]();
    await upstream[Symbol.asyncDispose]();
  });

  beforeEach(() => {
    calls = 0;
    isAtOnce = false;
    lastingStreams.onGrowth = () => {
      calls += 1;
    };
  });

  async function begin(count: number): Promise<RawClient[]> {
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const clients: RawClient[] = [];
    for (let at = 0; at < count; at += 1) {
      const client = await RawClient.connect(gateway.url);
      await client.send({ headers, body: chatRequest({ stream: true }) });
      await client.readUntil('one');
      clients.push(client);
    }
    return clients;
  }

  async function left(clients: readonly RawClient[]): Promise<void> {
    for (const client of clients) client.destroy();
    for (const end of ends.splice(0)) end('whole');
    await until(async () => (await gateway.metric('tollgate_requests_in_flight')) === 0, 'their end');
  }

  test.each(['whole', 'cut', 'left'] as const)('count until they have ended: %s', async (how) => {
    const clients = await begin(STEP - 1);
    if (how !== 'left') {
      for (const end of ends.splice(0)) end(how);
      await Promise.all(clients.map((client) => client.response()));
    }
    await left(clients);
    const again = await begin(STEP - 1);
    expect(calls).toBe(0);
    again.push(...(await begin(1)));
    expect(calls).toBe(1);
    await left(again);
  });

  test('and end in the same tick do not count', async () => {
    isAtOnce = true;
    await left(await begin(STEP * 2));
    isAtOnce = false;
    const clients = await begin(STEP - 1);
    expect(calls).toBe(0);
    await left(clients);
  });
});
