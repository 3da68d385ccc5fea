// Reports and a closed month in PostgreSQL after names have changed, a team was made again, a holder moved, and usage came late: each
// grouping adds up to the same total, and the digest stays.
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { runCommand } from '../helpers/gateway.ts';
import { POSTGRES_TIMEOUT } from '../helpers/postgres.ts';
import { sharedPostgres } from '../helpers/shared-servers.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { batch, row } from './usage-samples.ts';

const GROUPS = ['team', 'holder', 'label:cc', 'tier', 'model', 'day', 'team,holder,key', 'month,target'];

let dir: TempDir;
let store: Store;
const resources = new AsyncDisposableStack();

beforeAll(async () => {
  dir = resources.use(await tempDir());
  const databases = resources.use(await sharedPostgres());
  const url = await databases.createStore();
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2030-11-02T08:00:00Z') });
  const config = `
store: ${url}
secret: a secret of the test
currency: EUR
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`;
  writeFileSync(dir.file('config.yaml'), config);
  store = await openStore({ kind: 'postgres', url });
}, POSTGRES_TIMEOUT);
afterAll(async () => {
  vi.useRealTimers();
  await store?.close();
  await resources.disposeAsync();
});

async function run(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await runCommand([...words, '--config', dir.file('config.yaml')]);
  expect([code, stderr]).toEqual([0, expect.any(String)]);
  return stdout;
}

async function teamId(name: string): Promise<string> {
  return (await store.organisation.findTeam({ name }))?.id ?? expect.fail();
}

/** In billionths: the sum over the lines of a report. */
async function costOf(month: string, by: string): Promise<bigint> {
  const [head = '', ...lines] = (await run('usage', '--month', month, '--by', by, '--csv'))
    .trim()
    .split('\r\n');
  const column = head.split(',').indexOf('cost');
  const costs = lines.map((line) => BigInt((line.split(',')[column] ?? '').replace('.', '')));
  return costs.reduce((sum, cost) => sum + cost, 0n);
}

const figures = (closed: string) => closed.split('\n').slice(1);

test('reports add up, and a closed month stays, whatever is renamed, moved, made again or late', async () => {
  await run('teams', 'add', 'search');
  await run('teams', 'add', 'ads');
  await run('keys', 'issue', '--tier', 'Pro', '--holder', 'Ann', '--team', 'search', '--label', 'cc=1');
  const [search, ads] = [await teamId('search'), await teamId('ads')];
  const { items } = await store.listKeys({ limit: 1 });
  const [{ holderId, prefix } = expect.fail()] = items;
  const used = (hour: string, cost: number, more: object) =>
    row({ holderId, prefix, hour, sums: { requests: 1, priced: 1, cost }, ...more });
  await store.usage.addUsage(
    batch([
      used('2030-10-03T10', 1_000_000_001, { teamId: search, tier: 'Pro' }),
      used('2030-10-20T10', 2_000_000_003, { teamId: ads, tier: 'Lite' }),
      used('2030-10-20T10', 4_000_000_007, { teamId: ads, model: 'new-name' }),
      used('2030-11-01T10', 8_000_000_011, { teamId: ads }),
    ]),
  );
  const closed = await run('usage', 'close', '2030-10');
  const exported = await run('usage', 'export', '2030-10');
  await run('teams', 'set', 'ads', '--name', 'adverts');
  await run('holders', 'set', holderId, '--name', 'Anna', '--team', 'adverts', '--label', 'cc=2');
  await run('teams', 'remove', 'search');
  await run('teams', 'add', 'search');
  // From the outbox of a replica that was down.
  await store.usage.addUsage(
    batch([
      used('2030-10-31T23', 16_000_000_013, { teamId: search }),
      used('2030-11-01T11', 32_000_000_017, { teamId: search }),
    ]),
  );
  expect(figures(await run('usage', 'close', '2030-10'))).toEqual(figures(closed));
  expect(await run('usage', 'export', '2030-10')).toBe(exported);
  for (const by of GROUPS)
    expect([by, await costOf('2030-10', by), await costOf('2030-11', by)]).toEqual([
      by,
      7_000_000_011n,
      56_000_000_041n,
    ]);
  // Late usage counts in the budgets of the day and the month in which it arrives.
  const totals = await store.usage.usageOf({ kind: 'holder', id: holderId }, '2030-11-02');
  expect(totals).toMatchObject({ cost_per_day: 16_000_000_013, cost_per_month: 56_000_000_041 });
});
