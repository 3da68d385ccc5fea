// `tollgate operators`: tokens are shown once and stored as hashes; names, roles and expiry are checked.
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { commandsWith } from './commands.ts';

let dir: TempDir;
const { tollgate, json } = commandsWith(() => dir.file('config.yaml'));
const operators = (...argv: string[]) => tollgate('operators', ...argv);

beforeAll(async () => {
  dir = await tempDir();
  const config = `store: sqlite:${dir.file('keys.db')}\nupstreams: { e: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: e, model: m }] } }\n`;
  await writeFile(dir.file('config.yaml'), config);
});
afterAll(() => dir.remove());

test('a token goes to standard output once, and only its prefix to the store and to lists', async () => {
  const { code, out, err } = await operators('add', 'ann', '--role', 'admin', '--reason', 'first');
  const token = out.trim();
  expect([code, token]).toEqual([0, expect.stringMatching(/^tgo_[0-9a-f]{32}$/)]);
  expect(err).toContain(`Issued the token ${token.slice(4, 12)} for ann.`);
  const [listed] = (await json('operators', 'list')) as unknown[];
  expect(listed).toMatchObject({ name: 'ann', role: 'admin', prefix: token.slice(4, 12), last_used: null });
  const expiry = Date.parse(Reflect.get(Object(listed), 'expires_at')) - Date.now();
  expect(Math.round(expiry / 86_400_000)).toBe(90);
  expect(JSON.stringify(listed)).not.toContain(token.slice(12));
  const bytes = await Promise.all(
    ['keys.db', 'keys.db-wal'].map((name) => readFile(dir.file(name)).catch(() => Buffer.alloc(0))),
  );
  expect(Buffer.concat(bytes).includes(token.slice(12))).toBe(false);
});

test('with --json a token is a field beside what the operator is', async () => {
  const fields = { token: expect.stringMatching(/^tgo_[0-9a-f]{32}$/), prefix: expect.any(String) };
  expect(await json('operators', 'add', 'jo', '--role', 'viewer', '--no-expiry')).toEqual({
    ...fields,
    name: 'jo',
    role: 'viewer',
    expires_at: null,
  });
  expect(await json('operators', 'rotate', 'jo', '--expires', '2098-01-31')).toEqual({
    ...fields,
    name: 'jo',
    role: 'viewer',
    expires_at: '2098-01-31T00:00:00.000Z',
  });
  expect(await json('operators', 'remove', 'jo')).toEqual({ outcome: 'removed', operator: 'jo' });
});

test('rotate gives another token, remove ends it, and each is an event with actor, reason, before and after', async () => {
  await operators('add', 'bob', '--role', 'viewer');
  const { out } = await operators('rotate', 'BOB', '--no-expiry', '--actor', 'carol', '--reason', 'lost');
  expect(out).toMatch(/^tgo_[0-9a-f]{32}\n$/);
  expect(await operators('remove', 'bob')).toMatchObject({ code: 0, out: 'Removed the operator bob.\n' });
  const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
  const events = await store.operators.events({ target: 'bob', limit: 10 });
  await store.close();
  expect(events.map(({ what, actor, reason }) => [what, actor, reason])).toEqual([
    ['operators.remove', 'cli:alice', null],
    ['operators.rotate', 'carol', 'lost'],
    ['operators.add', 'cli:alice', null],
  ]);
  const [removed, rotated] = events.map(({ before, after }) =>
    [before, after].map((each) => JSON.parse(each ?? 'null')),
  );
  expect(rotated?.[1]).toMatchObject({ prefix: out.slice(4, 12), expires_at: null });
  expect(rotated?.[0].prefix).not.toBe(out.slice(4, 12));
  expect(removed).toEqual([rotated?.[1], null]);
});

test.each([
  [2, ['add', 'x'], '--role is missing'],
  [
    2,
    ['add', 'x', '--role', 'amdin'],
    'unknown role: it is one of viewer, support, admin (did you mean admin?)',
  ],
  [2, ['add', 'a b', '--role', 'admin'], 'NAME has up to 100 letters'],
  [2, ['add', '*', '--role', 'admin'], 'NAME has up to 100 letters'],
  [2, ['add', 'x', '--role', 'admin', '--expires', '2020-01-01'], '--expires is in the past'],
  [
    2,
    ['add', 'x', '--role', 'admin', '--expires', '1d', '--no-expiry'],
    'give either --expires or --no-expiry',
  ],
  [1, ['add', 'ANN', '--role', 'admin'], 'there is an operator with this name already'],
  [1, ['rotate', 'anm'], 'there is no operator with this name (did you mean ann?)'],
  [1, ['remove', 'nobody-at-all'], 'there is no operator with this name'],
])('exit code %i: %j', async (code, argv, message) => {
  await operators('add', 'ann', '--role', 'admin');
  const result = await operators(...argv);
  expect(result).toMatchObject({ code, out: '' });
  expect(result.err).toContain(message);
});
