// The answer to a missing, unusual or wrong Authorization header, on every path that takes a key.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({
    config: {
      upstreams: { demo: { builtin: 'echo' } },
      models: { m: { targets: [{ upstream: 'demo', model: 'echo' }] } },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
});

const ROUTES = [
  ['POST', '/v1/chat/completions'],
  ['POST', '/v1/responses'],
  ['GET', '/v1/models'],
  ['GET', '/v1/models/m'],
  ['GET', '/admin/usage'],
  ['GET', '/admin/keys/current'],
  ['POST', '/admin/keys/rotate'],
] as const;

test.each(ROUTES)(
  '%s %s without a key, or with a wrong one, gets a WWW-Authenticate challenge',
  async (method, path) => {
    const ask = async (headers: Record<string, string>) => {
      const body = method === 'POST' ? '{}' : null;
      const type = { 'content-type': 'application/json' };
      return await fetch(`${gateway.url}${path}`, { method, body, headers: { ...type, ...headers } });
    };
    const without = await ask({});
    const wrong = await ask({ authorization: `Bearer ${'0'.repeat(32)}` });
    const malformed = await ask({ authorization: 'Basic YTpi' });
    expect([without.status, wrong.status, malformed.status]).toEqual([401, 401, 401]);
    expect(without.headers.get('www-authenticate')).toBe('Bearer realm="tollgate"');
    expect(wrong.headers.get('www-authenticate')).toBe('Bearer realm="tollgate", error="invalid_token"');
    // RFC 6750, 3.1: of another scheme, or of none, there is no token that could be invalid.
    expect(malformed.headers.get('www-authenticate')).toBe('Bearer realm="tollgate"');
  },
);

test.each(['Basic YTpi', 'Token 0', 'Bearer', 'Bearer ', 'Bearer: 0', '0'.repeat(32)])(
  '%j contains no key, and the message explains the header',
  async (authorization) => {
    const response = await fetch(`${gateway.url}/v1/models`, { headers: { authorization } });
    expect([response.status, response.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer realm="tollgate"',
    ]);
    expect(await response.json()).toMatchObject({
      error: { code: 'missing_api_key', message: expect.stringContaining('Authorization: Bearer YOUR_KEY') },
    });
  },
);

test.each(['bearer ', 'BEARER ', 'Bearer   '])('the scheme "%s" is accepted', async (scheme) => {
  const headers = { authorization: `${scheme}${await gateway.key()}` };
  expect((await fetch(`${gateway.url}/v1/models`, { headers })).status).toBe(200);
});

test.each(ROUTES)('%s %s takes the key in api-key and in x-api-key', async (method, path) => {
  for (const name of ['api-key', 'x-api-key']) {
    const key = await gateway.issueKey();
    const body =
      method === 'POST' ? '{"model":"m","messages":[{"role":"user","content":"a"}],"input":"a"}' : null;
    const type = path.includes('rotate') ? {} : { 'content-type': 'application/json' };
    const ask = (headers: Record<string, string>) =>
      fetch(`${gateway.url}${path}`, {
        method,
        body: path.includes('rotate') ? null : body,
        headers: { ...type, ...headers },
      });
    const wrong = await ask({ [name]: '0'.repeat(32) });
    expect([wrong.status, wrong.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer realm="tollgate", error="invalid_token"',
    ]);
    const both = await ask({ [name]: key, authorization: `Bearer ${'0'.repeat(32)}` });
    expect([both.status, await both.text()]).toEqual([401, expect.stringContaining('Several API keys')]);
    expect((await ask({ [name]: key })).status).toBe(200);
  }
});
