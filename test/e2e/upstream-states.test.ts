// A played outage: what `/upstreams`, `/metrics`, `tollgate upstreams`, `tollgate explain` and the console in a browser say at each moment is
// the same, and is what the next hundred requests do, by the upstreams' own logs. docs/operations.md has the table of it.
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { STATE_NAMES, type StateName, upstreamState } from '../../src/upstream/state/upstream-state.ts';
import type { Browser, Page } from '../helpers/browser.ts';
import {
  configText,
  type Gateway,
  type GatewayOptions,
  runCommand,
  startGateway,
} from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  HostileUpstream,
  json,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { Visit } from '../pages/visit.ts';

const STATES = z.array(upstreamState);
const EXPLAINED = z.object({
  targets: z.array(
    z.object({
      upstream: z.string(),
      next_hundred: z.number(),
      live: z.object({ state: z.string(), breaker: z.string(), in_flight: z.number(), drained: z.unknown() }),
    }),
  ),
  next_rejected: z.record(z.string(), z.number()),
});
const BREAKER = { closed: 0, half_open: 1, open: 2 } as const;

const NAMES = ['a', 'b', 'c'] as const;
type Name = (typeof NAMES)[number];
const upstreams = new Map<Name, HostileUpstream>();
let gateway: Gateway;
let commandFile: string;
let now = 1_000_000;
let draws = 0;
let browser: Browser;
/** The page *Now*, and the page of upstream a beside it. Nobody loads them again. */
let visit: Visit;
let pageOfA: Page;

beforeAll(async () => {
  for (const name of NAMES) upstreams.set(name, await HostileUpstream.start(json(200, completion())));
  const options: GatewayOptions = {
    upstreams: Object.fromEntries(NAMES.map((name) => [name, of(name).baseUrl])),
    config: {
      upstreams: { b: { health: { path: '/healthz', interval: '100ms' } } },
      models: {
        m: {
          targets: [
            { upstream: 'a', model: 'x', weight: 3 },
            { upstream: 'b', model: 'x' },
            { upstream: 'c', model: 'x', priority: 2 },
          ],
        },
      },
    },
    now: () => now,
    // Evenly spread, as many draws are in the mean.
    random: () => {
      draws += 1;
      return (draws * 0.618_033_988_749_895) % 1;
    },
  };
  gateway = await startGateway(options);
  commandFile = gateway.directory.file('command.yaml');
  const ports = [gateway.url, gateway.adminUrl].map((url) => Number(new URL(url).port));
  await writeFile(commandFile, configText(options, ports));
  browser = await sharedBrowser();
  visit = await Visit.begin(browser, gateway.adminUrl);
  const token = (await tollgate('operators', 'add', 'ann', '--role', 'admin')).trim();
  await visit.page.goto('/console');
  await visit.page.getByLabel('Token of an operator').fill(token);
  await visit.page.getByRole('button', { name: 'Sign in' }).click();
  await visit.title('Now');
  pageOfA = await visit.page.context().newPage();
  await pageOfA.goto('/console/upstreams/a');
}, BROWSER_TIMEOUT);
afterAll(async () => {
  await browser?.close();
  await gateway?.close();
  for (const upstream of upstreams.values()) await upstream.close();
});

function of(name: Name): HostileUpstream {
  const found = upstreams.get(name);
  if (found === undefined) throw new Error(`no upstream ${name}`);
  return found;
}

/** Requests for a model that the upstream received; health checks are none. */
const received = (name: Name): number => of(name).requests.filter(({ method }) => method === 'POST').length;

async function tollgate(...words: string[]) {
  const result = await runCommand([...words, '--config', commandFile], { TEST_DIR: gateway.directory.path });
  expect(result.code, result.stderr).toBe(0);
  return result.stdout;
}

async function send(count: number): Promise<number[]> {
  const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' };
  const body = JSON.stringify(chatRequest({ model: 'm' }));
  const statuses: number[] = [];
  for (let left = count; left > 0; left -= 10) {
    const batch = Array.from({ length: Math.min(10, left) }, async () => {
      const response = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
      await response.text();
      return response.status;
    });
    statuses.push(...(await Promise.all(batch)));
  }
  return statuses;
}

const page = async () => STATES.parse(await (await fetch(`${gateway.adminUrl}/upstreams`)).json());

/** The state now, without a look at the other views: it may change between two of them. */
const stateOf = async (name: Name) => (await page()).find(({ upstream }) => upstream === name)?.state;

/** Rows of the table: cells of the tools at one moment, and what the upstreams received of the next requests. */
const rows: string[][] = [];

/** `a 75, b 25, c 0` */
const counted = (counts: object): string =>
  Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ');

/** What differs from 0 of the state and the breaker, and from 1 of the others. */
function gaugesIn(metrics: readonly string[]): string {
  const differing = metrics.flatMap((line) => {
    const [, gauge = '', upstream, value] =
      /^tollgate_upstream_(state|breaker_state|healthy|in_service){upstream="(\w)".*} (\d)$/.exec(line) ?? [];
    const normal = gauge.endsWith('state') ? '0' : '1';
    return upstream === undefined || value === normal ? [] : [`${upstream}: ${gauge} ${value}`];
  });
  return differing.sort().join(', ') || '–';
}

/** The pages show a state by themselves, in the same word, and the form that fits it. */
async function watched({ upstream, state, drained }: z.output<typeof upstreamState>): Promise<void> {
  const { page: now } = visit;
  const isShown = async (on: Page) => (await on.locator(`#now-state-${upstream}`).textContent()) === state;
  await until(() => isShown(now), `Now to show that ${upstream} is ${state}`);
  if (upstream === 'a') await until(() => isShown(pageOfA), `the page of a to show that it is ${state}`);
  const row = now.getByRole('row', { name: new RegExp(`^${upstream} `) });
  const forms = ['Drain', 'Resume'].map((name) => row.getByRole('button', { name }).count());
  expect([upstream, await Promise.all(forms)]).toEqual([upstream, drained === null ? [1, 0] : [0, 1]]);
}

/** A figure of the last minute on *Now*; 0 until there are two samples. */
const figure = async (id: string) =>
  Number((await visit.page.locator(`#now-${id}`).textContent())?.replace('–', '0').replaceAll(',', ''));

/** Presses a button of an upstream on *Now*, as an operator does, and comes back. */
async function press(name: Name, button: 'Drain' | 'Resume'): Promise<void> {
  const { page: now } = visit;
  await now
    .getByRole('row', { name: new RegExp(`^${name} `) })
    .getByRole('button', { name: button })
    .click();
  await visit.title('Done');
  await now.getByRole('link', { name: 'Back' }).click();
  await visit.title('Now');
}

/** Asks each view, again if a state has changed meanwhile: health checks and ends of cool-downs wait for nobody. */
async function views() {
  for (;;) {
    const shown = await page();
    const metrics = (await gateway.metrics()).split('\n');
    const listed = STATES.parse(JSON.parse(await tollgate('upstreams', 'list', '--json')));
    const explained = EXPLAINED.parse(JSON.parse(await tollgate('explain', 'm', '--json')));
    if (isDeepStrictEqual(await page(), shown)) return { shown, metrics, listed, explained };
  }
}

/** Checks that all views agree, and returns what they say. @param moment adds a row to the table */
async function look(moment?: string) {
  const { shown, metrics, listed, explained } = await views();
  expect(listed).toEqual(shown);
  for (const { upstream, state, health, drained, in_flight, targets } of shown) {
    const [target] = targets;
    if (target === undefined) throw new Error('no target');
    const isOut = state === 'drained' || state === 'disabled';
    expect(metrics).toContain(
      `tollgate_upstream_breaker_state{upstream="${upstream}",model="x"} ${BREAKER[target.breaker]}`,
    );
    expect(metrics).toContain(
      `tollgate_upstream_state{upstream="${upstream}"} ${STATE_NAMES.indexOf(state)}`,
    );
    expect(metrics).toContain(`tollgate_upstream_in_service{upstream="${upstream}"} ${isOut ? 0 : 1}`);
    if (in_flight > 0)
      expect(metrics).toContain(`tollgate_upstream_in_flight{upstream="${upstream}"} ${in_flight}`);
    if (health !== null)
      expect(metrics).toContain(`tollgate_upstream_healthy{upstream="${upstream}"} ${health.ok ? 1 : 0}`);
    const live = explained.targets.find((each) => each.upstream === upstream)?.live;
    expect(live).toEqual({ state, breaker: target.breaker, in_flight: target.in_flight, drained });
    const text = await tollgate('upstreams', 'show', upstream);
    expect(text).toMatch(new RegExp(`^state +${state}$`, 'm'));
  }
  for (const each of shown) await watched(each);
  const states = Object.fromEntries(shown.map(({ upstream, state }) => [upstream, state]));
  const next = Object.fromEntries(explained.targets.map((each) => [each.upstream, each.next_hundred]));
  const rejected = explained.next_rejected;
  if (moment !== undefined) {
    const out = Object.entries(states).filter(([, state]) => state !== 'ok');
    const forecast = [counted(next), ...Object.entries(rejected).map(([code, count]) => `${code} ${count}`)];
    rows.push([moment, counted(Object.fromEntries(out)) || 'all ok', gaugesIn(metrics), forecast.join(', ')]);
  }
  return { states, next, rejected };
}

/** Sends requests, counts those that each upstream received, and ends the row of the table. */
async function sending(count = 100): Promise<Record<Name, number>> {
  const before = NAMES.map(received);
  await send(count);
  const [a = 0, b = 0, c = 0] = NAMES.map((name, at) => received(name) - (before[at] ?? 0));
  rows.at(-1)?.push(counted({ a, b, c }));
  return { a, b, c };
}

const EVENTS = z.array(
  z.object({
    upstream: z.string(),
    what: z.string(),
    reason: z.string().nullable(),
    actor: z.string().nullable(),
  }),
);

async function eventsIn(name: Name) {
  return EVENTS.parse(
    JSON.parse(await tollgate('upstreams', 'events', '--upstream', name, '--limit', '200', '--json')),
  );
}

const eventsOf = async (name: Name) => (await eventsIn(name)).map(({ what }) => what);

const comes = (name: Name, wanted: StateName) =>
  until(async () => (await stateOf(name)) === wanted, `${name} to be ${wanted}`);

describe('in an outage of one of three vendors, all views agree', () => {
  test('while all is well', async () => {
    expect(await look('all is well')).toEqual({
      states: { a: 'ok', b: 'ok', c: 'ok' },
      next: { a: 75, b: 25, c: 0 },
      rejected: {},
    });
    const sent = await sending();
    expect(Math.abs(sent.a - 75)).toBeLessThanOrEqual(3);
    expect([sent.a + sent.b, sent.c]).toEqual([100, 0]);
  });

  test('while its breaker is open', async () => {
    of('a').always(json(500, upstreamError('down')));
    await until(async () => {
      await send(1);
      return (await stateOf('a')) === 'open';
    }, 'the breaker to open');
    expect(await look('a fails, its breaker has opened')).toMatchObject({
      states: { b: 'ok', c: 'ok' },
      next: { a: 0, b: 100, c: 0 },
    });
    expect(await sending()).toEqual({ a: 0, b: 100, c: 0 });
    const line = await gateway.logLine(({ msg }) => String(msg).startsWith('circuit breaker opened'));
    expect(line).toMatchObject({ upstream: 'a', model: 'x', level: 'warn' });
    expect(line['reason']).toMatch(/failures in a row; the last one: upstream_error$|of \d+ requests failed/);
  });

  test('while one request probes it', async () => {
    now += 10_001;
    expect(await look('10 s later')).toMatchObject({
      states: { a: 'half_open' },
      next: { a: 1, b: 99, c: 0 },
    });
    expect(await sending()).toMatchObject({ a: 1, b: 100 });
    expect((await look()).states).toMatchObject({ a: 'open' });
  });

  test('while the health check of another one fails, too', async () => {
    of('b').always(json(503, upstreamError('unwell')));
    await comes('b', 'unhealthy');
    expect(await look('the health check of b fails, too')).toMatchObject({
      states: { a: 'open', c: 'ok' },
      next: { a: 0, b: 0, c: 100 },
    });
    expect(await sending()).toEqual({ a: 0, b: 0, c: 100 });
    expect(
      await gateway.logLine(({ msg }) => String(msg).startsWith('health check of an upstream fails')),
    ).toMatchObject({
      upstream: 'b',
      reason: 'status 503',
    });
  });

  test('while the third one is drained', async () => {
    await tollgate('upstreams', 'drain', 'c', '--reason', 'maintenance', '--actor', 'ann');
    await comes('c', 'drained');
    expect(await look('c is drained')).toMatchObject({ next: { a: 0, b: 100, c: 0 } });
    // One request, because a hundred would open the breaker of b.
    const { a, b, c } = await sending(1);
    expect([a, b > 0, c]).toEqual([0, true, 0]);
  });

  test('while all are drained', async () => {
    for (const name of ['a', 'b'] as const) await press(name, 'Drain');
    await comes('b', 'drained');
    await comes('a', 'drained');
    expect(await look('all are drained')).toMatchObject({
      next: { a: 0, b: 0, c: 0 },
      rejected: { upstream_out_of_service: 100 },
    });
    const counts = NAMES.map(received);
    const response = await gateway.chat(chatRequest({ model: 'm' }));
    expect([response.status, response.header('retry-after')]).toEqual([503, '5']);
    expect(response.json()).toMatchObject({ error: { code: 'upstream_out_of_service' } });
    expect(NAMES.map(received)).toEqual(counts);
    expect(await sending()).toEqual({ a: 0, b: 0, c: 0 });
    // The fault of a client.
    expect((await gateway.chat(chatRequest({ model: 'nothing' }))).status).toBe(404);
    // Errors of the last minute are counted by whose fault they were.
    const faults = async () => [await figure('upstream'), await figure('client')];
    await until(async () => (await faults()).every((count) => count > 0), 'Now to count the errors');
    const [upstream = 0, client = 0] = await faults();
    expect([upstream > client, await figure('gateway')]).toEqual([true, 0]);
    // The end of its cool-down is reported, although nobody asks it.
    now += 60_001;
    await until(async () => (await eventsOf('a')).at(-1) === 'breaker half_open', 'the end of the cool-down');
    for (const name of ['a', 'b'] as const) await press(name, 'Resume');
    // The gateway learns it from the store, some time after the page says *Done*.
    await comes('a', 'half_open');
    await comes('b', 'unhealthy');
  });

  test('while it comes back', async () => {
    // A health check that succeeds does not end a drain.
    await tollgate('upstreams', 'drain', 'b');
    await comes('b', 'drained');
    for (const name of NAMES) of(name).always(json(200, completion()));
    await until(
      async () => (await page()).find(({ upstream }) => upstream === 'b')?.health?.ok,
      'the health check',
    );
    expect((await look()).states).toMatchObject({ b: 'drained' });
    await tollgate('upstreams', 'resume', 'b');
    await comes('b', 'ok');
    await comes('a', 'half_open');
    await until(async () => {
      await send(1);
      return (await stateOf('a')) === 'ok';
    }, 'the breaker to close');
    expect(await look('a and b are back')).toMatchObject({
      states: { b: 'ok', c: 'drained' },
      next: { a: 75, b: 25, c: 0 },
    });
    const sent = await sending();
    expect(Math.abs(sent.a - 75)).toBeLessThanOrEqual(3);
  });

  test('while it asks for a wait', async () => {
    of('a').always(json(429, upstreamError('slower'), { 'retry-after': '30' }));
    await until(async () => {
      await send(1);
      return (await stateOf('a')) === 'cooling_down';
    }, 'the cool-down');
    expect(await look('a asks for a wait of 30 s')).toMatchObject({ next: { a: 0, b: 100 } });
    expect(await sending()).toMatchObject({ a: 0, b: 100 });
    now += 30_001;
    of('a').always(json(200, completion()));
    expect((await look('30 s later')).states).toMatchObject({ a: 'ok' });
    await sending();
  });

  test('and the history has every change once, with its reason', async () => {
    await tollgate('upstreams', 'resume', 'c', '--actor', 'ann');
    await until(async () => (await eventsOf('a')).at(-1) === 'cooled_down', 'the last event');
    expect(await eventsOf('a')).toEqual([
      'breaker open',
      'breaker half_open',
      'breaker open',
      'drained',
      'breaker half_open',
      'resumed',
      'breaker closed',
      'cooling_down',
      'cooled_down',
    ]);
    expect(await eventsOf('b')).toEqual(['unhealthy', 'drained', 'resumed', 'drained', 'healthy', 'resumed']);
    expect(await eventsIn('c')).toMatchObject([
      { what: 'drained', reason: 'maintenance', actor: 'ann' },
      { what: 'resumed', reason: null, actor: 'ann' },
    ]);
    expect(await tollgate('upstreams', 'events', '--upstream', 'c')).toMatch(
      /^\S+ {2}c: drained: maintenance {2}\(ann\)\n/,
    );
  });

  test('and the page of each upstream tells it as the command line does', async () => {
    for (const name of NAMES) {
      await pageOfA.goto(`/console/upstreams/${name}`);
      const table = pageOfA.getByRole('table', { name: 'Changes of states' });
      const told = await table
        .locator('tbody tr')
        .evaluateAll((lines) => lines.map((line) => [...line.children].map((cell) => cell.textContent)));
      // The last is the first on the page.
      const shownEvents = told.map(([, , , what, reason, , actor]) => ({ what, reason, actor })).reverse();
      const text = (value: string | null) => value ?? '–';
      expect(shownEvents).toEqual(
        (await eventsIn(name)).map(({ what, reason, actor }) => ({
          what,
          reason: text(reason),
          actor: text(actor),
        })),
      );
    }
    expect(visit.faults).toEqual([]);
  });

  test('and docs/operations.md shows the table', () => {
    const page = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
    const shown = /<!-- outage -->\n\n([\s\S]*?)\n\n<!-- \/outage -->/.exec(page)?.[1] ?? '';
    const heads = [
      'moment',
      '`/upstreams`, `tollgate upstreams list`',
      '`/metrics`',
      '`tollgate explain`: the next hundred',
      'received',
    ];
    const table = [heads, heads.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
    // Drawn by weight: a few more or less.
    const plain = (text: string) => text.replaceAll(/a 7\d, b 2\d/g, 'a 75, b 25');
    expect(plain(shown)).toBe(plain(table.join('\n')));
  });
});
