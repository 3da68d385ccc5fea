// What the store says was used, after a run with faults, is what the upstream says that it produced: none lost, none twice.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { runCommand } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';
import { field, statusOf } from './holder.ts';

const CLIENTS = 6;
const produced = { requests: 0, prompt: 0, completion: 0 };
let upstream: HostileUpstream;
let fleet: Fleet;

beforeAll(async () => {
  upstream = await HostileUpstream.start(async (c) => {
    const tokens = {
      prompt: 1 + Math.floor(Math.random() * 50),
      completion: 1 + Math.floor(Math.random() * 50),
    };
    produced.requests += 1;
    produced.prompt += tokens.prompt;
    produced.completion += tokens.completion;
    await json(200, completion({ tokens }))(c);
  });
  fleet = await startFleet({
    gateway: {
      config: {
        upstreams: { up: { base_url: upstream.baseUrl } },
        models: { m: { targets: [{ upstream: 'up', model: 'm' }], price: { input: 1, output: 2 } } },
        tiers: { Pro: { requests_per_minute: 100_000, tokens_per_month: 100_000_000 } },
      },
    },
  });
}, FLEET_TIMEOUT);
afterAll(async () => {
  await fleet?.[Symbol.asyncDispose]();
  await upstream?.close();
});

test('the store is away, Redis is emptied, a replica is replaced, and every request is counted once', async () => {
  const { stdout } = await fleet.keys('issue', '--tier', 'Pro');
  const key = stdout.trim();
  for (const { gateway } of fleet.replicas) expect(await statusOf(gateway.url, key)).toBe(200);
  const alive = new Set(fleet.replicas);
  let isOver = false;
  const client = async (number: number) => {
    for (let index = number; !isOver; index += 1) {
      const replicas = [...alive];
      const { status } =
        (await replicas[index % replicas.length]?.gateway.chat(chatRequest({ model: 'm' }), { key })) ?? {};
      expect(status).toBe(200);
    }
  };
  const clients = Array.from({ length: CLIENTS }, (_, number) => client(number));
  const nemesis = async () => {
    await pause(1500);
    fleet.postgres.pause();
    await pause(2500);
    fleet.postgres.resume();
    await pause(1000);
    await fleet.redis.flush();
    await pause(500);
    const [leaving] = alive;
    if (leaving === undefined) throw new Error('no replica');
    alive.delete(leaving);
    // It is asked by nobody any more; what it has not sent it sends before it ends.
    await pause(500);
    leaving.gateway.child.kill('SIGTERM');
    await until(() => leaving.gateway.child.exitCode !== null, 'the end of the replica');
    expect(leaving.gateway.child.exitCode).toBe(0);
    alive.add(await fleet.join());
    await pause(1000);
    isOver = true;
  };
  await Promise.all([nemesis(), ...clients]);
  const { configFile } = fleet;
  const total = async () => {
    const { code, stdout: text } = await runCommand(['usage', '--json', '--config', configFile]);
    expect(code).toBe(0);
    return field(JSON.parse(text), 'totals');
  };
  await until(
    async () => field(await total(), 'requests') === produced.requests,
    'every request in the store',
  );
  expect(await total()).toMatchObject({
    requests: produced.requests,
    failed: 0,
    estimated: 0,
    prompt_tokens: produced.prompt,
    completion_tokens: produced.completion,
    cost: ((produced.prompt + 2 * produced.completion) / 1e6).toFixed(9),
  });
  expect(produced.requests).toBeGreaterThan(100);
  // Nor does anything come later.
  await pause(2000);
  expect(field(await total(), 'requests')).toBe(produced.requests);
});
