// The rules of the edge on the wire: what passes, and what is refused with a typed error and a closed connection.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/errors.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { errorCode, property, Served } from './served.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 100);

let served: Served;
beforeAll(async () => {
  served = await Served.start({
    routes: (server) =>
      server.route('GET', '/fields', (exchange) => answerJson(exchange, 200, exchange.request.headers)),
  });
});
afterAll(async () => {
  await served[Symbol.asyncDispose]();
});

const get = (target: string, ...fields: string[]): string =>
  [`GET ${target} HTTP/1.1`, 'host: a', ...fields, '', ''].join('\r\n');
const post = (fields: string[], body = ''): string =>
  ['POST /echo HTTP/1.1', 'host: a', ...fields, '', body].join('\r\n');
const raw = (...lines: string[]): string => [...lines, '', ''].join('\r\n');

/** Sends the bytes; the answer must be this error, and nothing may follow on the connection. */
async function refused(bytes: string | Buffer, code: keyof typeof ERRORS, hasId = true): Promise<void> {
  const { response, client } = await served.say(bytes);
  expect(errorCode(response)).toBe(code);
  expect(response.status).toBe(ERRORS[code].status);
  expect(response.header('connection')).toBe('close');
  if (hasId) expect(response.header('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/);
  expect(await client.closed).not.toBe('reset');
  expect(client.responses).toHaveLength(1);
  client.destroy();
}

async function passes(bytes: string | Buffer): Promise<unknown> {
  const { response, client } = await served.say(bytes);
  expect([response.status, response.text()]).toEqual([200, expect.any(String)]);
  client.destroy();
  return response.json();
}

/** The fields that an answer shows, without those that are there once; of a refusal its code. */
function contentOf(response: RawResponse): unknown {
  const body = response.status === 200 ? response.json() : errorCode(response);
  return JSON.stringify(body).replace(/,"unlike-\d+":"1"/, '');
}

describe('methods', () => {
  test.each([
    ['PUT', 'GET, HEAD'],
    ['PATCH', 'GET, HEAD'],
    ['TRACE', 'GET, HEAD'],
    ['QUERY', 'GET, HEAD'],
    ['PROPFIND', 'GET, HEAD'],
  ])('%s is not allowed', async (method, allow) => {
    const { response, client } = await served.say(raw(`${method} /health HTTP/1.1`, 'host: a'));
    expect(errorCode(response)).toBe('method_not_allowed');
    expect(response.status).toBe(405);
    expect(response.header('allow')).toBe(allow);
    expect(response.header('connection')).toBe('close');
    expect(await client.closed).toBe('fin');
  });

  test('HEAD is answered as GET, without the body, and keeps the connection', async () => {
    using client = await served.connect();
    const whole = await client.ask({ method: 'GET', target: '/health' });
    const response = await client.ask({ method: 'HEAD', target: '/health' });
    expect([response.status, response.header('content-type')]).toEqual([200, whole.header('content-type')]);
    expect(response.header('content-length')).toBe(String(whole.body.length));
    expect(response.body).toHaveLength(0);
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('HEAD of a path without GET is not allowed, and of none not found', async () => {
    using client = await served.connect();
    const response = await client.ask({ method: 'HEAD', target: '/echo' });
    expect([response.status, response.header('allow')]).toEqual([405, 'POST']);
    expect((await client.ask({ method: 'HEAD', target: '/nowhere' })).status).toBe(404);
  });

  test('HEAD with a body is refused', async () => {
    using client = await served.connect();
    const headers = { 'content-length': '1' };
    expect((await client.ask({ method: 'HEAD', target: '/health', headers })).status).toBe(400);
    expect(await client.closed).toBe('fin');
  });

  test('another path answers with the methods of the gateway', async () => {
    const { response } = await served.say(raw('PUT /nowhere HTTP/1.1', 'host: a'));
    expect(response.status).toBe(405);
    expect(response.header('allow')).toBe('GET, HEAD, POST, DELETE, OPTIONS');
  });

  test.each([
    ['GET /echo', 'POST'],
    ['POST /health', 'GET, HEAD'],
    ['DELETE /health', 'GET, HEAD'],
    ['OPTIONS /health', 'GET, HEAD'],
  ])('%s names the right method and keeps the connection', async (line, allow) => {
    using client = await served.connect();
    await client.write(raw(`${line} HTTP/1.1`, 'host: a'));
    const response = await client.response();
    expect(errorCode(response)).toBe('method_not_allowed');
    expect(response.status).toBe(405);
    expect(response.header('allow')).toBe(allow);
    await client.write(get('/health'));
    expect((await client.response()).status).toBe(200);
  });

  test.each(['get', 'G\u00cbT', 'GET2', 'FOO', ''])('the unknown method "%s" is refused', (method) =>
    refused(Buffer.from(raw(`${method} /health HTTP/1.1`, 'host: a'), 'latin1'), 'invalid_http', false),
  );

  test('CONNECT is not allowed', () =>
    refused(raw('CONNECT example.com:443 HTTP/1.1', 'host: a'), 'method_not_allowed', false));

  test('CONNECT by a client that leaves at once harms nobody', async () => {
    for (let i = 0; i < 50; i += 1) {
      const client = await served.connect();
      await client.write(raw('CONNECT a:443 HTTP/1.1', 'host: a', 'x: y'));
      client.reset();
    }
    await until(async () => (await served.openConnections()) === 0);
    await passes(get('/health'));
  });

  test('a connection goes on after an upgrade that was not made', async () => {
    using client = await served.connect();
    for (let i = 0; i < 3; i += 1) {
      await client.write(
        get('/health', 'connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AA'),
      );
      expect((await client.response()).status).toBe(200);
    }
  });

  test.each(['websocket', 'h2c'])(
    'an upgrade to %s is answered as if it had not been asked for',
    async (to) => {
      await passes(
        get('/health', 'connection: upgrade, http2-settings', `upgrade: ${to}`, 'http2-settings: AAMAAABk'),
      );
      const body = post(['connection: upgrade', `upgrade: ${to}`, 'content-length: 3'], 'abc');
      expect(await passes(body)).toEqual({ bytes: 3, start: 'abc' });
    },
  );
});

describe('targets', () => {
  test.each(['/health?a=b&c=%2F', '/health?', '/health?x="y"', "/health?$&'()*+,;=:@!~[]{}|^`<>"])(
    '%s passes',
    async (target) => {
      expect(property(await passes(get(target)), 'target')).toBe(target);
    },
  );

  test.each([
    ['http://b.example:8080/health?a=b', '/health?a=b', 'b.example:8080'],
    ['HTTPS://[::1]/fields', '/fields', '[::1]'],
    [`http://${'b'.repeat(261)}/health`, '/health', 'b'.repeat(261)],
  ])('%s is read as its path, and Host as its authority', async (target, path, host) => {
    for (let i = 0; i < 2; i += 1) {
      const { response, client } = await served.say(get(target));
      expect(response.status).toBe(200);
      client.destroy();
      await until(() => served.ended.length > 0, 'its end');
      expect(served.ended.at(-1)?.target).toBe(path);
      expect(await passes(get(target.replace(/\/(?:health|fields).*/, '/fields')))).toMatchObject({ host });
      // A later request with the same header lines keeps its own.
      expect(await passes(get('/fields'))).toMatchObject({ host: 'a' });
    }
  });

  test('without a path, one in absolute form is that of the root', async () => {
    for (const target of ['http://a', 'http://a?b=c', 'http://a/']) {
      const { response } = await served.say(get(target));
      expect([response.status, errorCode(response)]).toEqual([404, 'unknown_url']);
    }
  });

  test('one in absolute form needs one valid Host, too', async () => {
    const line = 'GET http://a/health HTTP/1.1';
    await refused(raw(line, 'accept: */*'), 'invalid_http');
    await refused(raw(line, 'host: a', 'host: a'), 'invalid_http');
    await refused(raw(line, 'host: a_b'), 'invalid_http');
    await passes(raw('GET http://a/health HTTP/1.0'));
  });

  test.each([
    '*',
    'http:///health',
    'http://a@b/health',
    'http://a:b@c/health',
    'http://a_b/health',
    'http://a:/health',
    'http://a:123456/health',
    `http://${'b'.repeat(262)}/health`,
    'http://a/health#x',
    'http://a/\\health',
    'http://a/health%00',
    'ftp://a/health',
    'ws://a/health',
    '/health#x',
    '/health?a=\\b',
    '/\\health',
    '/health%00',
    '/health?x=%0a',
    '/health?x=%0D',
    '/%0Ahealth',
  ])('%s is refused', (target) => refused(get(target), 'invalid_http'));

  test.each([
    'health',
    'a:80',
    'http:/health',
    'http://a#x',
    '/he\x01alth',
    '/he\x7falth',
    '/health\u00e9',
    '/he\talth',
    '/he alth',
  ])('what is no target at all is refused (%j)', async (target) => {
    const { response, client } = await served.say(Buffer.from(get(target), 'latin1'));
    expect(errorCode(response)).toBe('invalid_http');
    expect(response.status).toBe(400);
    expect(await client.closed).not.toBe('reset');
  });

  test.each([
    '/Health',
    '/health/',
    '//health',
    '/./health',
    '/x/../health',
    '/health;x=1',
    '/h%65alth',
    '/health%2f',
    '/health%',
    '/-/unknown',
    '/v1/models/',
    '/__proto__',
    '/constructor',
    '/',
  ])('%s is another path, which does not exist', async (target) => {
    using client = await served.connect();
    await client.write(get(target));
    const response = await client.response();
    expect(errorCode(response)).toBe('unknown_url');
    expect(response.status).toBe(404);
    expect(response.header('x-request-id')).toMatch(/^req_/);
    await client.write(get('/health'));
    expect((await client.response()).status).toBe(200);
  });

  test('a target longer than the header limit is refused', () =>
    refused(get(`/health?${'x'.repeat(17_000)}`), 'headers_too_large', false));
});

describe('versions', () => {
  test.each([
    'HTTP/0.9',
    'HTTP/1.2',
    'HTTP/2.0',
    'HTTP/3.0',
    'HTTP/11',
    'http/1.1',
    'HTTP/1.1x',
    'ICE/1.0',
    '',
  ])('"%s" is refused', (version) =>
    refused(raw(`GET /health ${version}`, 'host: a'), 'invalid_http', false),
  );

  test('the preface of HTTP/2 is refused', async () => {
    const { response, client } = await served.say('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0');
    expect(errorCode(response)).toBe('invalid_http');
    await client.closed;
  });

  test('HTTP/1.0 is answered, with or without Host, and closed', async () => {
    for (const fields of [[], ['host: a'], ['accept: */*']]) {
      const { response, client } = await served.say(raw('GET /health HTTP/1.0', ...fields));
      expect(response.status).toBe(200);
      expect(response.complete).toBe(true);
      expect(await client.closed).toBe('fin');
    }
  });

  test('HTTP/1.0 with keep-alive keeps the connection', async () => {
    using client = await served.connect();
    for (let i = 0; i < 2; i += 1) {
      await client.write(raw('GET /health HTTP/1.0', 'connection: keep-alive'));
      expect((await client.response()).status).toBe(200);
    }
  });
});

describe('Host', () => {
  test.each([
    'example.com',
    'EXAMPLE.com:8080',
    '127.0.0.1',
    'a-b.c',
    '[::1]',
    '[2001:db8::1]:443',
    'localhost:0',
  ])('%s passes', async (host) => {
    await passes(raw('GET /health HTTP/1.1', `host: ${host}`));
  });

  test.each([
    '',
    'a b',
    'a/b',
    'user@a',
    'a:port',
    'a:',
    'a:123456',
    '::1',
    '[::1',
    '[g]',
    'a,b',
    'a?x',
    'a\\b',
    'a_b',
    '"a"',
  ])('"%s" is refused', (host) => refused(raw('GET /health HTTP/1.1', `host: ${host}`), 'invalid_http'));

  test('none is refused', () => refused(raw('GET /health HTTP/1.1', 'accept: */*'), 'invalid_http'));
  test('two are refused, even alike', () =>
    refused(raw('GET /health HTTP/1.1', 'host: a', 'Host: a'), 'invalid_http'));
});

describe('header names and values', () => {
  test.each([
    'session_id: 1',
    'authorization_: 1',
    '__proto__: 1',
    'constructor: 1',
    'a.b: 1',
    'a!: 1',
    "!#$%&'*+-.^_`|~: 1",
    `${'n'.repeat(65)}: 1`,
    `${'n'.repeat(4_000)}: 1`,
  ])('the field %j passes', async (field) => {
    await passes(get('/health', field));
  });

  test.each([
    'content_length: 1',
    'Content.Length: 1',
    'transfer_encoding: chunked',
    'x_forwarded_for: 127.0.0.1',
    'X_Request_Id: a',
    'stripe_signature: a',
  ])('the field %j is refused by name, because CGI-like servers read it as another', async (field) => {
    const name = field.slice(0, field.indexOf(':'));
    const { response } = await served.say(get('/health', field));
    expect(response.status).toBe(400);
    const meant = name.toLowerCase().replaceAll(/[_.]/g, '-');
    expect(response.json()).toMatchObject({
      error: { message: `The header ${name} could be taken for ${meant}.` },
    });
  });

  test.each([
    'a b: 1',
    'a : 1',
    ': 1',
    'noColon',
    'a\x01: 1',
    'a: 1\x00',
    'a: \x01',
    'a: \x7f',
    'a: 1\rb',
    ' folded: 1',
    'x: 1\r\n folded',
    'x: 1\r\n\tfolded',
  ])('the field %j is refused', async (field) => {
    const { response, client } = await served.say(get('/health', field));
    expect(errorCode(response)).toBe('invalid_http');
    expect(response.status).toBe(400);
    expect(response.header('connection')).toBe('close');
    await client.closed;
  });

  test.each(['x-title', 'user-agent', 'referer', 'cookie'])('bytes beyond ASCII in %s pass', async (name) => {
    await passes(Buffer.from(get('/health', `${name}: caf\u00e9`), 'latin1'));
    await passes(Buffer.from(get('/health', `${name}: caf\u00e9 \u20ac`), 'utf8'));
  });

  test.each(['authorization', 'x-api-key', 'content-type', 'Content-Encoding', 'x-request-id', 'origin'])(
    'bytes beyond ASCII in %s, which is read, are refused',
    (name) => refused(Buffer.from(get('/health', `${name}: caf\u00e9`), 'latin1'), 'invalid_http'),
  );

  test('a host with bytes beyond ASCII is refused', () =>
    refused(Buffer.from(raw('GET /health HTTP/1.1', 'host: caf\u00e9'), 'latin1'), 'invalid_http'));

  test.each(['x:', 'x: ', 'x:\ta\tb', `x: ${'!"#$%&()*+,-./:;<=>?@[]^_`{|}~'}`, `${'n'.repeat(64)}: 1`])(
    '%j passes',
    async (field) => {
      await passes(get('/health', field));
    },
  );

  test('a bare LF as line end is refused', () =>
    refused('GET /health HTTP/1.1\nhost: a\n\n', 'invalid_http', false));

  test.each([
    'authorization',
    'api-key',
    'X-Api-Key',
    'content-type',
    'content-encoding',
    'expect',
    'Content-Type',
  ])('a second %s is refused', (name) =>
    refused(get('/health', `${name}: 100-continue`, `${name.toLowerCase()}: 100-continue`), 'invalid_http'),
  );

  test('other fields may come again', () =>
    passes(get('/health', 'accept: a', 'accept: b', 'cookie: a', 'cookie: b')));

  test('are judged and read the same after any others', async () => {
    // Name, values that pass, and others.
    const fields: [string, string[], string[]][] = [
      ['a', ['1', '2', '\xe9'], ['\x01']],
      ['Accept', ['1', '2'], ['\xe9']],
      ['cookie', ['a=1', 'b=\xe9'], ['\x01']],
      ['set-cookie', ['a', 'b'], ['\x01']],
      ['content-length', ['0'], ['00', '1']],
      ['authorization', ['Bearer a', 'Bearer b'], ['\xe9']],
      ['__proto__', ['a', 'b'], ['\x01']],
      ['constructor', ['a', 'b'], ['\x01']],
      ['accept', ['3'], ['\xe9']],
      ['content_length', [], ['0']],
    ];
    const valuesOf = (good: string[], bad: string[]) =>
      fc.oneof({ weight: 12, arbitrary: fc.constantFrom(...good, ...good) }, fc.constantFrom(...bad));
    const lines = (names: typeof fields) =>
      fc.tuple(
        valuesOf(['a', 'b', 'c:1'], ['b c', '\xe9']).map((value) => `host: ${value}`),
        ...names.map(([name, good, bad]) =>
          valuesOf(good.length === 0 ? bad : good, bad).map((value) => `${name}: ${value}`),
        ),
      );
    const some = fc.shuffledSubarray([...fields, ...fields.slice(0, 3)], { maxLength: 5 });
    const requests = fc.tuple(some, some).chain(([names, others]) =>
      fc.array(fc.oneof({ weight: 6, arbitrary: lines(names) }, lines(others)), {
        minLength: 2,
        maxLength: 6,
      }),
    );
    let count = 0;
    const run = async (sent: string[][]) => {
      using client = await served.connect();
      for (const block of sent) {
        await client.write(Buffer.from(raw('GET /fields HTTP/1.1', ...block), 'latin1'));
        const response = await client.response();
        // No other request has this name, so all of this one is checked.
        count += 1;
        const lines = raw('GET /fields HTTP/1.1', ...block, `unlike-${count}: 1`);
        const alone = await served.say(Buffer.from(lines, 'latin1'));
        alone.client.destroy();
        expect([response.status, contentOf(response)]).toEqual([
          alone.response.status,
          contentOf(alone.response),
        ]);
        if (response.header('connection') === 'close') break;
      }
    };
    await fc.assert(fc.asyncProperty(requests, run), { numRuns: RUNS });
  });

  test('100 fields pass and 101 are refused', async () => {
    const fields = (count: number) => Array.from({ length: count }, (_, i) => `x-${i}: 1`);
    await passes(get('/health', ...fields(99)));
    await refused(get('/health', ...fields(100)), 'headers_too_large');
    await refused(get('/health', ...fields(2_000)), 'headers_too_large', false);
  });

  test('headers of more than 16 KiB are refused', async () => {
    await passes(get('/health', `x: ${'a'.repeat(15_000)}`));
    await refused(get('/health', `x: ${'a'.repeat(17_000)}`), 'headers_too_large', false);
    await refused(get('/health', `x: ${'a'.repeat(1_000_000)}`), 'headers_too_large', false);
    await refused(`GET /health HTTP/1.1\r\n${'n'.repeat(20_000)}`, 'headers_too_large', false);
  });
});

describe.concurrent('framing', () => {
  test('a body by its length, and a chunked one', async () => {
    expect(await passes(post(['content-length: 3'], 'abc'))).toEqual({ bytes: 3, start: 'abc' });
    const chunked = '3\r\nabc\r\n2;ext="x"\r\nde\r\n0\r\ntrailer: x\r\n\r\n';
    expect(await passes(post(['transfer-encoding: chunked'], chunked))).toEqual({ bytes: 5, start: 'abcde' });
    expect(await passes(post(['Transfer-Encoding: Chunked'], '0\r\n\r\n'))).toEqual({ bytes: 0, start: '' });
    expect(await passes(post([]))).toEqual({ bytes: 0, start: '' });
  });

  test.each([
    ['+3'],
    ['-3'],
    ['0x3'],
    ['3, 3'],
    ['03'],
    ['3.0'],
    ['3e0'],
    ['three'],
    [''],
    ['99999999999999999999'],
    ['9999999999999999'],
  ])('the content-length "%s" is refused', async (length) => {
    const { response, client } = await served.say(post([`content-length: ${length}`], 'abc'));
    expect(errorCode(response)).toBe('invalid_http');
    expect(response.header('connection')).toBe('close');
    await client.closed;
    expect(client.responses).toHaveLength(1);
  });

  test.each([
    [['content-length: 3', 'content-length: 3']],
    [['content-length: 3', 'content-length: 4']],
    [['content-length: 3', 'transfer-encoding: chunked']],
    [['transfer-encoding: chunked', 'content-length: 3']],
    [['transfer-encoding: chunked', 'transfer-encoding: chunked']],
    [['transfer-encoding: gzip, chunked']],
    [['transfer-encoding: chunked, identity']],
    [['transfer-encoding: identity']],
    [['transfer-encoding: gzip']],
    [['transfer-encoding: xchunked']],
    [['transfer-encoding: "chunked"']],
    [['transfer-encoding: ,chunked']],
    [['transfer-encoding:\x0bchunked']],
    [['transfer-encoding: chunked;q=1']],
    [['transfer-encoding : chunked']],
    [['transfer_encoding: chunked']],
    [['transfer-encoding:']],
  ])('%j is refused', async (fields) => {
    const { response, client } = await served.say(post(fields, '3\r\nabc\r\n0\r\n\r\n'));
    expect(errorCode(response)).toBe('invalid_http');
    expect(response.header('connection')).toBe('close');
    await client.closed;
    expect(client.responses).toHaveLength(1);
  });

  test('chunked needs HTTP/1.1', async () => {
    const bytes = 'POST /echo HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n';
    await refused(bytes, 'invalid_http', false);
  });

  test.each(['GET', 'OPTIONS', 'DELETE'])('%s with content-length: 0 is no body', async (method) => {
    const { response } = await served.say(raw(`${method} /health HTTP/1.1`, 'host: a', 'content-length: 0'));
    expect(response.status).toBe(method === 'GET' ? 200 : 405);
  });

  test.each([['content-length: 3'], ['transfer-encoding: chunked']])('GET with %s is refused', (field) =>
    refused(`${get('/health', field)}0\r\n\r\n`, 'invalid_http'),
  );

  test.each([
    'xyz\r\n',
    '-1\r\nabc',
    '0x3\r\nabc\r\n0\r\n\r\n',
    '3 \r\nabc\r\n0\r\n\r\n',
    '3\nabc\n0\n\n',
    '3\r\nabcd\r\n0\r\n\r\n',
    '3\r\nabcXX0\r\n\r\n',
    'fffffffffffffffff\r\n',
    '0\r\nbad trailer\r\n\r\n',
    'a chunk extension of 20,000 bytes',
  ])('the chunk framing %j is refused', async (name) => {
    const body = name.startsWith('a chunk') ? `3;${'x'.repeat(20_000)}\r\nabc\r\n0\r\n\r\n` : name;
    const { response, client } = await served.say(post(['transfer-encoding: chunked'], body));
    expect(errorCode(response)).toBe('invalid_http');
    expect(response.header('connection')).toBe('close');
    expect(response.header('x-request-id')).toMatch(/^req_/);
    await client.closed;
    expect(client.responses).toHaveLength(1);
  });

  test('bytes after the body that are no request end the connection after both answers', async () => {
    using client = await served.connect();
    await client.write(`${post(['content-length: 3'], 'abc')}garbage\r\n\r\n`);
    expect((await client.response()).status).toBe(200);
    expect(errorCode(await client.response())).toBe('invalid_http');
    expect(await client.closed).toBe('fin');
  });

  test('what could be a smuggled request inside a refused one is never answered', async () => {
    const inner = get('/health');
    for (const bytes of [
      post([`content-length: ${inner.length}`, 'transfer-encoding: chunked'], `0\r\n\r\n${inner}`),
      post(['transfer-encoding: xchunked', 'content-length: 4'], inner),
      `PUT /echo HTTP/1.1\r\nhost: a\r\ncontent-length: ${inner.length}\r\n\r\n${inner}${inner}`,
      `GET /health HTTP/1.1\r\nhost: a\r\ncontent-length: ${inner.length}\r\n\r\n${inner}${inner}`,
    ]) {
      const { response, client } = await served.say(bytes);
      expect(response.status).toBeGreaterThanOrEqual(400);
      await client.closed;
      expect(client.responses).toHaveLength(1);
    }
  });
});

describe('garbage', () => {
  test.each([
    'hello\r\n\r\n',
    '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
    '{"a":1}',
    'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
    '\0\0\0\0\0\0\0\0',
    'GET /health\r\n\r\n',
    '\xff\xfe\xfd',
  ])('%j is refused', (bytes) => refused(Buffer.from(bytes, 'latin1'), 'invalid_http', false));

  test('empty lines before a request are let pass', () => passes(`\r\n\r\n${get('/health')}`));

  test('a request cut short by FIN is refused', async () => {
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\nhost: a\r\n');
    client.halfClose();
    expect(errorCode(await client.response())).toBe('invalid_http');
    await client.closed;
  });

  test('every refusal is counted', async () => {
    const { values } = await served.metrics.requests.get();
    expect(values.some(({ labels }) => labels.route === 'malformed' && labels.status === 400)).toBe(true);
    expect(values.some(({ labels }) => labels.route === 'malformed' && labels.status === 431)).toBe(true);
  });

  test('nothing is left of all this', async () => {
    await served.idle();
    expect(served.log).not.toContain('a handler failed');
  });
});

describe('the id of a request', () => {
  test.each(['abc', 'A.b_c:d-1', 'x123456789'.repeat(12)])('%s is kept', async (id) => {
    const { response } = await served.say(get('/health', `x-request-id: ${id}`));
    expect(response.header('x-request-id')).toBe(id);
  });

  test.each(['', 'a b', 'a"b', 'x123456789'.repeat(13), '0123456789abcdef'.repeat(2), '<script>'])(
    '"%s" is replaced',
    async (id) => {
      const { response } = await served.say(get('/health', `x-request-id: ${id}`));
      expect(response.header('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/);
    },
  );
});
