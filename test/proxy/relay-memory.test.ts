// What streams cost whose clients do not read, in a gateway process of its own.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
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

/** Open at once. */
const STREAMS = 16;
const MIB = 1024 * 1024;
const BLOCK = Buffer.from(frame(contentChunk('x'.repeat(1000))).repeat(64));

test('200 MB at full speed to a client that does not read cost less than 8 MB of memory a stream', async () => {
  await using upstream = await HostileUpstream.start(async (c) => {
    await c.head(200, { 'content-type': 'text/event-stream' });
    for (let sent = 0; sent < 200 * MIB; sent += BLOCK.length) await c.send(BLOCK);
    await c.send(frame(finishChunk()) + DONE);
    c.close();
  });
  await using gateway = await startGateway({ process: true, upstreams: { up: upstream.baseUrl } });
  const key = await gateway.key();
  const pid = gateway.child.pid;
  const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
  const open = async () => {
    const client = await RawClient.connect(gateway.url, { keep: false });
    await client.send({ headers: { authorization: `Bearer ${key}` }, body: chatRequest({ stream: true }) });
    await client.responseHead();
    client.pause();
    return client;
  };
  /** Until no upstream has been able to send anything for a while. */
  const stuck = () => {
    let last = -1;
    return until(async () => {
      const before = upstream.requests.reduce((sum, { bytesSent }) => sum + bytesSent, 0);
      await new Promise((resolve) => setTimeout(resolve, 500));
      const now = upstream.requests.reduce((sum, { bytesSent }) => sum + bytesSent, 0);
      const isStuck = now === before && before === last;
      last = now;
      return isStuck;
    });
  };
  // What the process takes once, and its allocator keeps, when megabytes rush through it is no stream's.
  const first = [await open(), await open(), await open(), await open()];
  await stuck();
  for (const client of first) client.destroy();
  await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
  const before = memory();
  const clients: RawClient[] = [];
  for (let n = 0; n < STREAMS; n += 1) clients.push(await open());
  await stuck();
  const each = (memory() - before) / STREAMS;
  console.log(`memory of a stream that is not read: ${(each / MIB).toFixed(2)} MiB`);
  const text = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  console.log(
    text.match(
      /^(nodejs_external_memory_bytes|nodejs_heap_size_used_bytes|nodejs_heap_size_total_bytes|process_resident_memory_bytes) .*$/gm,
    ),
  );
  for (const client of clients) client.destroy();
  expect(each).toBeLessThan(8_000_000);
  await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
});
