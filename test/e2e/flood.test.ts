// A flood of bad keys on a running gateway that shares Redis: what it costs, counted, and whom it disturbs, which is nobody.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { bearer } from './holder.ts';

/** More than ten times what the limits let through. */
const FLOOD = 800;
const CONNECTIONS = 8;

let redis: RedisServer;
let gateway: Gateway;
let verified: string;
let addresses = 0;

beforeAll(async () => {
  redis = await startRedis();
  gateway = await startGateway({
    config: {
      redis: redis.url,
      listen: { host: '127.0.0.1', port: 0, trusted_proxies: ['127.0.0.1/32'] },
    },
  });
  verified = await gateway.issueKey('Pro');
}, REDIS_TIMEOUT);
afterAll(async () => {
  await gateway?.close();
  await redis?.stop();
});

/** An address that no test has used. */
function address(): string {
  addresses += 1;
  return `203.0.${113 + Math.floor(addresses / 250)}.${1 + (addresses % 250)}`;
}

/** `GET /v1/models` with a key from an address, on a kept connection. */
class Line implements AsyncDisposable {
  readonly #used = { count: 0 };
  #client: RawClient | undefined;

  async status(key: string, from: string): Promise<number> {
    // A connection takes a thousand requests.
    if (this.#used.count++ % 500 === 0) {
      this.#client?.[Symbol.dispose]();
      this.#client = await RawClient.connect(gateway.url);
    }
    const client = this.#client ?? (await RawClient.connect(gateway.url));
    const headers = { ...bearer(key), 'x-forwarded-for': from };
    return (
      await client.ask({ method: 'GET', target: '/v1/models', host: new URL(gateway.url).host, headers })
    ).status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client?.[Symbol.dispose]();
  }
}

const random = () => randomBytes(16).toString('hex');
const guess = (key: string) => key.slice(0, 8) + randomBytes(12).toString('hex');

interface Costs {
  /** How often each status came, of bad keys. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Verifications by Argon2. */
  readonly proofs: number;
  readonly lookups: number;
  readonly seconds: number;
}

/** Sends bad keys as fast as they are answered, and the verified key between them, which must always be let in. */
async function flood(
  next: (index: number) => { readonly key: string; readonly from: string },
): Promise<Costs> {
  const count = async () => ({
    proofs: await gateway.metric('tollgate_argon2_runs_total{purpose="verify"}'),
    lookups: await redis.calls('get'),
  });
  const before = await count();
  const began = performance.now();
  const statuses: Record<string, number> = {};
  let sent = 0;
  const send = async () => {
    await using line = new Line();
    while (sent < FLOOD) {
      const { key, from } = next(sent++);
      const status = await line.status(key, from);
      statuses[status] = (statuses[status] ?? 0) + 1;
    }
  };
  let isOver = false;
  const use = async () => {
    await using line = new Line();
    let count = 0;
    for (; !isOver; count += 1) expect(await line.status(verified, '198.51.100.1')).toBe(200);
    expect(count).toBeGreaterThan(0);
  };
  const using = use();
  await Promise.all(Array.from({ length: CONNECTIONS }, send)).finally(() => {
    isOver = true;
  });
  await using;
  const seconds = (performance.now() - began) / 1000;
  const after = await count();
  return {
    statuses,
    proofs: after.proofs - before.proofs,
    lookups: after.lookups - before.lookups,
    seconds,
  };
}

/** Look-ups that the verified key may have needed meanwhile, which is confirmed every 5 s. */
const ownLookups = (seconds: number) => Math.ceil(seconds / 5) + 1;

/** A key that was issued beside the gateway, which has not met it, and that Redis does not know either. */
async function unmet(): Promise<string> {
  const env = { TEST_DIR: gateway.directory.path };
  const words = ['keys', 'issue', '--tier', 'Free', '--config', gateway.configFile];
  const { code, stdout } = await runCommand(words, env);
  expect(code).toBe(0);
  const key = stdout.trim();
  await redis.command('DEL', `tollgate:key:{${key.slice(0, 8)}}`);
  return key;
}

async function statusOf(key: string, from: string): Promise<number> {
  await using line = new Line();
  return await line.status(key, from);
}

describe('a flood of bad keys', () => {
  test('of one address is over after 60, costs 60 look-ups, and other addresses do not notice', async () => {
    const fresh = await unmet();
    const from = address();
    const { statuses, proofs, lookups, seconds } = await flood(() => ({ key: random(), from }));
    // The limit forgives one a second, and attempts that are under way at the same time count when they have failed.
    const most = 60 + CONNECTIONS * (1 + Math.ceil(seconds));
    expect(statuses).toEqual({ 401: expect.any(Number), 429: expect.any(Number) });
    expect(statuses['401']).toBeGreaterThanOrEqual(60);
    expect(statuses['401']).toBeLessThanOrEqual(most);
    expect(proofs).toBe(0);
    expect(lookups).toBeLessThanOrEqual(most + ownLookups(seconds));
    // A key that was verified is never refused by it, and one that was not is let in from anywhere else.
    expect(await statusOf(verified, from)).toBe(200);
    // The limit forgives one a second: on a slow machine it may have done so since.
    await until(async () => {
      const another = await unmet();
      await statusOf(random(), from);
      return (await statusOf(another, from)) === 429;
    }, 'a key that was not verified to be refused');
    expect(await statusOf(fresh, address())).toBe(200);
    expect(await statusOf(fresh, from)).toBe(200);
  });

  test('of many addresses costs a look-up each, and lets in who has a good key', async () => {
    const fresh = await unmet();
    let admitted: Promise<number> | undefined;
    const { statuses, proofs, lookups, seconds } = await flood((index) => {
      if (index === FLOOD / 2) admitted = statusOf(fresh, address());
      return { key: random(), from: `2001:db8:${index.toString(16)}::1` };
    });
    expect(await admitted).toBe(200);
    expect(Object.keys(statuses)).toEqual(['401']);
    // The one that was let in.
    expect(proofs).toBe(1);
    expect(lookups).toBeLessThanOrEqual(FLOOD + 3 + ownLookups(seconds));
  });

  test('with the prefix of a good key costs a look-up a second, and never locks that key out', async () => {
    const fresh = await unmet();
    let admitted: Promise<number> | undefined;
    const { statuses, proofs, lookups, seconds } = await flood((index) => {
      if (index === FLOOD / 2) admitted = statusOf(fresh, address());
      return { key: guess(fresh), from: `2001:db8:${index.toString(16)}:1::1` };
    });
    expect(await admitted).toBe(200);
    // Beyond so many with one prefix it does not matter where they come from.
    expect(statuses).toEqual({ 401: expect.any(Number), 429: expect.any(Number) });
    expect(statuses['401']).toBeLessThanOrEqual(60 + CONNECTIONS * (1 + Math.ceil(seconds)));
    expect(proofs).toBe(1);
    // One when it begins, one each second, and what the key itself needs.
    expect(lookups).toBeLessThanOrEqual(1 + Math.ceil(seconds) + 3 + ownLookups(seconds));
    expect(await statusOf(fresh, address())).toBe(200);
  });

  test('with the prefix of the key in use costs that key nothing', async () => {
    const { statuses, proofs, lookups, seconds } = await flood((index) => ({
      key: guess(verified),
      from: `2001:db8:${index.toString(16)}:2::1`,
    }));
    expect(statuses['401']).toBeGreaterThan(0);
    expect(proofs).toBe(0);
    expect(lookups).toBeLessThanOrEqual(1 + Math.ceil(seconds) + ownLookups(seconds));
  });

  test('that are one and the same costs one look-up in 10 s, and its address nothing', async () => {
    const fresh = await unmet();
    const [key, from] = [random(), address()];
    const { statuses, proofs, lookups, seconds } = await flood(() => ({ key, from }));
    expect(statuses).toEqual({ 401: FLOOD });
    expect(proofs).toBe(0);
    expect(lookups).toBeLessThanOrEqual(1 + Math.ceil(seconds / 10) + ownLookups(seconds));
    expect(await statusOf(fresh, from)).toBe(200);
  });

  test('that have no form of a key costs nothing at all', async () => {
    const from = address();
    const { statuses, proofs, lookups, seconds } = await flood(() => ({ key: 'sk-no-key-of-ours', from }));
    expect(statuses).toEqual({ 401: FLOOD });
    expect([proofs, lookups <= ownLookups(seconds)]).toEqual([0, true]);
  });
});
