// A hundred reloads a second under live streams: every stream keeps its configuration, and nothing accumulates. A second of it
// here; TOLLGATE_LONG=1 makes it half a minute with a thousand streams.
import { expect, test } from 'vitest';
import { collectGarbage } from '../helpers/garbage.ts';
import { type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  SSE_HEADERS,
  type Step,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';

const IS_LONG = process.env['TOLLGATE_LONG'] === '1';
const STREAMS = IS_LONG ? 1_000 : 200;
const RELOADS = IS_LONG ? 3_000 : 150;

/** Bytes that are really in use. */
function heap(): number {
  collectGarbage();
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

test(`${RELOADS} reloads, a hundred a second, under ${STREAMS} streams`, async () => {
  await using steady = await HostileUpstream.start();
  await using other = await HostileUpstream.start();
  const { promise: over, resolve: release } = Promise.withResolvers<void>();
  const stream: Step = async (c) => {
    await c.head(200, SSE_HEADERS);
    let isOver = false;
    void over.then(() => {
      isOver = true;
    });
    for (let at = 0; !isOver; at += 1) {
      await c.chunk(frame(contentChunk(`token ${at}`)));
      // What clients and log keep here of each is not the gateway's.
      await c.wait(IS_LONG ? 5_000 : 300);
    }
    await c.chunk(`${frame(finishChunk())}${DONE}`);
    await c.lastChunk();
  };
  steady.always(stream);
  other.always(stream);
  // Half of the streams run at an upstream that each reload changes, the others at one that none does.
  const options = (round: number): GatewayOptions => ({
    env: { LOG_LEVEL: 'warn' },
    upstreams: { steady: steady.baseUrl, other: other.baseUrl },
    config: {
      upstreams: { steady: { max_concurrency: 5_000 }, other: { max_concurrency: 5_000 + round } },
      models: {
        'test-model': { targets: [{ upstream: 'steady', model: 'm' }] },
        'other-model': { targets: [{ upstream: 'other', model: 'm' }] },
        [`model-${round}`]: { targets: [{ upstream: 'other', model: 'm' }] },
      },
    },
  });
  await using gateway = await startGateway(options(0));
  await gateway.key();
  const clients = await Promise.all(
    Array.from({ length: STREAMS }, (_, index) =>
      gateway.open(chatRequest({ stream: true, model: index % 2 === 0 ? 'test-model' : 'other-model' })),
    ),
  );
  await Promise.all(clients.map((client) => client.readUntil('token 0')));
  const connections = steady.connections;

  let before = 0;
  const started = performance.now();
  for (let round = 1; round <= RELOADS; round += 1) {
    await gateway.writeConfig(options(round));
    await gateway.app.reload();
    // When everything has been compiled and grown once.
    if (round === Math.floor(RELOADS / 3)) before = heap();
    await pause(Math.max(0, started + round * 10 - performance.now()));
  }
  // Of all that were made only the first still answers, and the last is in force.
  await until(() => gateway.app.retiring === 1, 'all but the one with streams to be gone');
  const grown = heap() - before;
  expect(grown).toBeLessThan(IS_LONG ? 16_000_000 : 8_000_000);
  expect(steady.connections).toBe(connections);
  expect(gateway.app.inFlight).toBe(STREAMS);

  release();
  const responses = await Promise.all(clients.map((client) => client.response()));
  for (const response of responses) {
    expect([response.status, response.complete, response.text().endsWith(DONE)]).toEqual([200, true, true]);
  }
  await until(() => gateway.app.retiring === 0, 'the first to be gone too');
  const metrics = await gateway.metrics();
  expect(metrics.match(/^tollgate_config_info\{/gm)).toHaveLength(1);
  for (const client of clients) client.destroy();
  process.stderr.write(
    `${RELOADS} reloads in ${Math.round(performance.now() - started)} ms, ${STREAMS} streams, heap grew by ${Math.round(grown / 1024)} KiB\n`,
  );
});
