// A search of two broad conditions, whose pages end before they are full: the API says where it continues, the command line and the console
// continue.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { run } from '../store/older.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

const HOLDERS = 30_000;
/** Of these most have the name, and others the beginning of the label; the last one in order has both. */
const SEARCH = 'name=even&label=stage=t*';
const LAST = 'Even z';

let setting: ConsoleSetting;
let token: string;

beforeAll(async () => {
  setting = await startConsole();
  token = await setting.operator('ann', 'admin');
  const numbers = `(with recursive c (n) as (select 0 union all select n + 1 from c where n + 1 < ${HOLDERS}) select n from c) as x`;
  const isOdd = 'n % 5 = 1';
  const at = '2030-01-01T00:00:00.000Z';
  await run({ kind: 'sqlite', path: setting.gateway.directory.file('tollgate.db') }, [
    'begin',
    `insert into labels (owner_id, name, value)
       select 'h' || n, 'stage', case when n = 0 or ${isOdd} then 'trial' else 'live' end from ${numbers}`,
    `insert into holders (id, tier, label, created_at)
       select 'h' || n, 'Pro', case when n = 0 then '${LAST}' when ${isOdd} then 'Odd ' || n else 'Even ' || n end, '${at}' from ${numbers}`,
    'commit',
  ]);
}, 120_000);
afterAll(() => setting[Symbol.asyncDispose]());

test('pages of the API are short and together whole', async () => {
  const pages: { items: { name: string }[]; next_cursor: string | null }[] = [];
  do {
    const cursor = pages.at(-1)?.next_cursor;
    const { json } = await setting.call(
      'GET',
      `/api/v1/holders?${SEARCH}${cursor == null ? '' : `&cursor=${cursor}`}`,
      { token },
    );
    pages.push(json as (typeof pages)[number]);
  } while (pages.at(-1)?.next_cursor !== null);
  expect(pages.length).toBeGreaterThan(5);
  expect(pages[0]).toMatchObject({ items: [], next_cursor: expect.any(String) });
  expect(pages.flatMap(({ items }) => items.map(({ name }) => name))).toEqual([LAST]);
});

test('the command line reads on until the end', async () => {
  const found = await setting.commands.json('holders', 'list', '--name', 'even', '--label', 'stage=t*');
  expect(found).toMatchObject([{ name: LAST }]);
});

test('the console reads some pages, and continues by a link', async () => {
  const { cookie } = await setting.signIn(token);
  const first = (await setting.call('GET', `/console/holders?${SEARCH}`, { cookie })).text;
  expect(first).toContain('Nothing found so far.');
  const [, link = ''] = /<a href="([^"]+)">Continue the search<\/a>/.exec(first) ?? [];
  const next = (await setting.call('GET', link.replaceAll(/&(?:amp|#38);/g, '&'), { cookie })).text;
  expect(next).toContain('1 found.');
  expect(next).toContain(LAST);
});
