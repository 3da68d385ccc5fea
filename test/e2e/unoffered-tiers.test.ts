// A tier that is taken out of `tiers`: its holders keep their access, and the operator gets a warning that no tier limits them.
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
const warnings = () => gateway.logs.filter(({ msg }) => String(msg).includes('the tier Pro, which `tiers`'));

test('its keys go on without its limits, and a reload warns once', async () => {
  const limited = async () => {
    const answer = await gateway.chat(CHAT, { key });
    return [answer.status, answer.header('x-ratelimit-limit-requests')];
  };
  expect(await limited()).toEqual([200, '100']);
  expect(warnings()).toEqual([]);
  await offer(OTHERS);
  expect(await limited()).toEqual([200, undefined]);
  await gateway.logLine(() => warnings().length > 0, 'the warning');
  await gateway.app.reload();
  expect(warnings().map((line) => line['msg'])).toEqual([
    expect.stringMatching(/^1 holder with active keys has the tier Pro/),
  ]);
  await offer(TIERS);
  expect(await limited()).toEqual([200, '100']);
});

test('check and the commands that give it to somebody warn', async () => {
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
      code: 0,
      stderr: expect.stringContaining(
        'warning: no tier limits this holder: `tiers` has Free, Lite and not Pro\n',
      ),
    });
  expect((await tollgate('keys', 'issue', '--tier', 'Lite')).stderr).not.toContain('warning');
});
