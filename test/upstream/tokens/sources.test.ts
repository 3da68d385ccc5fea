// The kinds of token sources with real endpoints and programs: what they send, and what each bad answer becomes.
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { UpstreamAuth } from '../../../src/config/schema/config-schema.ts';
import { createTokenSource } from '../../../src/upstream/tokens/create-source.ts';
import type { AccessToken } from '../../../src/upstream/tokens/token-source.ts';
import { type TempDir, tempDir } from '../../helpers/wait.ts';
import { TokenServer } from './token-server.ts';

let server: TokenServer;
let folder: TempDir;
beforeEach(async () => {
  server = await TokenServer.start();
  folder = await tempDir();
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

function fetchToken(auth: UpstreamAuth, signal = new AbortController().signal): Promise<AccessToken> {
  return createTokenSource(auth).fetch(signal);
}

const secondsLeft = ({ expiresAt }: AccessToken) => Math.round((expiresAt - Date.now()) / 1000);

type OAuth2 = Extract<UpstreamAuth, { kind: 'oauth2' }>;
const oauth2 = (fields: Partial<OAuth2> = {}): OAuth2 => ({
  kind: 'oauth2',
  token_url: `${server.url}/token`,
  client_id: 'client',
  send_secret: 'basic',
  ...fields,
});

describe('oauth2', () => {
  test('sends the secret as HTTP Basic, form-encoded, and what is configured in the body', async () => {
    const token = await fetchToken(
      oauth2({ client_secret: 'se:cret +', scope: 'a b', audience: 'https://api.test', resource: 'urn:r' }),
    );
    expect(token.value).toBe('issued-token-1');
    expect(secondsLeft(token)).toBe(3600);
    const [request] = server.requests;
    expect(
      Buffer.from(request?.headers.authorization?.slice('Basic '.length) ?? '', 'base64').toString(),
    ).toBe('client:se%3Acret+%2B');
    expect(Object.fromEntries(request?.form ?? [])).toEqual({
      grant_type: 'client_credentials',
      scope: 'a b',
      audience: 'https://api.test',
      resource: 'urn:r',
    });
  });

  test('sends the secret in the body where that is configured', async () => {
    await fetchToken(oauth2({ client_secret: 'secret', send_secret: 'body' }));
    const [request] = server.requests;
    expect(request?.headers.authorization).toBeUndefined();
    expect(request?.form.get('client_id')).toBe('client');
    expect(request?.form.get('client_secret')).toBe('secret');
  });

  test('sends a federated token as the assertion of the client', async () => {
    await fetchToken(oauth2({ assertion: 'federated.token' }));
    const form = server.requests[0]?.form;
    expect(form?.get('client_assertion')).toBe('federated.token');
    expect(form?.get('client_assertion_type')).toBe('urn:ietf:params:oauth:client-assertion-type:jwt-bearer');
    expect(form?.get('client_id')).toBe('client');
  });

  test.each(['rsa', 'ec'] as const)('signs an assertion with an %s key', async (type) => {
    const { privateKey, publicKey } =
      type === 'rsa'
        ? generateKeyPairSync('rsa', { modulusLength: 2048 })
        : generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    await fetchToken(oauth2({ private_key: pem, key_id: 'key-7' }));
    const assertion = server.requests[0]?.form.get('client_assertion') ?? '';
    const [head = '', claims = '', signature = ''] = assertion.split('.');
    const decode = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString());
    expect(decode(head)).toEqual({ alg: type === 'rsa' ? 'RS256' : 'ES256', typ: 'JWT', kid: 'key-7' });
    const { iss, sub, aud, exp, iat, jti } = decode(claims);
    expect([iss, sub, aud, exp - iat]).toEqual(['client', 'client', `${server.url}/token`, 300]);
    expect(jti).toMatch(/^[0-9a-f-]{36}$/);
    const key = createPublicKey(publicKey.export({ type: 'spki', format: 'pem' }));
    const isGood = verify(
      'sha256',
      Buffer.from(`${head}.${claims}`),
      type === 'rsa' ? key : { key, dsaEncoding: 'ieee-p1363' },
      Buffer.from(signature, 'base64url'),
    );
    expect(isGood).toBe(true);
  });

  test.each<[string, number | string | undefined, number]>([
    ['as text', '1800', 1800],
    ['not given', undefined, 300],
    ['of a century', 3_153_600_000, 86_400],
    ['of half a second', 0.5, 1],
  ])('takes an expiry %s', async (_, expires_in, seconds) => {
    server.answer = () => ({ body: { access_token: 'token', expires_in } });
    const left = secondsLeft(await fetchToken(oauth2({ client_secret: 's' })));
    expect(Math.abs(left - seconds)).toBeLessThanOrEqual(1);
  });

  test.each<[string, { status?: number; body: string | object }, RegExp]>([
    ['HTML', { body: '<html>sign in</html>' }, /answered 200 without a JSON object$/],
    ['HTML with an error', { status: 502, body: '<html>' }, /^the token endpoint answered 502$/],
    ['a list', { body: [] }, /without a JSON object/],
    ['no token', { body: { expires_in: 60 } }, /has no token/],
    ['an empty token', { body: { access_token: '' } }, /has no token/],
    ['a number', { body: { access_token: 7 } }, /has no token/],
    [
      'a token of two lines',
      { body: { access_token: 'a\r\nx-injected: b' } },
      /character that no header may have/,
    ],
    ['a token with a space', { body: { access_token: 'a b' } }, /character that no header may have/],
    ['a token of 17 KiB', { body: { access_token: 'x'.repeat(17 * 1024) } }, /longer than 16 KiB/],
    ['another type', { body: { access_token: 'a', token_type: 'mac' } }, /another type than Bearer/],
    ['an expiry of 0', { body: { access_token: 'a', expires_in: 0 } }, /has expired already/],
    ['an expiry in the past', { body: { access_token: 'a', expires_in: -5 } }, /has expired already/],
    [
      'an expiry in words',
      { body: { access_token: 'a', expires_in: 'soon' } },
      /neither a number nor a date/,
    ],
    [
      'an expiry as an object',
      { body: { access_token: 'a', expires_in: {} } },
      /neither a number nor a date/,
    ],
    ['more than 64 KiB', { body: 'x'.repeat(70_000) }, /larger than 64 KiB/],
    [
      'a rejection',
      {
        status: 401,
        body: { error: 'invalid_client', error_description: 'AADSTS7000215: Invalid client secret.' },
      },
      /answered 401: invalid_client \(AADSTS7000215: Invalid client secret\.\)$/,
    ],
    [
      'a rejection that quotes the secret',
      { status: 401, body: { error: 'invalid_client', error_description: 'bad secret client-secret-1' } },
      /answered 401: invalid_client$/,
    ],
  ])('rejects %s with a clear error', async (_, answer, message) => {
    server.answer = () => answer;
    await expect(fetchToken(oauth2({ client_secret: 'client-secret-1' }))).rejects.toThrow(message);
  });

  test('does not follow a redirect, which would send the secret elsewhere', async () => {
    await using other = await TokenServer.start();
    await using redirecting = await startRedirect(`${other.url}/token`);
    const auth = oauth2({ client_secret: 's', token_url: redirecting.url });
    await expect(fetchToken(auth)).rejects.toThrow('the token endpoint cannot be reached');
    expect(other.requests).toEqual([]);
  });

  test('ends at the deadline when the endpoint hangs', async () => {
    server.answer = () => undefined;
    const abort = new AbortController();
    const waiting = fetchToken(oauth2({ client_secret: 's' }), abort.signal);
    abort.abort();
    await expect(waiting).rejects.toThrow('the token endpoint cannot be reached');
  });
});

async function startRedirect(location: string) {
  const { createServer } = await import('node:http');
  const redirecting = createServer((_, response) => response.writeHead(307, { location }).end());
  await new Promise<void>((resolve) => redirecting.listen(0, '127.0.0.1', resolve));
  const address = redirecting.address();
  return {
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/`,
    async [Symbol.asyncDispose]() {
      redirecting.closeAllConnections();
      await new Promise((resolve) => redirecting.close(resolve));
    },
  };
}

describe('command', () => {
  const run = (script: string, env: Record<string, string> = {}): UpstreamAuth => ({
    kind: 'command',
    run: [process.execPath, '-e', script],
    env,
  });
  const print = (value: unknown) => run(`console.log(${JSON.stringify(JSON.stringify(value))})`);
  const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString();

  test.each<[string, () => object, number]>([
    ['a token and a date', () => ({ token: 'tok', expires_at: inAnHour() }), 3600],
    [
      'a token and Unix seconds',
      () => ({ token: 'tok', expires_at: Math.round(Date.now() / 1000) + 600 }),
      600,
    ],
    ['a token and milliseconds', () => ({ token: 'tok', expiry: Date.now() + 600_000 }), 600],
    ['an answer of OAuth 2.0', () => ({ access_token: 'tok', expires_in: 1200 }), 1200],
    ['a token alone', () => ({ token: 'tok' }), 300],
    [
      'an ExecCredential of Kubernetes',
      () => ({
        apiVersion: 'client.authentication.k8s.io/v1',
        kind: 'ExecCredential',
        status: { token: 'tok', expirationTimestamp: inAnHour() },
      }),
      3600,
    ],
  ])('takes %s', async (_, printed, seconds) => {
    const token = await fetchToken(print(printed()));
    expect(token.value).toBe('tok');
    expect(Math.abs(secondsLeft(token) - seconds)).toBeLessThanOrEqual(2);
  });

  test.each<[string, () => UpstreamAuth, RegExp]>([
    ['text that is no JSON', () => run('console.log("token")'), /did not print JSON/],
    ['nothing', () => run(''), /did not print JSON/],
    ['a JSON text', () => print('token'), /did not print a JSON object/],
    ['no token', () => print({ expires_in: 5 }), /has no token/],
    [
      'a token that has expired',
      () => print({ token: 'a', expires_at: '2001-01-01T00:00:00Z' }),
      /has expired already/,
    ],
    [
      'an expiry that is no date',
      () => print({ token: 'a', expires_at: 'tomorrow' }),
      /neither a number nor a date/,
    ],
    ['more than 64 KiB', () => run('console.log("x".repeat(1e5))'), /printed more than 64 KiB/],
    [
      'an exit code',
      () => run('console.error("secret-of-the-program"); process.exit(3)'),
      /ended with 3; run it by hand/,
    ],
    ['no such program', () => ({ kind: 'command', run: ['/no/such/program'], env: {} }), /does not exist/],
  ])('rejects %s with a clear error', async (_, auth, message) => {
    const failed = fetchToken(auth());
    await expect(failed).rejects.toThrow(message);
    await expect(failed).rejects.not.toThrow(/secret-of-the-program/);
  });

  test('passes its arguments without a shell, and only the named variables', async () => {
    const program = folder.file('program.cjs');
    await writeFile(
      program,
      `console.log(JSON.stringify({ token: process.argv[2].length + '-' + (process.env.OWN ?? '') + '-' + (process.env.SECRET_OF_GATEWAY ?? 'none') }))`,
    );
    process.env['SECRET_OF_GATEWAY'] = 'visible';
    try {
      const token = await fetchToken({
        kind: 'command',
        run: [process.execPath, program, '$(echo hi); `x`'],
        env: { OWN: 'given' },
      });
      expect(token.value).toBe('15-given-none');
    } finally {
      delete process.env['SECRET_OF_GATEWAY'];
    }
  });

  test('is killed at the deadline', async () => {
    const abort = new AbortController();
    const waiting = fetchToken(run('setInterval(() => {}, 1000)'), abort.signal);
    abort.abort();
    await expect(waiting).rejects.toThrow('did not end in time');
  });

  test('that may not be executed is named', async () => {
    const program = folder.file('plain');
    await writeFile(program, '#!/bin/sh\n');
    await chmod(program, 0o644);
    await expect(fetchToken({ kind: 'command', run: [program], env: {} })).rejects.toThrow(
      'may not be executed',
    );
  });
});

/** Sets variables for one call. */
async function withEnv<T>(variables: Record<string, string>, run: () => Promise<T>): Promise<T> {
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, variables);
  try {
    return await run();
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
}

describe('google', () => {
  const scope = 'https://www.googleapis.com/auth/cloud-platform';

  test('asks the metadata server of the machine', async () => {
    await using metadata = await startJsonServer({ 'metadata-flavor': 'Google' }, (path) =>
      path.includes('/token') ? { access_token: 'google-token', expires_in: 1800, token_type: 'Bearer' } : {},
    );
    const token = await withEnv(
      { GCE_METADATA_HOST: metadata.host, METADATA_SERVER_DETECTION: 'assume-present' },
      () => fetchToken({ kind: 'google', scope }),
    );
    expect(token.value).toBe('google-token');
    expect(Math.abs(secondsLeft(token) - 1800)).toBeLessThanOrEqual(2);
    expect(metadata.paths.some((path) => path.includes('service-accounts/default/token'))).toBe(true);
  });

  test('exchanges the token of a workload', async () => {
    const subject = folder.file('subject');
    await writeFile(subject, 'workload-token');
    const credentials = JSON.stringify({
      type: 'external_account',
      audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k',
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      token_url: `${server.url}/v1/token`,
      credential_source: { file: subject },
    });
    const token = await fetchToken({ kind: 'google', scope, credentials });
    expect(token.value).toBe('issued-token-1');
    expect(server.requests[0]?.form.get('subject_token')).toBe('workload-token');
  });

  test('says why there is no token', async () => {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const credentials = JSON.stringify({
      type: 'external_account',
      audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k',
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      token_url: `${server.url}/v1/token`,
      credential_source: { file: folder.file('nothing') },
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
    });
    await expect(fetchToken({ kind: 'google', scope, credentials })).rejects.toThrow(
      /^Google gave no token: /,
    );
  });
});

describe('azure', () => {
  const scope = 'https://cognitiveservices.azure.com/.default';

  test('asks the managed identity of the machine', async () => {
    await using identity = await startJsonServer({}, () => ({
      access_token: 'azure-token',
      expires_on: String(Math.floor(Date.now() / 1000) + 3600),
      resource: 'https://cognitiveservices.azure.com',
      token_type: 'Bearer',
    }));
    const variables = {
      IDENTITY_ENDPOINT: `http://${identity.host}/msi`,
      IDENTITY_HEADER: 'header-of-identity',
    };
    const token = await withEnv(variables, () => fetchToken({ kind: 'azure', identity: 'managed', scope }));
    expect(token.value).toBe('azure-token');
    expect(Math.abs(secondsLeft(token) - 3600)).toBeLessThanOrEqual(5);
    expect(identity.paths[0]).toContain('resource=https');
  });

  test('says why there is no token', async () => {
    const auth: UpstreamAuth = {
      kind: 'azure',
      identity: 'workload',
      scope,
      federated_token_file: folder.file('none'),
    };
    await expect(fetchToken(auth)).rejects.toThrow(/^Entra ID gave no token: /);
  });
});

/** A server that answers every request with JSON, by its path. */
async function startJsonServer(headers: Record<string, string>, answer: (path: string) => object) {
  const paths: string[] = [];
  const { createServer } = await import('node:http');
  const json = createServer((request, response) => {
    paths.push(request.url ?? '');
    response.writeHead(200, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify(answer(request.url ?? '')));
  });
  await new Promise<void>((resolve) => json.listen(0, '127.0.0.1', resolve));
  const address = json.address();
  return {
    paths,
    host: `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    async [Symbol.asyncDispose]() {
      json.closeAllConnections();
      await new Promise((resolve) => json.close(resolve));
    },
  };
}
