// Every error of the admin listener, provoked by a request.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { OPERATOR_ERRORS } from '../../src/errors.ts';
import { openStore } from '../../src/store/open.ts';
import { type ConsoleAnswer, type ConsoleSetting, startConsole } from './setting.ts';

let setting: ConsoleSetting;
let token: string;
let viewer: string;
const seen = new Set<string>();

beforeAll(async () => {
  setting = await startConsole();
  token = await setting.operator('ann', 'admin');
  viewer = await setting.operator('vic', 'viewer');
});
afterAll(() => setting[Symbol.asyncDispose]());

function expectProblem({ status, json }: ConsoleAnswer, code: keyof typeof OPERATOR_ERRORS): void {
  seen.add(code);
  const { status: wanted } = OPERATOR_ERRORS[code];
  expect([status, json]).toEqual([wanted, expect.objectContaining({ code, status: wanted })]);
}

test('who calls', async () => {
  expectProblem(await setting.call('GET', '/api/v1/keys'), 'operator_required');
  expectProblem(
    await setting.call('GET', '/api/v1/keys', { token: `tgo_${'0'.repeat(32)}` }),
    'invalid_operator',
  );
  const body = { name: 'a' };
  expectProblem(await setting.call('POST', '/api/v1/teams', { token: viewer, body }), 'role_too_low');
  const { cookie } = await setting.signIn(token);
  expectProblem(await setting.call('POST', '/api/v1/teams', { cookie, body }), 'forged_request');
  await using fresh = await startConsole();
  expectProblem(await fresh.call('GET', '/api/v1/keys'), 'no_operators');
});

test('a page takes no other method, and says which it takes', async () => {
  const { cookie } = await setting.signIn(token);
  for (const method of ['DELETE', 'PUT', 'POST']) {
    const { status, headers } = await setting.call(method, '/console/keys', { cookie });
    expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
  }
});

test('what is there', async () => {
  expectProblem(await setting.call('GET', '/api/v1/keys/00000000', { token }), 'record_not_found');
  const add = (headers = {}) =>
    setting.call('POST', '/api/v1/teams', { token, headers, body: { name: 'search' } });
  expect((await add()).status).toBe(200);
  expectProblem(await add(), 'record_conflict');
  const headers = { 'if-match': '"labels:00000000"' };
  const change = { token, headers, body: { labels: { env: 'prod' } } };
  expectProblem(await setting.call('PATCH', '/api/v1/teams/search', change), 'record_changed');
});

test('repeated requests', async () => {
  const send = (name: string, key: string) =>
    setting.call('POST', '/api/v1/teams', { token, headers: { 'idempotency-key': key }, body: { name } });
  expect((await send('maps', 'once')).status).toBe(200);
  expectProblem(await send('others', 'once'), 'request_key_reused');
  // As a process leaves it that ended in between.
  const store = await openStore({ kind: 'sqlite', path: setting.gateway.directory.file('tollgate.db') });
  const body = { name: 'lost' };
  await store.operators.addEvent({
    at: new Date().toISOString(),
    actor: 'operator:ann',
    address: null,
    what: 'teams.add',
    target: null,
    reason: null,
    status: null,
    before: null,
    after: null,
    requestKey: 'lost',
    digest: createHash('sha256')
      .update(JSON.stringify(['teams.add', '/api/v1/teams', body]))
      .digest('hex'),
  });
  await store.close();
  expectProblem(await send('lost', 'lost'), 'request_unsettled');
});

test('too many attempts from one address', async () => {
  const from = '127.0.0.77';
  for (let attempt = 0; ; attempt += 1) {
    const guess = `tgo_${attempt.toString(16).padStart(32, '0')}`;
    const answer = await setting.call('GET', '/api/v1/keys', { from, token: guess });
    expect(attempt).toBeLessThan(100);
    if (answer.status === 401) continue;
    expectProblem(answer, 'too_many_sign_ins');
    return;
  }
});

test('no error of the table is left out', () => {
  // Runs last; alone it can say nothing.
  if (seen.size > 2) expect(Object.keys(OPERATOR_ERRORS).filter((code) => !seen.has(code))).toEqual([]);
});
