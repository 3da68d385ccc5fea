// Tokens by the libraries of Azure and Google, with endpoints of the test in the places of theirs. Those with TLS and a fixed
// name are trusted through Node's list of authorities, and reached through a proxy.
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { UpstreamAuth } from '../../../src/config/schema/config-schema.ts';
import { Outbound } from '../../../src/upstream/outbound/outbound.ts';
import { createTokenSource } from '../../../src/upstream/tokens/create-source.ts';
import type { AccessToken, TokenSource } from '../../../src/upstream/tokens/token-source.ts';
import { makeCertificate } from '../../helpers/certificate.ts';
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

const fetchFrom = (source: TokenSource) => source(new AbortController().signal);
const fetchToken = (auth: UpstreamAuth) => fetchFrom(createTokenSource(auth));
const secondsLeft = ({ expiresAt }: AccessToken) => Math.round((expiresAt - Date.now()) / 1000);

/** A token server with TLS under this name, whose certificate this process trusts until the end. */
async function startTrusted(name: string) {
  const authorities = getCACertificates('default');
  const certificate = makeCertificate({ names: [name] });
  setDefaultCACertificates([...authorities, certificate.cert]);
  const trusted = await TokenServer.start(certificate);
  return {
    server: trusted,
    async [Symbol.asyncDispose]() {
      setDefaultCACertificates(authorities);
      await trusted[Symbol.asyncDispose]();
    },
  };
}

/** A proxy for tunnels (RFC 9110, 9.3.6) that leads all of them to one port. */
async function startTunnels(port: number) {
  const targets: string[] = [];
  const sockets = new Set<Socket>();
  const proxy = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', (head) => {
      targets.push(String(head).split(' ')[1] ?? '');
      const target = connect(port, '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        socket.pipe(target).pipe(socket);
      });
      target.on('error', () => socket.destroy());
      sockets.add(target);
    });
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    targets,
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      proxy.close();
      await once(proxy, 'close');
    },
  };
}

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

  test('signs an assertion with the key of a service account, and each time anew', async () => {
    await using trusted = await startTrusted('oauth2.googleapis.com');
    const { server: issuer } = trusted;
    await using tunnels = await startTunnels(issuer.port);
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const credentials = JSON.stringify({
      type: 'service_account',
      project_id: 'project-1',
      private_key_id: 'key-1',
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      client_email: 'tollgate@project-1.iam.gserviceaccount.com',
      client_id: '1',
      // The library goes to Google's endpoint whatever stands here.
      token_uri: `${server.url}/token`,
    });
    const source = createTokenSource(
      { kind: 'google', scope, credentials },
      new Outbound({ https: tunnels.url }),
    );
    const token = await fetchFrom(source);
    expect(token.value).toBe('issued-token-1');
    expect(Math.abs(secondsLeft(token) - 3600)).toBeLessThanOrEqual(5);
    expect((await fetchFrom(source)).value).toBe('issued-token-2');
    expect(new Set(tunnels.targets)).toEqual(new Set(['oauth2.googleapis.com:443']));
    expect(server.requests).toEqual([]);
    const form = issuer.requests[0]?.form;
    expect(form?.get('grant_type')).toBe('urn:ietf:params:oauth:grant-type:jwt-bearer');
    const [head = '', claims = '', signature = ''] = form?.get('assertion')?.split('.') ?? [];
    expect(JSON.parse(String(Buffer.from(claims, 'base64url')))).toMatchObject({
      iss: 'tollgate@project-1.iam.gserviceaccount.com',
      scope,
      aud: 'https://oauth2.googleapis.com/token',
    });
    const key = createPublicKey(publicKey.export({ type: 'spki', format: 'pem' }));
    const isGood = verify(
      'sha256',
      Buffer.from(`${head}.${claims}`),
      key,
      Buffer.from(signature, 'base64url'),
    );
    expect(isGood).toBe(true);
  });

  test('says why a service account was rejected', async () => {
    await using trusted = await startTrusted('oauth2.googleapis.com');
    const { server: issuer } = trusted;
    await using tunnels = await startTunnels(issuer.port);
    issuer.answer = () => ({
      status: 400,
      body: { error: 'invalid_grant', error_description: 'Invalid JWT Signature.' },
    });
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const credentials = JSON.stringify({
      type: 'service_account',
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      client_email: 'tollgate@project-1.iam.gserviceaccount.com',
    });
    const failed = fetchFrom(
      createTokenSource({ kind: 'google', scope, credentials }, new Outbound({ https: tunnels.url })),
    );
    await expect(failed).rejects.toThrow('Google gave no token: invalid_grant: Invalid JWT Signature.');
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

  test('asks the managed identity of the machine, and each time anew', async () => {
    let issued = 0;
    await using identity = await startJsonServer({}, () => ({
      access_token: `azure-token-${++issued}`,
      expires_on: String(Math.floor(Date.now() / 1000) + 3600),
      resource: 'https://cognitiveservices.azure.com',
      token_type: 'Bearer',
    }));
    const variables = {
      IDENTITY_ENDPOINT: `http://${identity.host}/msi`,
      IDENTITY_HEADER: 'header-of-identity',
    };
    const source = createTokenSource({ kind: 'azure', identity: 'managed', scope });
    const token = await withEnv(variables, () => fetchFrom(source));
    expect(token.value).toBe('azure-token-1');
    expect(Math.abs(secondsLeft(token) - 3600)).toBeLessThanOrEqual(5);
    expect(identity.paths[0]).toMatch(/resource=https%3A%2F%2Fcognitiveservices\.azure\.com$/);
    // After a 401 the token that the library has kept is of no use.
    expect((await fetchFrom(source)).value).toBe('azure-token-2');
    const other = createTokenSource({
      kind: 'azure',
      identity: 'managed',
      scope,
      client_id: 'user-assigned',
    });
    expect((await withEnv(variables, () => fetchFrom(other))).value).toBe('azure-token-3');
    expect(identity.paths[2]).toContain('client_id=user-assigned');
  });

  /** Answers as Entra ID does: its metadata (OpenID Connect Discovery 1.0), and `issued-token-1`, `issued-token-2`, … */
  function answerAsEntra(entra: TokenServer): void {
    let issued = 0;
    entra.answer = ({ path }) => {
      if (path.includes('/token')) {
        issued += 1;
        return { body: { access_token: `issued-token-${issued}`, token_type: 'Bearer', expires_in: 3599 } };
      }
      const root = `${entra.url}/tenant-1`;
      const endpoints = {
        issuer: `${root}/v2.0`,
        authorization_endpoint: `${root}/oauth2/v2.0/authorize`,
        token_endpoint: `${root}/oauth2/v2.0/token`,
        end_session_endpoint: `${root}/oauth2/v2.0/logout`,
        jwks_uri: `${root}/discovery/v2.0/keys`,
      };
      return { body: endpoints };
    };
  }

  test('proves itself with the secret of an application, over TLS, and each time anew', async () => {
    await using trusted = await startTrusted('127.0.0.1');
    const { server: entra } = trusted;
    answerAsEntra(entra);
    const source = createTokenSource({
      kind: 'azure',
      identity: 'managed',
      scope,
      tenant_id: 'tenant-1',
      client_id: 'application-1',
      client_secret: 'secret-of-application',
      authority_host: entra.url,
    });
    const token = await fetchFrom(source);
    expect(token.value).toBe('issued-token-1');
    expect(Math.abs(secondsLeft(token) - 3599)).toBeLessThanOrEqual(5);
    expect((await fetchFrom(source)).value).toBe('issued-token-2');
    const [asked] = entra.requests.filter(({ path }) => path.includes('/token'));
    expect(asked?.path).toMatch(/^\/tenant-1\/oauth2\/v2\.0\/token/);
    expect(Object.fromEntries(asked?.form ?? [])).toMatchObject({
      grant_type: 'client_credentials',
      client_id: 'application-1',
      client_secret: 'secret-of-application',
      scope,
    });
  });

  test('proves itself with the token of a pod, which AKS names in the environment, and each time anew', async () => {
    await using trusted = await startTrusted('127.0.0.1');
    const { server: entra } = trusted;
    answerAsEntra(entra);
    const federated = folder.file('federated');
    await writeFile(federated, 'token-of-pod');
    const source = createTokenSource({
      kind: 'azure',
      identity: 'workload',
      scope,
      tenant_id: 'tenant-1',
      client_id: 'application-1',
      federated_token_file: federated,
      authority_host: entra.url,
    });
    expect((await fetchFrom(source)).value).toBe('issued-token-1');
    expect((await fetchFrom(source)).value).toBe('issued-token-2');
    const variables = {
      AZURE_TENANT_ID: 'tenant-1',
      AZURE_CLIENT_ID: 'application-1',
      AZURE_FEDERATED_TOKEN_FILE: federated,
      AZURE_AUTHORITY_HOST: entra.url,
    };
    const { value } = await withEnv(variables, () =>
      fetchToken({ kind: 'azure', identity: 'managed', scope, authority_host: entra.url }),
    );
    expect(value).toBe('issued-token-3');
    const assertions = entra.requests.map(({ form }) => form.get('client_assertion')).filter(Boolean);
    expect(assertions).toEqual(['token-of-pod', 'token-of-pod', 'token-of-pod']);
  });

  test('says why the secret was rejected, without it', async () => {
    await using trusted = await startTrusted('127.0.0.1');
    const { server: entra } = trusted;
    answerAsEntra(entra);
    const asEntra = entra.answer;
    const rejection = {
      error: 'invalid_client',
      error_description: 'AADSTS7000215: Invalid client secret provided.',
      error_codes: [7_000_215],
    };
    entra.answer = (request) =>
      request.path.includes('/token') ? { status: 401, body: rejection } : asEntra?.(request);
    const failed = fetchToken({
      kind: 'azure',
      identity: 'managed',
      scope,
      tenant_id: 'tenant-1',
      client_id: 'application-1',
      client_secret: 'secret-of-application',
      authority_host: entra.url,
    });
    await expect(failed).rejects.toThrow(/^Entra ID gave no token: .*AADSTS7000215/);
    await expect(failed).rejects.not.toThrow(/secret-of-application/);
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
