// Months are closed, listed and reopened; what a month was closed with can be proved from its export.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import type { Store } from '../../src/store/store.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { earlierUsage, run } from '../store/older.ts';
import { batch, row } from '../store/usage-samples.ts';
import { collector } from './collector.ts';

let dir: TempDir;
let store: Store;
let now: number;

beforeEach(async () => {
  dir = await tempDir();
  now = Date.parse('2030-02-03T04:05:06Z');
  writeFileSync(
    dir.file('config.yaml'),
    `store: sqlite:${dir.file('keys.db')}
currency: EUR
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
  store = await openNewStore(dir.file('keys.db'));
});

afterEach(async () => {
  await store.close();
  await dir.remove();
});

async function usage(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: { USER: 'alice' }, now: () => now };
  const code = await main(['usage', ...argv, '--config', dir.file('config.yaml')], io);
  return { code, out: out.text(), err: err.text() };
}

async function add(...rows: Parameters<typeof row>[0][]) {
  const at = new Date(now).toISOString();
  await store.usage.addUsage({ ...batch(rows.map((each) => row({ hour: '2030-01-31T23', ...each }))), at });
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

test('a month is closed with its totals and a digest, which is that of its export', async () => {
  await add(
    {
      model: 'a,"b"',
      sums: { requests: 2, failed: 1, prompt: 30, completion: 4, priced: 1, cost: 1_500_000_000 },
    },
    { model: '=1+1', holderId: 'ü', sums: { prompt: 1, cost: 9_007_199_254_740_991 } },
    { hour: '2030-02-01T00' },
  );
  const { code, out } = await usage('close', '2030-01');
  const exported = (await usage('export', '2030-01')).out;
  expect([code, out.split('\n')]).toEqual([
    0,
    [
      'Closed 2030-01.',
      'requests           3',
      'failed             1',
      'prompt tokens      31',
      'completion tokens  4',
      'cost               9007200.754740991',
      'currency           EUR',
      `digest             ${sha256(exported)}`,
      '',
    ],
  ]);
  expect(exported.split('\r\n')).toEqual([
    'month,holder,key,model,upstream,team_id,tier,target,endpoint,requests,failed,estimated,priced,attempts,prompt,completion,cached,reasoning,cost,duration_ms,ttft_ms,ttft_count',
    '2030-01,holder-1,0123abcd,"a,""b""",openai,,Lite,gpt-1,chat,2,1,0,1,1,30,4,0,0,1500000000,0,0,0',
    '2030-01,ü,0123abcd,=1+1,openai,,Lite,gpt-1,chat,1,0,0,0,1,1,0,0,0,9007199254740991,0,0,0',
    '',
  ]);
});

test('totals without a price are null', async () => {
  await add({ sums: { priced: 0, cost: 0 } });
  expect(JSON.parse((await usage('close', '2030-01', '--json')).out).totals).toMatchObject({ cost: null });
});

test('many rows have the digest of their export, page by page', async () => {
  await add(...Array.from({ length: 4321 }, (_, index) => ({ model: `m${index}`, sums: { cost: index } })));
  const { digest, totals } = JSON.parse((await usage('close', '2030-01', '--json')).out);
  const exported = (await usage('export', '2030-01')).out;
  expect(exported.split('\r\n')).toHaveLength(4323);
  expect([digest, totals.requests]).toEqual([sha256(exported), '4321']);
});

test('late usage is in the present month, and the list says how much', async () => {
  await add({});
  const closed = JSON.parse((await usage('close', '2030-01', '--json')).out);
  await add({ sums: { requests: 3, cost: 7 } });
  expect(JSON.parse((await usage('close', '2030-01', '--json')).out)).toEqual(closed);
  const months = JSON.parse((await usage('months', '--json')).out);
  expect(months).toMatchObject([
    {
      month: '2030-01',
      closed_at: '2030-02-03T04:05:06.000Z',
      digest: closed.digest,
      late_requests: 3,
      late_cost: '0.000000007',
    },
    { month: '2030-02', closed_at: null, digest: null },
  ]);
  expect((await usage('months')).out.split('\n')).toEqual([
    `MONTH    STATE    CLOSED_AT                 DIGEST${' '.repeat(60)}LATE_REQUESTS`,
    `2030-01  closed   2030-02-03T04:05:06.000Z  ${closed.digest}              3`,
    `2030-02  running  -                         -${' '.repeat(77)}0`,
    '',
  ]);
});

test('a month is reopened only with a reason, which stays in its history', async () => {
  await add({});
  const { digest } = JSON.parse((await usage('close', '2030-01', '--json')).out);
  expect(await usage('close', '2030-01', '--reopen', '--reason', 'a bill was wrong')).toMatchObject({
    code: 0,
    out: 'Reopened 2030-01.\n',
  });
  expect(await usage('close', '2030-01', '--reopen', '--reason', 'again')).toMatchObject({ code: 1 });
  await add({});
  const again = JSON.parse((await usage('close', '2030-01', '--json', '--actor', 'finance')).out);
  expect(again.totals.requests).toBe('2');
  expect(again.digest).not.toBe(digest);
  const [{ events }] = JSON.parse((await usage('months', '--json')).out);
  expect(events).toMatchObject([
    { what: 'closed', actor: 'cli:alice' },
    { what: 'reopened', actor: 'cli:alice', reason: 'a bill was wrong', digest },
    { what: 'closed', actor: 'finance' },
  ]);
});

test.each(['2030-02', '2030-03', '2031-01'])('%s, which is not over, is not closed', async (month) => {
  expect(await usage('close', month)).toMatchObject({ code: 1, err: expect.stringContaining('is not over') });
  expect(await store.usage.months()).toEqual([]);
});

test('a month that is running is exported, and a later one is not', async () => {
  await add({ hour: '2030-02-03T03' });
  const { code, out } = await usage('export', '2030-02');
  expect([code, out.split('\r\n')]).toEqual([
    0,
    [expect.any(String), expect.stringMatching(/^2030-02,/), ''],
  ]);
  expect(await usage('export', '2030-03')).toMatchObject({
    code: 2,
    out: '',
    err: expect.stringContaining('2030-03 is in the future'),
  });
});

test('a month whose rows were changed by hand is found', async () => {
  await add({});
  await usage('close', '2030-01');
  await run({ kind: 'sqlite', path: dir.file('keys.db') }, ['update usage_months set cost = 1']);
  expect(await usage('close', '2030-01')).toMatchObject({
    code: 1,
    out: '',
    err: expect.stringContaining('are not those that it was closed with'),
  });
});

test('a closing that was interrupted before its digest is completed', async () => {
  await add({});
  await store.usage.closeMonth('2030-01', { actor: null, reason: null, at: '2030-02-01T00:00:00.000Z' });
  const { out } = await usage('close', '2030-01');
  expect(out).toMatch(/^2030-01 was closed at 2030-02-01T00:00:00.000Z\.\n/);
  expect((await store.usage.months())[0]?.digest).toBe(sha256((await usage('export', '2030-01')).out));
});

test('a month that has no usage from an earlier version is closed, and says so', async () => {
  await run({ kind: 'sqlite', path: dir.file('keys.db') }, [earlierUsage('2029-11-30T23', 'holder-1', 3)]);
  expect((await usage('close', '2029-11')).out).toContain('requests           3\n');
  expect(await usage('close', '2029-12')).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^Closed 2029-12\. There is no usage in it\.\nrequests +0\n/),
  });
});

test('a month before any usage is closed by force only, and can be repeated then', async () => {
  const refused = (err: string) => ({ code: 1, out: '', err: expect.stringContaining(err) });
  expect(await usage('close', '2029-12'), 'a store without usage').toMatchObject({ code: 0 });
  await add({}, { hour: '2030-02-01T00' });
  expect(await usage('close', '1970-01')).toMatchObject(
    refused('no usage in 1970-01, nor before it: the first is in 2030-01; give --force'),
  );
  expect((await store.usage.months()).map(({ month }) => month)).toEqual(['2029-12', '2030-01', '2030-02']);
  expect(await usage('close', '1970-01', '--force')).toMatchObject({ code: 0 });
  expect(await usage('close', '1970-01')).toMatchObject({
    code: 0,
    out: expect.stringContaining('There is no usage in it.'),
  });
});
