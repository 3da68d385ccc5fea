// Upstreams behind an HTTP proxy: what reaches the proxy and the upstream, and what is said when the proxy does not do as it should.
import { writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeCertificate } from '../../helpers/certificate.ts';
import { closedPort } from '../../helpers/closed-port.ts';
import { ConnectProxy } from '../../helpers/connect-proxy.ts';
import { type Gateway, type GatewayOptions, runCommand, startGateway } from '../../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  SSE_HEADERS,
  waitFor,
} from '../../helpers/hostile-upstream.ts';
import { pause, until } from '../../helpers/wait.ts';

const certificate = makeCertificate({ names: ['upstream.test', 'localhost', '127.0.0.1'] });
let proxy: ConnectProxy;
let upstream: HostileUpstream;
let secure: HostileUpstream;

beforeEach(async () => {
  proxy = await ConnectProxy.start();
  upstream = await HostileUpstream.start({ script: json(200, completion()) });
  secure = await HostileUpstream.start({ tls: certificate, script: json(200, completion()) });
});
afterEach(async () => {
  await Promise.all([upstream.close(), secure.close(), proxy.down()]);
});

type Fields = NonNullable<GatewayOptions['config']>;

/** A gateway whose one upstream has a name that only the proxy can resolve. */
function start(fields: Fields = {}, { port } = upstream, config: Fields = {}): Promise<Gateway> {
  const scheme = port === secure.port ? 'https' : 'http';
  return startGateway({
    upstreams: { up: `${scheme}://upstream.test:${port}/v1` },
    config: { ...config, upstreams: { up: { proxy: proxy.url(), ...fields } } },
  });
}

const bothSchemes = [
  ['http', () => upstream, {}],
  ['https', () => secure, { tls: { ca: certificate.cert } }],
] as const;

describe('a request through a proxy', () => {
  test.each(bothSchemes)('reaches an %s upstream whose name the proxy resolves', async (_, at, fields) => {
    const target = at();
    await using gateway = await start(fields, target);
    const responses = await Promise.all([1, 2, 3].map(() => gateway.chat(chatRequest())));
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200]);
    const authority = `upstream.test:${target.port}`;
    expect(proxy.requests[0]?.head).toBe(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n\r\n`);
    expect((await target.request(0)).header('host')).toBe(authority);
    expect((await target.request(0)).header('authorization')).toBe('Bearer credential-of-up');
    const tunnels = proxy.requests.length;
    for (let index = 0; index < 5; index += 1) expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(proxy.requests.length).toBe(tunnels);
  });

  test('with TLS tells the proxy neither key nor prompt', async () => {
    await using gateway = await start({ tls: { ca: certificate.cert } }, secure);
    await gateway.chat(chatRequest({ messages: [{ role: 'user', content: 'words-of-the-prompt' }] }));
    expect((await secure.request(0)).body.toString()).toContain('words-of-the-prompt');
    const seen = Buffer.concat(proxy.received).toString('latin1');
    expect(seen).not.toMatch(/words-of-the-prompt|credential-of-up|chat\/completions/);
  });

  test.each(bothSchemes)(
    'streams over %s: each event is passed on before the next one is made',
    async (_, at, fields) => {
      const target = at();
      await using gateway = await start(fields, target);
      const passed = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
      const events = ['one', 'two', 'three'].map((text) => chunk(frame(contentChunk(text))));
      target.next([
        head(200, SSE_HEADERS),
        ...events.slice(0, 1),
        waitFor(passed[0].promise),
        ...events.slice(1, 2),
        waitFor(passed[1].promise),
        ...events.slice(2),
        chunk(frame(finishChunk())),
        chunk(DONE),
        lastChunk(),
      ]);
      using client = await gateway.open(chatRequest({ stream: true }));
      await until(() => client.received.bytes.toString().includes('"one"'), 'the first event');
      expect(client.received.bytes.toString()).not.toContain('"two"');
      passed[0].resolve();
      await until(() => client.received.bytes.toString().includes('"two"'), 'the second event');
      expect(client.received.bytes.toString()).not.toContain('"three"');
      passed[1].resolve();
      const response = await client.response();
      expect(response.text()).toContain('[DONE]');
    },
  );

  test.each(bothSchemes)('has a body of several megabytes over %s, there and back', async (_, at, fields) => {
    const target = at();
    await using gateway = await start(fields, target);
    const text = 'abcdefgh'.repeat(2 ** 19);
    target.next(json(200, completion({ content: text })));
    const response = await gateway.chat(chatRequest({ messages: [{ role: 'user', content: text }] }));
    expect(response.status).toBe(200);
    expect((await target.request(0)).body.toString()).toContain(text);
    expect(response.text()).toContain(text);
  });

  test('to an IPv6 address names it in brackets', async () => {
    await using gateway = await startGateway({
      upstreams: { up: `http://[2001:db8::7]:${upstream.port}/v1` },
      config: { upstreams: { up: { proxy: proxy.url() } } },
    });
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(proxy.authorities).toEqual([`[2001:db8::7]:${upstream.port}`]);
  });

  test('to a default port names the port', async () => {
    proxy.script = (socket) => socket.end('HTTP/1.1 503 No\r\n\r\n');
    await using gateway = await startGateway({
      config: {
        retry: { attempts: 1 },
        upstreams: {
          echo: null,
          plain: { base_url: 'http://upstream.test/v1', proxy: proxy.url() },
          secure: { base_url: 'https://upstream.test/v1', proxy: proxy.url() },
        },
        models: {
          plain: { targets: [{ upstream: 'plain', model: 'm' }] },
          secure: { targets: [{ upstream: 'secure', model: 'm' }] },
        },
      },
    });
    for (const model of ['plain', 'secure']) await gateway.chat(chatRequest({ model }));
    expect(proxy.authorities).toEqual(['upstream.test:80', 'upstream.test:443']);
  });

  test.each([
    ['in one byte at a time', 'HTTP/1.1 200 Connection established\r\nx-by: proxy\r\n\r\n', 1],
    ['in pieces', 'HTTP/1.0 200 OK\r\nserver: old\r\n\r\n', 9],
    ['with an interim answer before', 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n', 200],
    ['with 201', 'HTTP/1.1 201 Created\r\n\r\n', 200],
    ['with a length, which means nothing', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n', 200],
    ['with bare line feeds', 'HTTP/1.1 200 OK\nserver: lenient\n\n', 200],
    ['without a reason', 'HTTP/1.1 200\r\n\r\n', 200],
  ])('works when the proxy answers %s', async (_, answer, size) => {
    proxy.script = (_socket, pass) => pass(answer, size);
    await using gateway = await start({ tls: { ca: certificate.cert } }, secure);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
  });

  test('works when the proxy takes its time', async () => {
    proxy.script = (_socket, pass) => void pause(700).then(() => pass());
    await using gateway = await start({ timeouts: { connect: '20s' } });
    expect((await gateway.chat(chatRequest())).status).toBe(200);
  });
});

describe('credentials', () => {
  test('of the URL are sent decoded, and shown nowhere', async () => {
    proxy.login = 'some user:p@ss/wörd:1';
    const login = 'some%20user:p%40ss%2Fw%C3%B6rd%3A1';
    await using gateway = await start({ proxy: proxy.url(login), tls: { ca: certificate.cert } }, secure);
    const response = await gateway.chat(chatRequest());
    expect(response.status).toBe(200);
    const shown = [gateway.output, await gateway.metrics(), response.text()].join();
    const checked = await runCommand(['check', '--config', gateway.configFile], { TEST_DIR: '/tmp' });
    expect(checked.code).toBe(0);
    expect(checked.stdout).toContain(
      `through the proxy http://127.0.0.1:${proxy.port}; authorities of its own`,
    );
    expect(shown + checked.stdout).not.toMatch(/some(%20| )user|p(%40|@)ss|w(ö|%C3)/);
  });

  test('that the proxy rejects are the operator’s to mend; the next target answers', async () => {
    proxy.login = 'user:right';
    await using living = await HostileUpstream.start({ script: json(200, completion()) });
    await using gateway = await startGateway({
      upstreams: { up: `https://upstream.test:${secure.port}/v1`, living: living.baseUrl },
      config: {
        upstreams: { up: { proxy: proxy.url('user:wrong-secret') } },
        retry: { budget: 0 },
        models: {
          'test-model': {
            targets: [
              { upstream: 'up', model: 'm' },
              { upstream: 'living', model: 'm', priority: 2 },
            ],
          },
          alone: { targets: [{ upstream: 'up', model: 'm' }] },
        },
      },
    });
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    const response = await gateway.chat(chatRequest({ model: 'alone' }));
    expect(response.status).toBe(406);
    expect(response.json()).toMatchObject({ error: { code: 'upstream_proxy_denied' } });
    expect(response.text()).not.toMatch(/127\.0\.0\.1|upstream\.test|407|user/);
    const line = await gateway.accessLine(response);
    expect(line['cause']).toBe(
      `the proxy 127.0.0.1:${proxy.port} answered CONNECT with 407: it demands other credentials`,
    );
    expect(gateway.output).not.toContain('wrong-secret');
    expect(secure.connections).toBe(0);
  });

  test('that a file has are replaced while requests run, and the upstream keeps its connections', async () => {
    proxy.login = 'user:one';
    await using gateway = await start();
    const file = gateway.directory.file('login');
    await writeFile(file, 'user:one');
    const withFile = `http://\${file:${file}}@127.0.0.1:${proxy.port}`;
    const options = {
      upstreams: { up: `http://upstream.test:${upstream.port}/v1` },
      config: { upstreams: { up: { proxy: withFile } } },
    };
    await gateway.writeConfig(options);
    await gateway.app.reload();
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    const breaker = gateway.app.breaker('up', 'upstream-model');
    proxy.login = 'user:two';
    await writeFile(file, 'user:two');
    await gateway.app.reload();
    expect(gateway.app.retiring).toBe(0);
    expect(gateway.app.breaker('up', 'upstream-model')).toEqual(breaker);
    const [before, tunnels] = [upstream.openSockets, proxy.requests.length];
    expect(before).toBeGreaterThan(0);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(proxy.requests.length).toBe(tunnels);
    upstream.closeIdle();
    await until(() => upstream.openSockets === 0, 'the end of the tunnel');
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    const last = proxy.requests.at(-1)?.head ?? '';
    expect(last).toContain(Buffer.from('user:two').toString('base64'));
  });
});

const say = (text: string, then?: 'end' | 'reset') => (socket: Socket) => {
  socket.write(text, 'latin1', () => {
    if (then === 'end') socket.end();
    else if (then === 'reset') socket.resetAndDestroy();
  });
};
const PAGE = '<html><body>Blocked by the secret-of-the-page</body></html>';

describe('a proxy', () => {
  test.each([
    ['demands credentials', say('HTTP/1.1 407 Auth\r\n\r\n', 'end'), 406, /407: it demands credentials/],
    [
      'forbids it with a page',
      say(`HTTP/1.1 403 No\r\ncontent-length: ${PAGE.length}\r\n\r\n${PAGE}`),
      406,
      /with 403/,
    ],
    ['does not know CONNECT', say('HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n'), 406, /with 405/],
    ['cannot reach the upstream', say(`HTTP/1.1 502 Bad\r\n\r\n${PAGE}`, 'end'), 502, /with 502/],
    ['is overloaded', say('HTTP/1.1 503 No\r\nretry-after: 5\r\n\r\n'), 502, /with 503/],
    ['limits requests', say('HTTP/1.1 429 No\r\n\r\n'), 502, /with 429/],
    ['redirects', say('HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\n\r\n'), 502, /with 302/],
    ['answers with a page and no head', say(PAGE), 502, /not HTTP/],
    ['answers with HTTP/2', say('HTTP/2 200\r\n\r\n'), 502, /not HTTP/],
    ['answers without a status', say('HTTP/1.1 OK then\r\n\r\n'), 502, /not HTTP/],
    ['answers with an endless head', say(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(20_000)}`), 502, /16 KiB/],
    ['closes before its answer', (socket: Socket) => socket.end(), 502, /before its answer/],
    ['resets before its answer', (socket: Socket) => socket.resetAndDestroy(), 502, /before its answer/],
    ['closes within the head', say('HTTP/1.1 200 O', 'end'), 502, /before its answer/],
    ['drops the tunnel at once', say('HTTP/1.1 200 OK\r\n\r\n', 'end'), 502, /before TLS was set up/],
    [
      'resets the tunnel at once',
      say('HTTP/1.1 200 OK\r\n\r\n', 'reset'),
      502,
      /before (TLS was set up|its answer)/,
    ],
    ['never answers', () => undefined, 504, /gave no tunnel in time: waited for its answer to CONNECT/],
    ['never ends its head', say('HTTP/1.1 200 OK\r\n'), 504, /its answer to CONNECT/],
    ['never passes anything on', say('HTTP/1.1 200 OK\r\n\r\n'), 504, /TLS with the upstream/],
  ] as const)(
    'that %s is named in the log, and the next target answers',
    async (_, script, status, cause) => {
      proxy.script = script;
      await using living = await HostileUpstream.start({ script: json(200, completion()) });
      await using gateway = await startGateway({
        upstreams: { up: `https://upstream.test:${secure.port}/v1`, living: living.baseUrl },
        config: {
          upstreams: { up: { proxy: proxy.url(), timeouts: { connect: '1s' } } },
          retry: { budget: 0, attempts: 2 },
          models: {
            'test-model': {
              targets: [
                { upstream: 'up', model: 'm' },
                { upstream: 'living', model: 'm', priority: 2 },
              ],
            },
            alone: { targets: [{ upstream: 'up', model: 'm' }] },
          },
        },
      });
      expect((await gateway.chat(chatRequest())).status).toBe(200);
      expect(living.requests).toHaveLength(1);
      const response = await gateway.chat(chatRequest({ model: 'alone' }));
      const code = { 406: 'upstream_proxy_denied', 502: 'upstream_proxy_error', 504: 'upstream_timeout' }[
        status
      ];
      expect([response.status, response.json()]).toMatchObject([status, { error: { code } }]);
      expect(response.text()).not.toMatch(/127\.0\.0\.1|upstream\.test|secret-of-the-page/);
      const line = await gateway.accessLine(response);
      expect(line['cause']).toMatch(cause);
      expect(line['cause']).toContain(`the proxy 127.0.0.1:${proxy.port}`);
      expect(gateway.output).not.toContain('secret-of-the-page');
      expect(
        await gateway.metric(`tollgate_upstream_attempts_total{upstream="up",outcome="${code}"}`),
      ).toBeGreaterThan(1);
      // No request was on its way.
      const durations = /tollgate_upstream_duration_seconds_count\{[^}]*upstream="up"[^}]*\} [1-9]/;
      expect(await gateway.metrics()).not.toMatch(durations);
      expect(secure.connections).toBe(0);
      expect(Buffer.concat(proxy.received).toString('latin1')).not.toMatch(/credential-of-up|Say hello/);
    },
  );

  test('that is down fails requests, and once it is back they succeed', async () => {
    await proxy.down();
    await using gateway = await start({}, upstream, { retry: { attempts: 1 } });
    const response = await gateway.chat(chatRequest());
    expect([response.status, response.json()]).toMatchObject([
      502,
      { error: { code: 'upstream_proxy_error' } },
    ]);
    expect((await gateway.accessLine(response))['cause']).toMatch(/cannot be reached < ECONNREFUSED/);
    await proxy.up();
    expect((await gateway.chat(chatRequest())).status).toBe(200);
  });

  test('whose name has no address is named', async () => {
    await using gateway = await start({ proxy: 'http://proxy.invalid:3128' }, upstream, {
      retry: { attempts: 1 },
    });
    const response = await gateway.chat(chatRequest());
    expect(response.json()).toMatchObject({
      error: { code: expect.stringMatching(/upstream_(proxy_error|timeout)/) },
    });
    expect((await gateway.accessLine(response))['cause']).toContain('the proxy proxy.invalid:3128');
  });

  test('that cuts the tunnel within an answer breaks this answer alone', async () => {
    await using gateway = await start({ tls: { ca: certificate.cert } }, secure);
    secure.next([
      head(200, SSE_HEADERS),
      chunk(frame(contentChunk('one'))),
      waitFor(new Promise(() => undefined)),
    ]);
    using client = await gateway.open(chatRequest({ stream: true }));
    await until(() => client.received.bytes.toString().includes('"one"'), 'the first event');
    proxy.cut();
    await until(() => client.received.bytes.toString().includes('stream_incomplete'), 'the error frame');
    expect((await gateway.chat(chatRequest())).status).toBe(200);
  });

  test('sees a tunnel closed when its client leaves before there is an answer', async () => {
    proxy.script = () => undefined;
    await using gateway = await start({ timeouts: { connect: '1m' } });
    using client = await gateway.open(chatRequest());
    await until(() => proxy.requests.length === 1, 'the request for a tunnel');
    client.destroy();
    await until(
      () => proxy.sockets[0]?.destroyed === true || proxy.sockets[0]?.readableEnded === true,
      'the end',
    );
  });

  test('with an upstream that is down says that it is the proxy that cannot reach it', async () => {
    await using gateway = await startGateway({
      upstreams: { up: `http://upstream.test:${await closedPort()}/v1` },
      config: { retry: { attempts: 1 }, upstreams: { up: { proxy: proxy.url() } } },
    });
    const response = await gateway.chat(chatRequest());
    expect((await gateway.accessLine(response))['cause']).toMatch(/answered CONNECT with 502/);
  });
});

test('the environment names the proxy of each scheme; loopback and `none` are direct', async () => {
  const model = (upstream: string) => ({ targets: [{ upstream, model: 'm' }] });
  await using gateway = await startGateway({
    env: { http_proxy: proxy.url(), HTTPS_PROXY: proxy.url().replace('http://', '') },
    config: {
      tls: { ca: certificate.cert },
      retry: { attempts: 1 },
      upstreams: {
        echo: null,
        plain: { base_url: `http://upstream.test:${upstream.port}/v1` },
        secure: { base_url: `https://upstream.test:${secure.port}/v1` },
        near: { base_url: upstream.baseUrl },
        none: { base_url: `http://upstream.invalid:${upstream.port}/v1`, proxy: 'none' },
      },
      models: { plain: model('plain'), secure: model('secure'), near: model('near'), none: model('none') },
    },
  });
  const statusOf = async (name: string) => (await gateway.chat(chatRequest({ model: name }))).status;
  expect([await statusOf('plain'), await statusOf('secure')]).toEqual([200, 200]);
  const both = [`upstream.test:${upstream.port}`, `upstream.test:${secure.port}`];
  expect(proxy.authorities).toEqual(both);
  expect(await statusOf('near')).toBe(200);
  // Nobody but the proxy would find an address.
  expect([502, 504]).toContain(await statusOf('none'));
  expect(proxy.authorities).toEqual(both);
});

describe('an https proxy', () => {
  const own = makeCertificate({ names: ['127.0.0.1'] });

  test.each(bothSchemes)('that the global `tls` trusts leads to an %s upstream', async (_, at, fields) => {
    await using outer = await ConnectProxy.start({ tls: own, login: 'user:pass' });
    await using gateway = await start({ ...fields, proxy: outer.url('user:pass') }, at(), {
      tls: { ca: own.cert },
    });
    for (const stream of [false, true]) {
      at().always(json(200, completion()));
      expect((await gateway.chat(chatRequest({ stream }))).status).toBe(200);
    }
    expect(outer.requests.length).toBeGreaterThan(0);
  });

  test('that nobody vouches for gets neither credentials nor a request', async () => {
    await using outer = await ConnectProxy.start({ tls: own });
    await using gateway = await start({ proxy: outer.url('user:pass') }, upstream, {
      retry: { attempts: 1 },
    });
    const response = await gateway.chat(chatRequest());
    expect([response.status, response.json()]).toMatchObject([
      406,
      { error: { code: 'upstream_proxy_denied' } },
    ]);
    expect((await gateway.accessLine(response))['cause']).toMatch(
      /cannot be verified < DEPTH_ZERO_SELF_SIGNED_CERT/,
    );
    expect(outer.requests).toEqual([]);
  });
});
