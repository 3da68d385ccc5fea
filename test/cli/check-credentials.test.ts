// `tollgate check --credentials` with a real token endpoint.
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { configText, runCommand } from '../helpers/gateway.ts';
import { tempDir } from '../helpers/wait.ts';
import { TokenServer } from '../upstream/tokens/token-server.ts';

let issuer: TokenServer;
beforeAll(async () => {
  issuer = await TokenServer.start();
});
afterAll(() => issuer?.[Symbol.asyncDispose]());

async function check(upstreams: Parameters<typeof configText>[0]['config']) {
  await using folder = await tempDir();
  const file = folder.file('config.yaml');
  await writeFile(file, configText({ config: { ...upstreams } }));
  return await runCommand(['check', '--credentials', '--config', file], { TEST_DIR: folder.path });
}

const oauth2 = (path: string) => ({
  base_url: 'https://api.test/v1',
  auth: { oauth2: { token_url: issuer.url + path, client_id: 'c', client_secret: 'secret-of-client' } },
});

test('fetches each token once and prints its lifetime', async () => {
  const { code, stdout, stderr } = await check({ upstreams: { vendor: oauth2('/token') } });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain('upstream vendor: got a token by oauth2, which expires in 1h\n');
  expect(stdout).not.toMatch(/issued-token|secret-of-client/);
  expect(issuer.requests).toHaveLength(1);
});

test('prints why there is none, and exits with 1', async () => {
  issuer.answer = () => ({ status: 401, body: { error: 'invalid_client' } });
  const { code, stderr } = await check({ upstreams: { vendor: oauth2('/token') } });
  expect(code).toBe(1);
  expect(stderr).toBe(
    'upstream vendor: got no token by oauth2: the token endpoint answered 401: invalid_client\n',
  );
});

test('reports that there is nothing to fetch', async () => {
  const { code, stdout } = await check({});
  expect(code).toBe(0);
  expect(stdout).toContain('no upstream has `auth`, so there is no token to fetch\n');
});
