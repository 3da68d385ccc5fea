// An hour of a gateway in a few seconds, with an outage of one of its vendors, as pages of /metrics: one for each minute. Upstreams, Redis, store,
// token server and webhook are real; only the clock of cool-downs is played.
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { PRICES, SHOP_TIERS, shopConfig } from '../billing/shop.ts';
import { StripeStandIn } from '../billing/stripe-stand-in.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import type { Step } from '../helpers/conversation.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  SSE_HEADERS,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import type { RecordedPage } from '../helpers/prometheus.ts';
import { type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { TokenServer } from '../upstream/tokens/token-server.ts';

/** One page for each. */
const MINUTES = 60;
/** Minutes in which vendor a fails, its health check too in the second half, and in which all vendors of a model are drained. */
const OUTAGE = { from: 15, unhealthy: 24, to: 30 } as const;
const DRAIN = { from: 40, to: 43 } as const;

const isWell = json(200, {});
const isDown = json(500, upstreamError('down'));
const BREAK = [head(200, SSE_HEADERS), chunk(frame(contentChunk('x'))), reset()];
/** Breaks streams alone: a health check may come at any moment. */
const breakStreams: Step = async (conversation) => {
  if (!conversation.request.body.includes('"stream":true')) return await standardAnswer(conversation);
  for (const step of BREAK) await step(conversation);
};

/** @returns the pages, and what the usage report says that all of it cost */
export async function playHour(): Promise<{
  readonly pages: readonly RecordedPage[];
  readonly cost: number;
}> {
  await using open = new AsyncDisposableStack();
  const [redis, a, b, hook, issuer, stripe] = await Promise.all([
    startRedis(),
    HostileUpstream.start(standardAnswer),
    HostileUpstream.start(standardAnswer),
    HostileUpstream.start(json(200, {})),
    TokenServer.start(),
    StripeStandIn.start(PRICES),
  ]);
  for (const each of [redis, a, b, hook, issuer, stripe]) open.use(each);
  // It starts while the hour is played.
  const secured = startSecured(redis);
  const settled = secured.catch(() => undefined);
  open.defer(async () => (await settled)?.close());
  let now = 1_000_000;
  const gateway = open.use(
    await startGateway({
      upstreams: { a: a.baseUrl, b: b.baseUrl },
      now: () => now,
      config: shopConfig(stripe, {
        redis: redis.url,
        budgets: { webhook: { url: hook.url, secret: 'a secret' } },
        upstreams: {
          a: { health: { path: '/healthz', interval: '100ms' } },
          b: {
            api_key: null,
            auth: { oauth2: { token_url: issuer.url, client_id: 'c', client_secret: 's' } },
          },
          echo: { builtin: 'echo' },
        },
        models: {
          chat: {
            balance: 'affinity',
            targets: [
              { upstream: 'a', model: 'x' },
              { upstream: 'b', model: 'x', priority: 2 },
            ],
            price: { input: 1000, output: 2000 },
          },
          live: { targets: [{ upstream: 'echo', model: 'echo' }] },
        },
        tiers: {
          ...SHOP_TIERS,
          Free: { requests_per_minute: 1 },
          Lite: { ...SHOP_TIERS.Lite, budget: { per_month: 1, soft: 0.5 } },
        },
      }),
    }),
  );
  const tollgate = (...words: string[]) =>
    runCommand([...words, '--config', gateway.configFile], { TEST_DIR: gateway.directory.path });
  const [pro, free, lite] = [
    await gateway.key(),
    await gateway.issueKey('Free'),
    await gateway.issueKey('Lite'),
  ];
  const keys = [pro, free, lite];
  const ask = async (key: string, body: object = {}, path = 'chat/completions') => {
    const response = await fetch(`${gateway.url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatRequest({ model: 'chat', ...body })),
    });
    await response.text().catch(() => undefined);
  };
  await session(gateway, pro);

  const begin = Math.floor(Date.now() / 1000) - (MINUTES + 5) * 60;
  const pages: RecordedPage[] = [];
  for (let minute = 0; minute <= MINUTES; minute += 1) {
    now += 60_000;
    if (minute === OUTAGE.from) a.always((c) => (c.request.method === 'GET' ? isWell(c) : isDown(c)));
    if (minute === OUTAGE.unhealthy) a.always(isDown);
    if (minute === OUTAGE.to) a.always(standardAnswer);
    if (minute === DRAIN.from)
      await Promise.all(['a', 'b'].map((name) => tollgate('upstreams', 'drain', name)));
    if (minute === DRAIN.to)
      await Promise.all(['a', 'b'].map((name) => tollgate('upstreams', 'resume', name)));
    if (minute === 5) a.always(breakStreams);
    if (minute === 6) a.always(standardAnswer);
    // The first of each begins a series; of three changes of keys, which come by message or poll, one is not the first.
    if (minute === 10 || minute === 11 || minute === 12) {
      await fetch(`${gateway.url}/checkout`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ tier: 'Lite' }),
      });
      await gateway.app.billing.sweep();
      keys.push(await gateway.issueKey());
      // Another process issues a key, so a change has to arrive here.
      const issued = await tollgate('keys', 'issue', '--tier', 'Pro', '--holder', 'other');
      keys.push(issued.stdout.trim());
      await ask(issued.stdout.trim());
      await until(async () => (await propagated(gateway)) >= minute - 9, 'the change');
    }
    if (minute === OUTAGE.unhealthy || minute === OUTAGE.to)
      await until(
        async () =>
          (await gateway.metric('tollgate_upstream_healthy{upstream="a"}')) === Number(minute === OUTAGE.to),
      );
    await Promise.all([ask(pro), ask(pro, { stream: true }), ask(free), ask(lite), ask('0'.repeat(32))]);
    // A request is counted and paid for when it has ended.
    await until(() => gateway.app.inFlight === 0, 'the end of the requests');
    const at = begin + minute * 60;
    pages.push({ instance: 'a', at, text: await gateway.metrics() });
    if (minute >= MINUTES - 1) pages.push({ instance: 'b', at, text: await (await secured).metrics() });
  }
  const costs = keys.map(async (key) => {
    const response = await fetch(`${gateway.url}/admin/usage`, {
      headers: { authorization: `Bearer ${key}` },
    });
    return (
      z.object({ totals: z.object({ cost: z.number().nullish() }) }).parse(await response.json()).totals
        .cost ?? 0
    );
  });
  return { pages, cost: (await Promise.all(costs)).reduce((sum, each) => sum + each) };
}

/** Changes of keys by other processes that have arrived. */
async function propagated(gateway: Gateway): Promise<number> {
  const counts = (await gateway.metrics()).matchAll(/^tollgate_key_propagation_seconds_count\{.*\} (\d+)$/gm);
  return Array.from(counts, ([, count]) => Number(count)).reduce((sum, count) => sum + count, 0);
}

/** Opens a session and closes it. */
async function session(gateway: Gateway, key: string): Promise<void> {
  const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=live`, {
    headers: { authorization: `Bearer ${key}` },
  });
  await once(socket, 'open');
  socket.close();
  await once(socket, 'close');
}

/** A gateway of its own process, with workers, HTTPS, and a client certificate for its upstream. */
async function startSecured(redis: RedisServer): Promise<Gateway> {
  const { key, cert } = makeCertificate();
  return await startGateway({
    process: true,
    upstreams: { c: 'https://127.0.0.1:9/v1' },
    config: {
      redis: redis.url,
      workers: 2,
      listen: { tls: { key, cert } },
      upstreams: { c: { tls: { key, cert } } },
    },
  });
}
