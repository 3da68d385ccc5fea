// What of the API PostgreSQL shows and SQLite does not. Text that it does not take or that means something in a pattern is the fault
// of the client, and no error of the gateway; and changes really run at the same time.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ApiRoute } from '../../src/console/api/api-route.ts';
import { API_ROUTES } from '../../src/console/api/api-routes.ts';
import { type Databases, POSTGRES_TIMEOUT, sharedPostgres } from '../helpers/shared-servers.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

const ODD = ['a\0b', 'a=\0', '\ud800', '_%\\', "'"];

let databases: Databases;
let setting: ConsoleSetting;
let token: string;

beforeAll(async () => {
  databases = await sharedPostgres();
  const config = { store: await databases.createStore(), secret: 'a secret of this test, and long' };
  setting = await startConsole({ config });
  token = await setting.operator('ann', 'admin');
}, POSTGRES_TIMEOUT);
afterAll(async () => {
  await setting?.[Symbol.asyncDispose]();
  await databases?.[Symbol.asyncDispose]();
});

function callsOf({ method, path, query, body }: ApiRoute, text: string) {
  const encoded = encodeURIComponent(text.toWellFormed());
  const own = `/api/v1${path.replace(/:\w+/, encoded)}`;
  const ofBody = Object.keys(body?.shape ?? {}).map((name) => ({
    path: own,
    body: { tier: 'Free', [name]: text },
  }));
  const ofQuery = Object.keys(query.shape).map((name) => ({ path: `${own}?${name}=${encoded}` }));
  return [...(path.includes(':') ? [{ path: own }] : []), ...(method === 'GET' ? [] : ofBody), ...ofQuery];
}

test.each(ODD)('%j in each parameter of each call of the API', async (text) => {
  const faults: string[] = [];
  for (const route of API_ROUTES)
    for (const { path, ...call } of callsOf(route, text)) {
      const answer = await setting.call(route.method, path, { token, ...call });
      if (answer.status >= 500) faults.push(`${route.method} ${path}: ${answer.text}`);
    }
  expect(faults).toEqual([]);
});

test('a NUL is named, and a record whose name has one is none', async () => {
  const get = (path: string) => setting.call('GET', `/api/v1${path}`, { token });
  expect((await get('/keys?name=%00')).json).toMatchObject({
    status: 400,
    code: 'invalid_value',
    detail: expect.stringContaining('NUL'),
  });
  expect((await get('/teams/%00')).json).toMatchObject({ code: 'record_not_found' });
});

test('of changes with one tag one is done, whatever names of the record they use', async () => {
  const { commands } = setting;
  const prefix = await commands.issue('--tier', 'Pro');
  const { holder } = Object(await commands.json('keys', 'show', prefix));
  await commands.done('teams', 'add', 'Search');
  const labels = { env: 'prod' };
  for (const [kind, ...names] of [
    ['holders', holder, prefix],
    ['teams', 'Search', 'SEARCH'],
  ])
    for (let round = 0; round < 3; round += 1) {
      const path = (name: unknown) => `/api/v1/${kind}/${name}`;
      const etag = String((await setting.call('GET', path(names[0]), { token })).headers.etag);
      const changes = names.map((name, index) => {
        const body = { labels: { ...labels, round: `${round} ${index}` } };
        return setting.call('PATCH', path(name), { token, body, headers: { 'if-match': etag } });
      });
      const statuses = (await Promise.all(changes)).map(({ status }) => status).sort();
      expect([kind, ...statuses]).toEqual([kind, 200, 412]);
    }
});
