// A tier that is taken out of `tiers`: its holders are rejected instead of going on without limits, and the operator is told.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';

const TIERS = { Free: {}, Lite: {}, Pro: { requests_per_minute: 100 } };
const CHAT = { model: 'test-model', messages: [{ role: 'user', content: 'x' }] };
const { Pro: _pro, ...OTHERS } = TIERS;

let gateway: Gateway;
let key: string;

beforeAll(async () => {
  gateway = await startGateway({ config: { tiers: TIERS } });
  key = await gateway.issueKey('Pro');
  await gateway.issueKey('Lite');
});
afterAll(() => gateway.close());

async function offer(tiers: typeof OTHERS): Promise<void> {
  await gateway.writeConfig({ config: { tiers } });
  await gateway.app.reload();
}

const tollgate = (...words: string[]) =>
  runCommand([...words, '--config', gateway.configFile], { TEST_DIR: gateway.directory.path });
const status = async (path: string) =>
  (await fetch(`${gateway.url}${path}`, { headers: { authorization: `Bearer ${key}` } })).status;
const warnings = () => gateway.logs.filter(({ msg }) => String(msg).includes('the tier Pro, which `tiers`'));

test('its keys are rejected and can read their usage until it is back, and a reload warns once', async () => {
  expect((await gateway.chat(CHAT, { key })).status).toBe(200);
  expect(warnings()).toEqual([]);
  await offer(OTHERS);
  const { status: rejected, body } = await gateway.chat(CHAT, { key });
  expect([rejected, JSON.parse(String(body))]).toMatchObject([
    404,
    {
      error: {
        code: 'endpoint_not_offered',
        message: expect.stringContaining('Pro, is not offered here any more'),
      },
    },
  ]);
  expect(
    await (await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).json(),
  ).toMatchObject({ data: [] });
  expect(await status('/admin/usage')).toBe(200);
  const { msg } = await gateway.logLine(() => warnings().length > 0, 'the warning');
  expect(msg).toBeDefined();
  expect(warnings().map((line) => line['msg'])).toEqual([
    expect.stringMatching(/^1 holder with active keys has the tier Pro/),
  ]);
  await offer(TIERS);
  expect((await gateway.chat(CHAT, { key })).status).toBe(200);
});

test('check warns of it, and commands give it to nobody', async () => {
  await gateway.writeConfig({ config: { tiers: OTHERS } });
  const checked = await tollgate('check');
  expect(checked).toMatchObject({
    code: 0,
    stderr: expect.stringContaining(
      'warning: 1 holder with active keys has the tier Pro, which `tiers` does not list',
    ),
  });
  expect((await tollgate('check', '--offline')).stderr).toBe('');
  for (const words of [
    ['keys', 'issue', '--tier', 'Pro'],
    ['holders', 'tier', key.slice(0, 8), '--tier', 'Pro'],
  ])
    expect(await tollgate(...words)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining(
        'the tier Pro is not offered, so its keys are rejected: `tiers` has Free, Lite',
      ),
    });
});
