// The gateway fixture: that it starts what it is told to, in both ways, and leaves nothing behind.
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { Key } from '../../src/auth/key/key.ts';
import { openStore } from '../../src/store/open.ts';
import { configText, runCommand, startGateway } from './gateway.ts';
import { chatRequest, HostileUpstream, silence } from './hostile-upstream.ts';
import { RawClient } from './raw-client.ts';
import { until } from './wait.ts';

describe('the configuration', () => {
  test('names the upstreams in their order, and lays the own settings over the rest', () => {
    const text = configText({
      upstreams: { one: 'http://127.0.0.1:1/v1', two: 'http://127.0.0.1:2/v1' },
      config: { upstreams: { two: { timeouts: { idle: '1s' } } }, retry: { attempts: 1 }, admin: null },
    });
    expect(parse(text)).toMatchObject({
      listen: { host: '127.0.0.1', port: 0 },
      upstreams: {
        one: { base_url: 'http://127.0.0.1:1/v1' },
        two: { base_url: 'http://127.0.0.1:2/v1', timeouts: { idle: '1s' } },
      },
      models: {
        'test-model': {
          targets: [
            { upstream: 'one', priority: 1 },
            { upstream: 'two', priority: 2 },
          ],
        },
      },
      retry: { attempts: 1 },
    });
    expect(parse(text)).not.toHaveProperty('admin');
  });

  test('as YAML is kept, and gets what it leaves out', () => {
    const text = configText({ yaml: 'listen: { port: 7 } # mine\nmodels: {}\n' }, [8, 9]);
    expect(text).toMatch(/^listen: \{ port: 7 \} # mine\nmodels: \{\}\n/);
    expect(parse(text)).toMatchObject({ listen: { port: 7 }, admin: { port: 9 } });
  });
});

describe.each([
  ['in this process', false],
  ['as a process of its own', true],
])('a gateway %s', (_name, process) => {
  test('answers, logs, issues keys, and is gone after close', async () => {
    await using upstream = await HostileUpstream.start();
    const gateway = await startGateway({ upstreams: { up: upstream.baseUrl }, process });
    try {
      const response = await gateway.chat(chatRequest());
      expect([response.status, response.complete]).toEqual([200, true]);
      expect((await upstream.request(0)).json()).toMatchObject({ model: 'upstream-model' });
      expect(await gateway.accessLine(response)).toMatchObject({ msg: 'request', status: 200 });
      const key = await gateway.issueKey('Free', 'a label');
      expect(key).toMatch(/^[0-9a-f]{32}$/);
      expect((await gateway.chat(chatRequest(), { key })).status).toBe(200);
      expect((await gateway.chat(chatRequest(), { key: null })).status).toBe(401);
      expect(await gateway.metrics()).toContain('# TYPE');
      expect(gateway.output).not.toContain(key);
    } finally {
      await gateway.close();
    }
    await expect(RawClient.connect(gateway.url)).rejects.toThrow(/ECONNREFUSED/);
    expect(existsSync(gateway.directory.path)).toBe(false);
  });

  test('ends answers that are still running when it is closed', async () => {
    await using upstream = await HostileUpstream.start(silence());
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl }, process });
    using client = await gateway.open(chatRequest({ stream: true }));
    const request = await upstream.request(0);
    await gateway.close();
    await client.closed;
    await request.closed;
    await until(() => upstream.openSockets === 0, 'the end of the upstream connection');
  });
});

test('without an upstream the echo answers', async () => {
  await using gateway = await startGateway();
  const response = await gateway.chat(chatRequest());
  expect(response.text()).toContain('You said: Say hello');
});

test('the configuration can be written anew', async () => {
  await using gateway = await startGateway();
  const before = parse(readFileSync(gateway.configFile, 'utf8'));
  await gateway.writeConfig({ config: { retry: { attempts: 1 } } });
  expect(parse(readFileSync(gateway.configFile, 'utf8'))).toEqual({ ...before, retry: { attempts: 1 } });
});

test('a configuration that is refused leaves nothing behind and says why', async () => {
  await expect(startGateway({ yaml: 'nonsense: 1\n' })).rejects.toThrow();
});

test('a command has its exit code and its output', async () => {
  const result = await runCommand(['--version']);
  expect(result).toMatchObject({ code: 0, stderr: '' });
  expect(result.stdout).toMatch(/^\S+\n$/);
});

test('a key is hashed with little memory', async () => {
  await using gateway = await startGateway();
  const key = await gateway.key();
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  try {
    const { prefix } = Key.parse(key) ?? expect.fail('no key was issued');
    expect((await store.findKey(prefix))?.argon2).toMatch(/\bm=64,/);
  } finally {
    await store.close();
  }
});
