// Each command of docs/finance.md does what the page says, in its order.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { runCommand } from '../helpers/gateway.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { batch, row } from '../store/usage-samples.ts';

const PAGE = readFileSync(new URL('../../docs/finance.md', import.meta.url), 'utf8');
const COMMANDS = [...PAGE.matchAll(/```sh\n(.*?)```/gs)].flatMap(([, block = '']) =>
  block.trim().split('\n'),
);

/** What is said of the output of a command, by its number. */
const SAYS: readonly RegExp[] = [
  /^TEAM +REQUESTS .* COST_EUR .*\n- +1 .*\nads +2 .* 3\.000000000 .*\nsearch +5 .* 7\.500000001 .*\nTOTAL +8 .* 10\.500000001 /,
  /^team,team_id,requests,.*,currency\r\n,,1,.*\r\nads,t2,2,.*,3\.000000000,.*,EUR\r\nsearch,t1,5,.*,7\.500000001,/,
  /^MODEL +TARGET +UPSTREAM .*\ngpt +gpt-1 +openai +4 .*\ngpt +gpt-2 +azure +1 /,
  /^HOLDER +KEY .*\nholder-1 +0123abcd +4 .*\nholder-1 +ffff0000 +1 /,
  /^day,requests.*\r\n2030-10-01,1,.*\r\n2030-10-31,4,/,
  /^The team search is changed\.\n$/,
  /^LABEL:COST_CENTER .*\n- +3 .*\n4711 +5 /,
  /^TEAM +MODEL .*\nsearch +gpt +5 .*\nTOTAL +5 /,
  /^MONTH .*\n2030-09 +open .*\n2030-10 +open .*\n2030-11 +running /,
  /^Closed 2030-10\.\nrequests +8\n(?:.*\n)*cost +10\.500000001\ncurrency +EUR\ndigest +[0-9a-f]{64}\n$/,
  /^month,holder,key,.*\r\n2030-10,/,
  /^Reopened 2030-10\.\n$/,
  /^Closed 2030-10\.\n/,
  /^month,holder,key,/,
  /^month,team,team_id,.*\r\n2030-10,,,1,.*\r\n2030-10,ads,t2,2,.*\r\n2030-10,search,t1,5,/,
];

let dir: TempDir;
const outputs: string[] = [];

beforeAll(async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2030-11-02T08:00:00Z') });
  dir = await tempDir();
  writeFileSync(
    dir.file('config.yaml'),
    `store: sqlite:${dir.file('keys.db')}
currency: EUR
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
  const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
  const by = { actor: null, reason: null, at: '2030-01-01T00:00:00.000Z' };
  await store.organisation.addTeam({ id: 't1', name: 'search', terms: {} }, by, {});
  await store.organisation.addTeam({ id: 't2', name: 'ads', terms: {} }, by, {});
  const used = (requests: number, cost: number) => ({ requests, priced: requests, cost });
  const last = '2030-10-31T23';
  await store.usage.addUsage(
    batch([
      row({ hour: '2030-09-30T23', teamId: 't1' }),
      row({ hour: '2030-10-01T00', teamId: 't1', target: 'gpt-2', upstream: 'azure', sums: used(1, 1) }),
      row({ hour: last, teamId: 't1', sums: used(3, 7_000_000_000) }),
      row({ hour: last, teamId: 't1', prefix: 'ffff0000', sums: used(1, 500_000_000) }),
      row({ hour: last, teamId: 't2', holderId: 'holder-2', sums: used(2, 3_000_000_000) }),
      row({ hour: last, holderId: 'holder-3', model: 'free' }),
      row({ hour: '2030-11-01T00', teamId: 't1' }),
    ]),
  );
  await store.close();
});

afterAll(async () => {
  vi.useRealTimers();
  await dir.remove();
});

test('the page has a command for each expectation', () => {
  expect(COMMANDS).toHaveLength(SAYS.length);
});

test.each(COMMANDS.map((command, index) => [command, index] as const))('%s', async (command, index) => {
  const [plain = ''] = command.split(/ [>|] /);
  const [program, ...argv] = [...plain.matchAll(/"([^"]*)"|(\S+)/g)].map(
    ([, quoted, word]) => quoted ?? word ?? '',
  );
  expect(program).toBe('tollgate');
  const from = command.includes('2030-01-01')
    ? argv.map((word) => word.replace('2030-01-01', '2030-10-01'))
    : argv;
  const { code, stdout, stderr } = await runCommand([...from, '--config', dir.file('config.yaml')]);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(SAYS[index] ?? /never/);
  outputs.push(stdout);
});

test('the digest is that of the exported file', () => {
  const closed = outputs.find((text) => text.startsWith('Closed 2030-10.')) ?? '';
  const exported = outputs.find((text) => text.startsWith('month,holder')) ?? '';
  expect(closed).toContain(createHash('sha256').update(exported).digest('hex'));
});

test('a team that was removed has a report of its own, by its name or its id', async () => {
  const run = (...argv: string[]) => runCommand([...argv, '--config', dir.file('config.yaml')]);
  const requests = async (team: string) => {
    const { code, stdout, stderr } = await run('usage', '--month', '2030-10', '--team', team, '--json');
    return code === 0 ? Object(JSON.parse(stdout)).totals.requests : stderr;
  };
  expect([await requests('ads'), await requests('t2')]).toEqual([2, 2]);
  expect((await run('teams', 'remove', 'ads')).code).toBe(0);
  expect([await requests('Ads'), await requests('t2'), await requests('t1')]).toEqual([2, 2, 5]);
  expect(await requests('adz')).toContain('there is no team with this name');
  await run('teams', 'add', 'ads');
  expect([await requests('ads'), await requests('t2')]).toEqual([0, 2]);
  const { stderr } = await run('usage', '--month', '2030-10', '--team', 'ads', '--csv');
  expect(stderr).toBe('tollgate usage: a removed team had this name, too: for its usage give its id, t2\n');
  await run('teams', 'remove', 'ads');
  expect(await requests('ads')).toMatch(/several removed teams had this name: .* t2 or [0-9a-f-]{36}/);
});
