// `admin.tls`: the admin listener by HTTPS alone, with a new certificate without a restart, for the command line as well.
import { writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { connect as connectPlain } from 'node:net';
import { connect } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commandsWith } from '../cli/commands.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { type TempDir, tempDir, until, within } from '../helpers/wait.ts';

let dir: TempDir;
let gateway: Gateway;
let port: number;
const [first, second] = [makeCertificate({ subject: 'first' }), makeCertificate({ subject: 'second' })];

async function writePair({ cert, key }: typeof first) {
  await Promise.all([writeFile(dir.file('cert.pem'), cert), writeFile(dir.file('key.pem'), key)]);
}

beforeAll(async () => {
  dir = await tempDir();
  await writePair(first);
  port = await closedPort();
  const tls = { cert: `\${file:${dir.file('cert.pem')}}`, key: `\${file:${dir.file('key.pem')}}` };
  gateway = await startGateway({ config: { admin: { port, tls } } });
});
afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await dir.remove();
});

function get(
  path: string,
  ca: string,
  options: { method?: string; headers?: Record<string, string>; body?: string } = {},
) {
  const { body, ...others } = options;
  return new Promise<{ status: number; text: string; cookie: string }>((resolve, reject) => {
    const sent = request(
      new URL(path, gateway.adminUrl),
      { ca, agent: false, ...others },
      async (response) => {
        let text = '';
        for await (const piece of response) text += piece;
        resolve({
          status: response.statusCode ?? 0,
          text,
          cookie: response.headers['set-cookie']?.[0] ?? '',
        });
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

const commands = () => commandsWith(() => gateway.configFile, { TEST_DIR: gateway.directory.path });

test('probes, metrics and the console are served by HTTPS, and the cookie is bound to it', async () => {
  expect(gateway.adminUrl).toBe(`https://127.0.0.1:${port}`);
  expect((await get('/livez', first.cert)).text).toBe('ok\n');
  const token = (await commands().tollgate('operators', 'add', 'ann', '--role', 'viewer')).out.trim();
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: gateway.adminUrl };
  const { status, cookie } = await get('/console/sign-in', first.cert, {
    method: 'POST',
    headers,
    body: `token=${token}`,
  });
  expect([status, cookie]).toEqual([303, expect.stringMatching(/^__Host-tollgate-console=.*; Secure$/)]);
});

test('the command line finds the gateway by the certificate of the configuration, whatever its names are', async () => {
  const listed = (await commands().json('upstreams', 'list')) as unknown[];
  expect(listed[0]).toMatchObject({ upstream: 'echo', state: 'ok' });
});

test('plain HTTP and old versions of TLS get nothing', async () => {
  const plain = connectPlain(port, '127.0.0.1');
  plain.on('error', () => undefined);
  plain.write('GET /livez HTTP/1.1\r\nhost: x\r\n\r\n');
  let text = '';
  plain.on('data', (piece) => {
    text += piece;
  });
  await within(new Promise((resolve) => plain.once('close', resolve)), 'the connection ends');
  expect(text).not.toContain('ok');
  const old = connect({
    port,
    host: '127.0.0.1',
    ca: first.cert,
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
    ciphers: 'ALL:@SECLEVEL=0',
  });
  await expect(
    new Promise((resolve, reject) => old.once('secureConnect', resolve).once('error', reject)),
  ).rejects.toThrow();
});

test('connections that never finish a handshake keep no probe out', async () => {
  const sockets = Array.from({ length: 300 }, () => connectPlain(port, '127.0.0.1'));
  for (const socket of sockets) socket.on('error', () => undefined);
  for (let i = 0; i < 5; i++) expect((await get('/livez', first.cert)).text).toBe('ok\n');
  for (const socket of sockets) socket.destroy();
});

test('a new pair is in force without a restart, and a broken one changes nothing', async () => {
  await writeFile(dir.file('cert.pem'), 'broken');
  await gateway.app.reload();
  expect((await get('/livez', first.cert)).text).toBe('ok\n');
  await writePair(second);
  await gateway.app.reload();
  await until(
    async () => (await get('/livez', second.cert).catch(() => undefined))?.text === 'ok\n',
    'the new certificate is in force',
  );
  await expect(get('/livez', first.cert)).rejects.toThrow();
});
