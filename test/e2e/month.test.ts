// A month of an organisation: 200 teams with several keys, fallbacks, streams that clients leave, failures, rotations, a price change
// and holders that change their team. What upstreams logged, summed independently, equals every report to the last billionth.

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hash, verify } from 'argon2';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { type Argon2, Hasher } from '../../src/auth/hashing/hasher.ts';
import { openSecret } from '../../src/auth/hashing/hashing-secret.ts';
import { KeyIssuer } from '../../src/auth/key-issuer.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { fleetingClock, type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import { until } from '../helpers/wait.ts';
import { field, textField } from './holder.ts';

const TEAMS = 200;
/** Times at which requests end; the last and the first of the month are its first and last seconds. */
const TIMES = [
  '2030-09-30T23:59:59.500Z',
  '2030-10-01T00:00:00.000Z',
  '2030-10-15T23:30:00.000Z',
  '2030-10-16T00:30:00.000Z',
  '2030-10-31T23:59:59.500Z',
  '2030-11-01T00:00:00.000Z',
];
const MONTH = TIMES.slice(1, 5);
const MODELS = { plain: 'vendor-plain', other: 'vendor-other' } as const;
/** Millionths per million tokens; the second from the middle of the month on. Odd, so that rounding shows. */
const PRICES = {
  one: [
    { input: 123_457n, output: 2_000_003n },
    { input: 99_999n, output: 1_700_001n },
  ],
  two: [
    { input: 777_777n, output: 3_333_333n },
    { input: 700_001n, output: 3_000_007n },
  ],
} as const;
type Vendor = keyof typeof PRICES;

const KINDS = ['ok', 'fallback', 'left', 'failed'] as const;
type Kind = (typeof KINDS)[number];

/** What an upstream answered to a request that it served. */
interface Served {
  readonly vendor: Vendor;
  readonly target: string;
  readonly prompt: number;
  readonly completion: number;
}

interface Sent {
  readonly id: string;
  readonly team: string;
  readonly prefix: string;
  readonly holder: string;
  readonly model: keyof typeof MODELS;
  readonly kind: Kind;
  readonly at: string;
}

/** A number from 0 below `below` that is always the same for a text. */
function chance(text: string, below: number): number {
  return createHash('sha256').update(text).digest().readUInt32BE(0) % below;
}

class Vendors {
  readonly log = new Map<string, Served>();
  /** The last one that was asked. */
  readonly asked = new Map<string, Vendor>();
  readonly servers: Server[] = [];

  async start(vendor: Vendor): Promise<string> {
    const server = createServer((request, response) => void this.#answer(vendor, request, response));
    this.servers.push(server);
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  }

  async #answer(vendor: Vendor, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    const [id, target] = [textField(body, 'user'), textField(body, 'model')];
    const kind = KINDS.find((each) => id.startsWith(each));
    this.asked.set(id, vendor);
    if (kind === 'failed' || (kind === 'fallback' && vendor === 'one')) {
      response.writeHead(503, { 'content-type': 'application/json' });
      response.end('{"error":{"message":"busy","type":"server_error"}}');
      return;
    }
    const [prompt, completion] = [1 + chance(`in ${id}`, 5000), 1 + chance(`out ${id}`, 900)];
    this.log.set(id, { vendor, target, prompt, completion });
    const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
    const about = { id: 'x', created: 1, model: target };
    if (kind !== 'left') {
      const choices = [{ index: 0, message: { role: 'assistant', content: 'a' }, finish_reason: 'stop' }];
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ ...about, object: 'chat.completion', choices, usage }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (choices: readonly object[], more: object = {}) =>
      response.write(
        `data: ${JSON.stringify({ ...about, object: 'chat.completion.chunk', choices, ...more })}\n\n`,
      );
    send([{ index: 0, delta: { role: 'assistant', content: 'a' }, finish_reason: null }]);
    send([{ index: 0, delta: {}, finish_reason: 'stop' }]);
    send([], { usage });
    // No end: the client leaves.
  }
}

let vendors: Vendors;
let gateway: Gateway;
let store: Store;
let issuer: KeyIssuer;

beforeAll(async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2030-09-30T12:00:00Z') });
  vendors = new Vendors();
  const decimal = (millionths: bigint) => Number(millionths) / 1e6;
  const price = (vendor: Vendor) =>
    PRICES[vendor].map(({ input, output }, index) => ({
      input: decimal(input),
      output: decimal(output),
      ...(index === 1 && { from: '2030-10-16' }),
    }));
  const target = (upstream: Vendor, model: string, priority: number) => ({
    upstream,
    model,
    priority,
    price: price(upstream),
  });
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      currency: 'EUR',
      retry: { budget: 1 },
      upstreams: {
        one: { base_url: await vendors.start('one'), api_key: 'a' },
        two: { base_url: await vendors.start('two'), api_key: 'b' },
      },
      models: Object.fromEntries(
        Object.entries(MODELS).map(([name, model]) => [
          name,
          { targets: [target('one', model, 1), target('two', model, 2)] },
        ]),
      ),
    },
  });
  const address = { kind: 'sqlite', path: gateway.directory.file('tollgate.db') } as const;
  store = await openStore(address);
  // Real hashes of hundreds of keys would take most of the time.
  const cheap: Argon2 = {
    hash: (text) => hash(text, { memoryCost: 1024, timeCost: 2, parallelism: 1 }),
    verify: (phc, text) => verify(phc, text),
  };
  const secret = await openSecret(undefined, address, store);
  issuer = new KeyIssuer({ store, secret, hasher: new Hasher(createMetrics(), cheap) });
}, 60_000);

afterAll(async () => {
  await store?.close();
  await gateway?.close();
  for (const server of vendors?.servers ?? []) {
    server.closeAllConnections();
    server.close();
  }
  vi.useRealTimers();
});

afterEach(() => {
  expect(gateway.output).not.toContain('unhandled');
});

/** One request, to its end or until the client leaves. */
async function send(key: string, { id, model, kind }: Sent): Promise<void> {
  const stream = kind === 'left';
  using client = await gateway.open(
    {
      model,
      user: id,
      messages: [{ role: 'user', content: 'hi' }],
      ...(stream && { stream, stream_options: { include_usage: true } }),
    },
    { key },
  );
  const status = stream
    ? (
        await client.readUntil(
          (all) => all.includes('total_tokens') || /^HTTP\/1\.1 (?!200)/.test(String(all)),
        )
      )
        .subarray(9, 12)
        .toString()
    : String((await client.response()).status);
  // Upstreams that fail are paused, and a budget bounds retries: what was served is in the log.
  expect([kind, status === '200']).toEqual([kind, vendors.log.has(id)]);
}

async function inGroups<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  for (let from = 0; from < all.length; from += 12) await Promise.all(all.slice(from, from + 12).map(work));
}

test('every report equals what the upstreams logged', async () => {
  const by = { actor: null, reason: null, at: '2030-09-30T12:00:00.000Z' };
  const keys: { key: string; prefix: string; holder: string; team: string }[] = [];
  await inGroups(
    Array.from({ length: TEAMS }, (_, index) => `team-${index}`),
    async (team) => {
      const added = await store.organisation.addTeam({ id: `id-${team}`, name: team, terms: {} }, by, {});
      expect(added.kind).toBe('done');
      const first = await issuer.issue({ tier: 'Pro', teamId: `id-${team}` });
      const more = await issuer.issueFor(first.prefix);
      for (const issued of [first, more])
        if (issued !== undefined)
          keys.push({ key: issued.key.reveal(), prefix: issued.prefix, holder: issued.holderId, team });
    },
  );
  expect(keys).toHaveLength(2 * TEAMS);

  const sent: Sent[] = [];
  for (const at of TIMES) {
    vi.setSystemTime(Date.parse(at));
    if (at === MONTH[2]) {
      // In the middle of the month some holders change their team, and some keys are rotated.
      for (const [index, each] of keys.entries()) {
        if (index % 40 === 0) {
          const team = `team-${(index + 7) % TEAMS}`;
          const outcome = await store.changeHolder(each.holder, { teamId: `id-${team}` }, null, at);
          if (outcome.kind !== 'changed') throw new Error(outcome.kind);
          await gateway.app.issuer.announceChanged(outcome.records, at);
          for (const other of keys) if (other.holder === each.holder) other.team = team;
        }
        if (index % 25 === 3) {
          const response = await fetch(`${gateway.url}/admin/keys/rotate`, {
            method: 'POST',
            headers: { authorization: `Bearer ${each.key}` },
          });
          each.key = textField(await response.json(), 'key');
          each.prefix = each.key.slice(0, 8);
        }
      }
    }
    const part = keys.filter((_, index) => (index + TIMES.indexOf(at)) % 3 === 0);
    const requests = part.map((each, index): [string, Sent] => {
      const kind =
        index % 10 === 1 ? 'fallback' : index % 10 === 4 ? 'left' : index % 50 === 7 ? 'failed' : 'ok';
      const id = `${kind} ${at} ${index}`;
      const { prefix, holder, team, key } = each;
      return [key, { id, team, prefix, holder, model: index % 3 === 0 ? 'other' : 'plain', kind, at }];
    });
    await inGroups(requests, ([key, request]) => send(key, request));
    // A request that was sent to no upstream is no usage.
    sent.push(...requests.flatMap(([, request]) => (vendors.asked.has(request.id) ? [request] : [])));
    await until(() => gateway.app.inFlight === 0, 'the end of the requests');
  }
  vi.setSystemTime(Date.parse('2030-11-01T01:00:00Z'));
  const inStore = async () =>
    (await store.usage.usageReport({ from: '2030', by: [], limit: 1 }))[0]?.sums.requests;
  await until(async () => (await inStore()) === sent.length, 'every request in the store');

  for (const kind of KINDS) expect(sent.filter((each) => each.kind === kind).length).toBeGreaterThan(10);
  expect([...vendors.log.values()].filter(({ vendor }) => vendor === 'two').length).toBeGreaterThan(10);
  const env = { TEST_DIR: gateway.directory.path };
  const ofMonth = sent.filter(({ at }) => MONTH.includes(at));
  for (const groups of ['team', 'team,model,upstream', 'key', 'tier,endpoint,month', 'holder,target,day']) {
    const { code, stdout, stderr } = await runCommand(
      ['usage', '--month', '2030-10', '--by', groups, '--json', '--config', gateway.configFile],
      env,
    );
    expect([code, stderr]).toEqual([0, '']);
    const report: unknown = JSON.parse(stdout);
    const lines = field(report, 'lines');
    if (!Array.isArray(lines)) throw new Error('no lines');
    const names = groups.split(',');
    const found = new Map(
      lines.map((line) => [names.map((name) => textField(line, name)).join(), figuresOf(line)]),
    );
    expect(new Map([...found].sort())).toEqual(new Map([...expected(ofMonth, names)].sort()));
    expect(figuresOf(field(report, 'totals'))).toEqual(expected(ofMonth, []).get(''));
  }

  const close = await runCommand(
    ['usage', 'close', '2030-10', '--json', '--config', gateway.configFile],
    env,
  );
  expect(field(JSON.parse(close.stdout), 'totals', 'cost')).toBe(expected(ofMonth, []).get('')?.cost);
}, 120_000);

interface Figures {
  requests: number;
  failed: number;
  prompt: number;
  completion: number;
  cost: string;
}

function figuresOf(line: unknown): Figures {
  return {
    requests: Number(field(line, 'requests')),
    failed: Number(field(line, 'failed')),
    prompt: Number(field(line, 'prompt_tokens')),
    completion: Number(field(line, 'completion_tokens')),
    cost: String(field(line, 'cost')),
  };
}

/** The sums of what upstreams logged, by rational arithmetic. */
function expected(requests: readonly Sent[], groups: readonly string[]): ReadonlyMap<string, Figures> {
  const sums = new Map<string, Omit<Figures, 'cost'> & { cost: bigint }>();
  for (const request of requests) {
    const served = vendors.log.get(request.id);
    const upstream = served?.vendor ?? vendors.asked.get(request.id) ?? '';
    const about: Readonly<Record<string, string>> = {
      team: request.team,
      model: request.model,
      key: request.prefix,
      holder: request.holder,
      day: request.at.slice(0, 10),
      month: request.at.slice(0, 7),
      upstream,
      target: served?.target ?? MODELS[request.model],
      tier: 'Pro',
      endpoint: 'chat',
    };
    const name = groups.map((group) => about[group]).join();
    const sum = sums.get(name) ?? { requests: 0, failed: 0, prompt: 0, completion: 0, cost: 0n };
    sums.set(name, sum);
    sum.requests += 1;
    if (served === undefined) {
      sum.failed += 1;
      continue;
    }
    sum.prompt += served.prompt;
    sum.completion += served.completion;
    const [before, after] = PRICES[served.vendor];
    const { input, output } = request.at < '2030-10-16' ? before : after;
    // In 10^-12; half a billionth and more rounds up.
    sum.cost += (BigInt(served.prompt) * input + BigInt(served.completion) * output + 500n) / 1000n;
  }
  return new Map(
    [...sums].map(([name, { cost, ...figures }]) => {
      const digits = String(cost).padStart(10, '0');
      return [name, { ...figures, cost: `${digits.slice(0, -9)}.${digits.slice(-9)}` }];
    }),
  );
}
