// Token endpoints and programs: what they send, and what each bad answer becomes.
import { execFile } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { UpstreamAuth } from '../../../src/config/schema/config-schema.ts';
import { createTokenSource } from '../../../src/upstream/tokens/create-source.ts';
import type { AccessToken } from '../../../src/upstream/tokens/token-source.ts';
import { type TempDir, tempDir, until, within } from '../../helpers/wait.ts';
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
  return createTokenSource(auth)(signal);
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

  /** Starts a process that writes its number into a file and holds the output for ten minutes. */
  const withChild = (rest: string, file: string) =>
    run(`
    const { spawn } = require('node:child_process');
    const child = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 600000)'], { stdio: 'inherit' });
    require('node:fs').writeFileSync(${JSON.stringify(file)}, String(child.pid));
    ${rest}
  `);
  const childOf = async (file: string) => Number(await until(() => readFile(file, 'utf8'), 'the child'));
  /** Signal 0 only asks; what has ended stays a zombie where no process 1 reads its end. */
  const hasEnded = async (pid: number) => {
    try {
      process.kill(pid, 0);
      return /^State:\s+Z/m.test(await readFile(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return true;
    }
  };

  test('is killed at the deadline with all that it has started', async () => {
    const abort = new AbortController();
    const file = folder.file('pid');
    const waiting = fetchToken(withChild('', file), abort.signal).catch((error: unknown) => String(error));
    const child = await childOf(file);
    abort.abort();
    expect(await waiting).toMatch('did not end in time');
    await until(() => hasEnded(child), 'the end of the child');
  });

  test('that leaves a process behind, which holds its output, gives its token and takes the process with it', async () => {
    const file = folder.file('pid');
    const token = await within(
      fetchToken(withChild(`console.log('{"token":"tok"}'); process.exit(0)`, file)),
      'the token',
    );
    expect(token.value).toBe('tok');
    const child = await childOf(file);
    await until(() => hasEnded(child), 'the end of the child');
  });

  test('that fails and leaves a process behind is named, too', async () => {
    const file = folder.file('pid');
    await expect(fetchToken(withChild('process.exit(4)', file))).rejects.toThrow('ended with 4');
    const child = await childOf(file);
    await until(() => hasEnded(child), 'the end of the child');
  });

  test('whose child prints the token after its own end still gives it', async () => {
    const child = `setTimeout(() => console.log('{"token":"tok"}'), 50)`;
    const token = await fetchToken(
      run(
        `require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(child)}], { stdio: 'inherit' }); process.exit(0)`,
      ),
    );
    expect(token.value).toBe('tok');
  });

  test('that writes errors without end is not held up by them', async () => {
    const script = `for (let n = 0; n < 100; n += 1) console.error('x'.repeat(1e4)); console.log('{"token":"tok"}')`;
    expect((await fetchToken(run(script))).value).toBe('tok');
  });

  test('leaves nothing behind in this process, and is not waited for when its time is over already', async () => {
    const before = process.listenerCount('exit');
    const abort = new AbortController();
    abort.abort();
    await expect(fetchToken(run('setInterval(() => {}, 1000)'), abort.signal)).rejects.toThrow('in time');
    await fetchToken(print({ token: 'tok' }));
    expect(process.listenerCount('exit')).toBe(before);
  });

  test('ends with the gateway', async () => {
    const file = folder.file('pid');
    const source = new URL('../../../src/upstream/tokens/command-source.ts', import.meta.url);
    const gateway = `
      const { commandSource } = await import(${JSON.stringify(source.href)});
      const { existsSync } = await import('node:fs');
      void commandSource(${JSON.stringify(withChild('', file))})(new AbortController().signal);
      setInterval(() => { if (existsSync(${JSON.stringify(file)})) process.exit(); }, 10);
    `;
    await promisify(execFile)(process.execPath, ['--input-type=module', '-e', gateway]);
    const child = await childOf(file);
    await until(() => hasEnded(child), 'the end of the child');
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
