// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// Values of `${file:PATH}` in a running gateway: a replaced file is in force by itself, and a broken one changes nothing.
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json, upstreamError } from '../helpers/hostile-upstream.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let secrets: TempDir;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  secrets = await tempDir();
});
afterAll(async () => {
  await upstream?.[Symbol.asyncDispose]();
  await secrets?.[Symbol.asyncDispose]();
});

function options(fields: NonNullable<GatewayOptions['config']>): GatewayOptions {
  return { upstreams: { up: upstream.baseUrl }, config: { upstreams: { up: fields } } };
}

/** The `authorization` of the next request. */
async function credentialNow(gateway: Gateway, field = 'authorization'): Promise<string | undefined> {
  const asked = upstream.requests.length;
  await gateway.chat(chatRequest());
  return (await upstream.request(asked)).header(field);
}

function rejections(gateway: Gateway): Promise<number> {
  return gateway.metric('tollgate_config_file_values_total{result="rejected"}');
}

/** Puts a file in place at once, as a program does that takes care. */
async function put(file: string, text: string | Buffer): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

describe('a credential in a file', () => {
  test('applies soon after the file was replaced, and the upstream keeps its connections and state', async () => {
    const file = secrets.file('replaced');
    await put(file, 'credential-one\n');
    await using gateway = await startGateway(options({ api_key: `\${file:${file}}` }));
    expect(await credentialNow(gateway)).toBe('Bearer credential-one');
    const closed = () => upstream.connections - upstream.openSockets;
    const closedBefore = closed();
    const breaker = gateway.app.breaker('up', 'upstream-model');
    await put(file, 'credential-two\n');
    await until(async () => (await credentialNow(gateway)) === 'Bearer credential-two', 'the new credential');
    expect(closed()).toBe(closedBefore);
    expect(gateway.app.retiring).toBe(0);
    expect(breaker).toBeDefined();
    expect(gateway.output).not.toMatch(/credential-(?:one|two)/);
    expect(await gateway.metric('tollgate_config_file_values_total{result="changed"}')).toBe(1);
    expect(await gateway.metric('tollgate_config_reloads_total{result="applied"}')).toBe(0);
  });

  test('follows the links of a Kubernetes secret, in each field that refers to it', async () => {
    const folder = secrets.file('mounted');
    const write = async (version: string, value: string) => {
      await mkdir(join(folder, version), { recursive: true });
      await writeFile(join(folder, version, 'token'), value);
      await symlink(version, join(folder, '..data_tmp'));
      await rename(join(folder, '..data_tmp'), join(folder, '..data'));
    };
    await write('..v1', 'token-one');
    await symlink(join('..data', 'token'), join(folder, 'token'));
    const file = join(folder, 'token');
    const headers = { 'x-api-key': `\${file:${file}}`, authorization: `Token \${file:${file}}` };
    await using gateway = await startGateway(options({ headers, api_key: null }));
    expect(await credentialNow(gateway)).toBe('Token token-one');
    await write('..v2', 'token-two');
    await rm(join(folder, '..v1'), { recursive: true });
    await until(async () => (await credentialNow(gateway)) === 'Token token-two', 'the new credential');
    expect(await credentialNow(gateway, 'x-api-key')).toBe('token-two');
  });

  test.each([
    ['is empty', ''],
    ['is blank', ' \n'],
    ['has two lines', 'credential-a\ncredential-b'],
    ['has a character that no header may have', 'crédential'],
    ['is not UTF-8', Buffer.from([0x61, 0xff, 0x62])],
    ['is larger than 512 KiB', 'x'.repeat(513 * 1024)],
  ])('that %s changes nothing, warns and counts', async (_, content) => {
    const file = secrets.file('broken');
    await put(file, 'credential-good');
    await using gateway = await startGateway(options({ api_key: `\${file:${file}}` }));
    await put(file, content);
    await until(async () => (await rejections(gateway)) === 1, 'the rejection');
    expect(await credentialNow(gateway)).toBe('Bearer credential-good');
    const warning = await gateway.logLine(({ msg }) => /keeping its last value/.test(String(msg)));
    expect(warning['file']).toBe(file);
    // Another change of the configuration is not held up by it.
    await gateway.writeConfig(options({ api_key: `\${file:${file}}`, max_concurrency: 7 }));
    await gateway.app.reload();
    expect(gateway.app.config.dynamic.upstreams['up']?.max_concurrency).toBe(7);
    expect(await credentialNow(gateway)).toBe('Bearer credential-good');
    await put(file, 'credential-better');
    await until(
      async () => (await credentialNow(gateway)) === 'Bearer credential-better',
      'the next good value',
    );
  });

  test('that is deleted changes nothing, and is read again when it is back', async () => {
    const file = secrets.file('gone');
    await put(file, 'credential-good');
    await using gateway = await startGateway(options({ api_key: `\${file:${file}}` }));
    await rm(file);
    await gateway.app.reload();
    expect(await rejections(gateway)).toBe(1);
    expect(await credentialNow(gateway)).toBe('Bearer credential-good');
    await put(file, 'credential-back');
    await gateway.app.reload();
    expect(await credentialNow(gateway)).toBe('Bearer credential-back');
  });

  test('is watched from its first reference to its last', async () => {
    const [first, second] = [secrets.file('first'), secrets.file('second')];
    await put(first, 'credential-first');
    await put(second, 'credential-second');
    await using gateway = await startGateway(options({ api_key: `\${file:${first}}` }));
    await gateway.writeConfig(options({ api_key: `\${file:${second}}` }));
    await gateway.app.reload();
    expect(await credentialNow(gateway)).toBe('Bearer credential-second');
    await rm(first);
    await put(second, 'credential-third');
    await gateway.app.reload();
    expect(await credentialNow(gateway)).toBe('Bearer credential-third');
    expect(await rejections(gateway)).toBe(0);
  });

  test('is never quoted from the upstream, neither the current nor the previous one', async () => {
    const file = secrets.file('quoted');
    await put(file, 'credential-before');
    await using gateway = await startGateway(options({ api_key: `\${file:${file}}` }));
    await put(file, 'credential-after');
    await gateway.app.reload();
    for (const credential of ['credential-before', 'credential-after']) {
      upstream.next([json(400, upstreamError(`bad key ${credential}`))]);
      const response = await gateway.chat(chatRequest());
      expect(response.text()).not.toContain(credential);
    }
  });
});

describe('a configuration that refers to a file', () => {
  test.each([
    [
      'that does not exist',
      'none',
      /upstreams\.up\.api_key: refers to the file \S*none, which does not exist/,
    ],
    ['that is a folder', '.', /refers to the file \S*, which is a directory/],
  ])('%s is rejected with the place', async (_, name, message) => {
    const start = startGateway(options({ api_key: `\${file:${secrets.file(name)}}` }));
    await expect(start).rejects.toThrow(message);
  });

  test('by a relative path finds the file beside it', async () => {
    await using gateway = await startGateway();
    await put(gateway.directory.file('token'), 'credential-beside');
    await gateway.writeConfig(options({ api_key: '${file:token}' }));
    await gateway.app.reload();
    expect(await credentialNow(gateway)).toBe('Bearer credential-beside');
  });
});
