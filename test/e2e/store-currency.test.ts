// A store has one currency: a reload or a report with another one is refused, and nothing of it applies.
import { expect, test } from 'vitest';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';

const rejected = (gateway: Gateway) =>
  gateway.logLine(
    ({ msg }) => String(msg).startsWith('failed to apply the configuration'),
    'the rejected reload',
  );

async function reload(gateway: Gateway, currency: string | undefined): Promise<string | undefined> {
  await gateway.writeConfig({
    config: {
      ...(currency === undefined ? {} : { currency }),
      cors: { origins: [`https://of-${currency?.toLowerCase()}.test`] },
    },
  });
  await gateway.app?.reload();
  return gateway.app?.config.dynamic.currency;
}

test('the first currency stays, whether a start or a reload set it', async () => {
  for (const first of ['EUR', undefined]) {
    await using gateway = await startGateway({ config: first === undefined ? {} : { currency: first } });
    expect(await reload(gateway, 'EUR')).toBe('EUR');
    expect(await reload(gateway, 'USD')).toBe('EUR');
    expect(String(Reflect.get(Object((await rejected(gateway))['err']), 'message'))).toContain(
      '`currency` is USD, but the costs and budgets in this store are in EUR',
    );
    expect(gateway.app?.config.dynamic.cors?.origins).toEqual(['https://of-eur.test']);
    expect(await reload(gateway, undefined)).toBeUndefined();
    expect(await reload(gateway, 'GBP')).toBeUndefined();
    expect(await reload(gateway, 'EUR')).toBe('EUR');
  }
});

test.each([[['usage', '--month', '2026-10']], [['usage', 'close', '2026-10']]])(
  '%j does not call amounts by another currency',
  async (words) => {
    await using gateway = await startGateway({ config: { currency: 'EUR' } });
    const run = () =>
      runCommand([...words, '--config', gateway.configFile], { TEST_DIR: gateway.directory.path });
    expect(await run()).toMatchObject({ code: 0 });
    await gateway.writeConfig({ config: { currency: 'USD' } });
    const { code, stdout, stderr } = await run();
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('set `currency: EUR`');
    expect(stderr).not.toContain('    at ');
  },
);
