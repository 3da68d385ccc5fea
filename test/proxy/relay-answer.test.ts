// An upstream's JSON answer, its refusals, and its troubles before anything was sent: what the client reads of each.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode } from '../../src/errors.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  frame,
  HostileUpstream,
  headBytes,
  json,
  reset,
  type Script,
  send,
  silence,
  sse,
  toolChunk,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: { up: upstream.baseUrl },
    config: {
      retry: { attempts: 1 },
      models: {
        'test-model': { targets: [{ upstream: 'up', model: 'upstream-model' }] },
        'as-is': { targets: [{ upstream: 'up', model: 'upstream-model' }], response_model: 'upstream' },
      },
    },
  });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

async function answered(script: Script, body: object = chatRequest()): Promise<RawResponse> {
  upstream.next(script);
  return await gateway.chat(body);
}

const codeOf = (response: RawResponse): unknown =>
  Reflect.get(Object(Reflect.get(Object(response.json()), 'error')), 'code');

/** Every error of the gateway: the object, the type, and nothing about hosts. */
function expectError(response: RawResponse, status: number, code: string): void {
  expect([response.status, codeOf(response)], response.text()).toEqual([status, code]);
  expect(response.header('content-type')).toBe('application/json');
  expect(response.complete).toBe(true);
  expect(response.json()).toEqual({
    error: { message: expect.any(String), type: expect.any(String), param: null, code },
  });
  expect(response.text() + response.rawHead).not.toMatch(
    /127\.0\.0\.1|localhost|invalid\.|:\d{4,5}|ECONN|node:|\.ts|credential-of/,
  );
}

describe('a JSON answer', () => {
  const text =
    ' \n{"id":"x","model" : "upstream-model","created":12345678901234567890,"choices":[{"index":0,"message":{"role":"assistant","content":"\\ud83d\\ude00 名前","model":"upstream-model"},"finish_reason":"stop","logprobs":{"a":-0.10000000000000000555,"b":1e3,"c":-0}}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8},"unknown":{"10":1,"2":2}} \n';

  test.each([
    ['longer', chatRequest({ model: 'test-model' }), '"test-model"'],
    ['upstream’s own', chatRequest({ model: 'as-is' }), '"upstream-model"'],
  ])('keeps every byte but the model (%s), with the right length', async (_name, body, token) => {
    const response = await answered(json(200, text), body);
    const expected = text.replace('"upstream-model"', token);
    expect(response.text()).toBe(expected);
    expect(response.header('content-length')).toBe(String(Buffer.byteLength(expected)));
    expect(response.header('transfer-encoding')).toBeUndefined();
    expect(await gateway.accessLine(response)).toMatchObject({
      outcome: 'ok',
      prompt_tokens: 3,
      completion_tokens: 5,
      upstream: 'up',
      upstream_model: 'upstream-model',
      upstream_status: 200,
    });
  });

  test('is the same however it is split', async () => {
    const bytes = Buffer.from(text);
    const response = await answered(async (c) => {
      await c.head(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' });
      for (let at = 0; at < bytes.length; at += 3) {
        await c.chunk(bytes.subarray(at, at + 3));
        await c.wait(0);
      }
      await c.lastChunk();
    });
    expect(response.text()).toBe(text.replace('"upstream-model"', '"test-model"'));
  });

  test('of a vendor type is JSON to the client', async () => {
    const response = await answered(
      json(200, completion(), { 'content-type': 'application/vnd.x+json; charset=utf-8' }),
    );
    expect([response.status, response.header('content-type')]).toEqual([200, 'application/json']);
  });

  test('brings the headers of the allow-list and no others', async () => {
    const response = await answered(
      json(200, completion(), {
        'openai-processing-ms': '81',
        'openai-version': '2020-10-01',
        'x-should-retry': 'false',
        'x-request-id': 'req_of_upstream',
        'set-cookie': '__cf_bm=1',
        server: 'secret-server',
        'openai-organization': 'org-operator',
        'access-control-allow-origin': '*',
        'x-ratelimit-remaining-requests': '7',
        connection: 'x-bar, openai-version',
        'x-bar': '1',
        trailer: 'x-t',
        'alt-svc': 'h3',
      }),
    );
    const fields = Object.fromEntries(response.headers.map(([name, value]) => [name.toLowerCase(), value]));
    delete fields['date'];
    const { 'x-request-id': id, 'content-length': length, ...others } = fields;
    for (const name of Object.keys(others)) if (name.startsWith('x-ratelimit-')) delete others[name];
    delete others['connection'];
    delete others['keep-alive'];
    expect(others).toEqual({
      'content-type': 'application/json',
      'openai-processing-ms': '81',
      'x-should-retry': 'false',
    });
    expect(id).toMatch(/^req_[0-9a-f]{32}$/);
    expect(fields['x-ratelimit-remaining-requests']).not.toBe('7');
    expect(length).toBe(String(response.body.length));
    expect(await gateway.accessLine(response)).toMatchObject({ upstream_request_id: 'req_of_upstream' });
  });
});

describe('an upstream’s refusal', () => {
  const body = '{"error":{"message":"m","type":"t","param":null,"code":"c"},"more":1.0}';

  test.each([400, 403, 404, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529])(
    'with %i and an error object passes unchanged, for streams too',
    async (status) => {
      for (const stream of [false, true]) {
        const response = await answered(
          json(status, body, {
            'retry-after': '30',
            'retry-after-ms': '30000',
            'x-should-retry': 'false',
            'x-request-id': 'r1',
          }),
          chatRequest({ stream }),
        );
        expect([response.status, response.text(), response.header('content-type')]).toEqual([
          status,
          body,
          'application/json',
        ]);
        expect([response.header('retry-after'), response.header('retry-after-ms')]).toEqual(['30', '30000']);
        expect(response.header('x-should-retry')).toBe('false');
        expect(await gateway.accessLine(response)).toMatchObject({
          outcome: 'upstream_error',
          upstream_status: status,
        });
      }
    },
  );

  test('keeps a date in retry-after, and the status with it', async () => {
    const date = 'Wed, 21 Oct 2099 07:28:00 GMT';
    const response = await answered(json(503, body, { 'retry-after': date }));
    expect([response.status, response.header('retry-after')]).toEqual([503, date]);
  });

  test.each([
    ['nothing', {}],
    ['zero', { 'retry-after': '0' }],
    ['words', { 'retry-after': 'soon', 'retry-after-ms': 'later' }],
    ['a negative number', { 'retry-after': '-5' }],
  ])('that says %s about waiting gets a wait that SDKs can use', async (_name, headers) => {
    const response = await answered(json(429, body, headers));
    expect([response.header('retry-after'), response.header('retry-after-ms')]).toEqual(['1', undefined]);
  });

  test.each([
    ['flat', '{"object":"error","message":"too long","type":"BadRequestError","code":400}'],
    ['in an array', '[{"error":{"code":400,"message":"too long","status":"INVALID_ARGUMENT"}}]'],
    ['as bare text', '{"error":"too long"}'],
    ['as detail', '{"detail":"too long"}'],
  ])('whose error is %s becomes an error object with its text', async (_name, text) => {
    const response = await answered(json(400, text));
    expect([response.status, response.json()]).toEqual([
      400,
      { error: { message: 'too long', type: 'invalid_request_error', param: null, code: null } },
    ]);
  });

  test.each([
    ['HTML', '<html><body>nginx at 10.1.2.3</body></html>', 'text/html'],
    ['nothing', '', 'application/json'],
    ['half an error object', '{"error":{"message":"host 10.1.2.3', 'application/json'],
    ['a number', '5', 'application/json'],
  ])('with %s in it keeps its status and gets our error object', async (_name, text, type) => {
    const response = await answered(json(503, text, { 'content-type': type }));
    expectError(response, 503, 'upstream_error');
    expect(response.text()).not.toContain('10.1.2.3');
  });

  test('labelled as something else is still an error object', async () => {
    const response = await answered(json(400, body, { 'content-type': 'application/octet-stream' }));
    expect([response.status, response.text(), response.header('content-type')]).toEqual([
      400,
      body,
      'application/json',
    ]);
  });

  test.each<[string, Script]>([
    [
      'reset',
      async (c) => {
        await c.send(
          headBytes(
            429,
            { 'content-length': 100, 'retry-after': '7', 'content-type': 'application/json' },
            'x',
          ),
        );
        await c.send('{"error"');
        c.reset();
      },
    ],
    [
      'ended too early',
      async (c) => {
        await c.send(
          headBytes(
            429,
            { 'content-length': 100, 'retry-after': '7', 'content-type': 'application/json' },
            'x',
          ),
        );
        await c.send('{"error"');
        c.close();
      },
    ],
  ])('that is %s keeps its status', async (_name, script) => {
    const response = await answered(script);
    expectError(response, 429, 'upstream_error');
    expect(response.header('retry-after')).toBe('7');
  });

  test.each([401, 403])(
    'of the gateway’s own key (%i) is the operator’s trouble, and its text stays here',
    async (status) => {
      const response = await answered(
        json(status, {
          error: {
            message: 'Incorrect API key provided: sk-proj-****abcd',
            type: 't',
            param: null,
            code: 'invalid_api_key',
          },
        }),
      );
      expectError(response, 406, 'upstream_auth_error');
      expect(response.header('x-should-retry')).toBe('false');
      expect(response.text()).not.toContain('abcd');
      expect(await gateway.accessLine(response)).toMatchObject({
        outcome: 'upstream_auth_error',
        upstream_status: status,
      });
      expect(
        await gateway.metric('tollgate_upstream_attempts_total{upstream="up",outcome="upstream_auth_error"}'),
      ).toBeGreaterThan(0);
    },
  );
});

describe('a refusal that a prompt brought about', () => {
  const flagged = {
    error: { code: 403, message: 'Your input was flagged.', metadata: { reasons: ['violence'] } },
  };
  test.each<[string, number, Script]>([
    ['moderation', 403, json(403, flagged)],
    [
      'a firewall',
      403,
      json(403, '<html>Sorry, you have been blocked</html>', { 'content-type': 'text/html' }),
    ],
    ['a filter', 400, json(400, { error: { message: 'filtered', code: 'content_filter' } })],
  ])('is the caller’s, and opens no breaker: %s', async (_name, status, script) => {
    for (let i = 0; i < 8; i += 1) {
      const response = await answered(script);
      expect(response.status).toBe(status);
      expect(await gateway.accessLine(response)).toMatchObject({ upstream_status: status, attempts: 1 });
    }
    expect((await answered(json(200, completion()))).status).toBe(200);
    expect(
      await gateway.metric('tollgate_upstream_breaker_state{upstream="up",model="upstream-model"}'),
    ).toBe(0);
  });
});

describe('what is no answer to a chat completion is a 502', () => {
  const html = '<html>welcome to 10.1.2.3</html>';
  const wrong: [string, Script][] = [
    ['HTML with 200', json(200, html, { 'content-type': 'text/html' })],
    ['no content type', send(`HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}`)],
    ['plain text', json(200, '{}', { 'content-type': 'text/plain' })],
    ['204', send('HTTP/1.1 204 No Content\r\n\r\n')],
    ['201 with JSON', json(201, completion())],
    ['206', json(206, completion())],
    ['a redirect', json(307, '', { location: 'http://127.0.0.1:1/other' })],
    ['304', send('HTTP/1.1 304 Not Modified\r\n\r\n')],
    ['status 600', json(600, completion())],
    ['status 999', json(999, completion())],
    ['a JSON array', json(200, '[]')],
    ['truncated JSON', json(200, '{"id":"x","choices":[')],
    ['empty JSON body', json(200, '')],
    [
      'JSON cut by the connection',
      async (c) => {
        await c.send(headBytes(200, { 'content-type': 'application/json', 'content-length': 50 }, 'OK'));
        await c.send('{"id":');
        c.close();
      },
    ],
    [
      'JSON reset',
      async (c) => {
        await c.send(headBytes(200, { 'content-type': 'application/json', 'content-length': 50 }, 'OK'));
        await c.send('{"id":');
        c.reset();
      },
    ],
    [
      'JSON in chunks without the last',
      async (c) => {
        await c.head(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' });
        await c.chunk(JSON.stringify(completion()));
        c.close();
      },
    ],
    ['garbage', send('\x16\x03\x01garbage\r\n\r\n')],
    [
      'HTTP/0.9',
      async (c) => {
        await c.send('<html>old</html>');
        c.close();
      },
    ],
    ['HTTP/2 bytes', send(Buffer.from([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100]))],
    ['an SSH greeting', send('SSH-2.0-OpenSSH_9.6\r\n')],
    ['headers of 32 KiB', json(200, completion(), { 'x-big': 'x'.repeat(32 * 1024) })],
    [
      'both length and chunks',
      send(
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}',
      ),
    ],
    [
      'two lengths',
      send(
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}',
      ),
    ],
    [
      'a negative length',
      send('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: -1\r\n\r\n{}'),
    ],
    [
      'a bad chunk size',
      send(
        'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n{}',
      ),
    ],
    [
      'switched protocols',
      send('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
    ],
    [
      'fifty interim answers',
      send(`${'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'.repeat(50)}HTTP/1.1 200 OK\r\n\r\n`),
    ],
    ['an unknown content coding', json(200, completion(), { 'content-encoding': 'foo' })],
  ];

  test.each(wrong)('%s', async (_name, script) => {
    for (const stream of [false, true]) {
      const response = await answered(script, chatRequest({ stream }));
      expectError(response, 502, 'upstream_invalid_response');
      expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_invalid_response' });
      expect(response.text()).not.toContain('10.1.2.3');
    }
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')).toBe(0);
  });

  test('an event stream in answer to a request for none', async () => {
    expectError(await answered(sse([{ choices: [] }])), 406, 'upstream_unusable_response');
  });

  test('a reset or a close before the first byte', async () => {
    for (const script of [reset(), (c: { close(): void }) => c.close()]) {
      expectError(await answered(script), 502, 'upstream_unreachable');
    }
  });

  test('and the process is alive after all of them', async () => {
    expect((await gateway.chat(chatRequest())).status).toBe(200);
  });
});

describe('an interim answer that nobody asked for', () => {
  test.each([
    ['100', 'HTTP/1.1 100 Continue\r\n\r\n'],
    ['102', 'HTTP/1.1 102 Processing\r\n\r\n'],
    ['103', 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'],
    ['several', 'HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 x\r\n\r\nHTTP/1.1 100\r\n\r\n'],
  ])('(%s) does not end the call, split or not', async (_name, interim) => {
    const body = JSON.stringify(completion());
    const all = `${interim}HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    for (const script of [send(all), async (c) => await c.drip(all)] satisfies Script[]) {
      const response = await answered(script);
      expect([response.status, response.interim, response.text()]).toEqual([
        200,
        [],
        body.replace('upstream-model', 'test-model'),
      ]);
    }
  });
});

describe('an error with status 200', () => {
  test.each([
    ['a number', { error: { message: 'm', type: 't', param: null, code: 429 } }, 429],
    ['a string', { error: { message: 'm', code: '503' } }, 503],
    ['in status', { error: { message: 'm', status: 404, code: 'x' } }, 404],
    ['none', { error: { message: 'm', code: 'server_error' } }, 502],
    ['one that is no error', { error: { message: 'm', code: 200 } }, 502],
  ])('as JSON has the status that it names (%s)', async (_name, error, status) => {
    for (const stream of [false, true]) {
      const response = await answered(json(200, error), chatRequest({ stream }));
      expect([response.status, response.json(), response.header('content-type')]).toEqual([
        status,
        error,
        'application/json',
      ]);
      expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error' });
    }
  });

  test('and null as error is a completion', async () => {
    expect((await answered(json(200, { ...completion(), error: null }))).status).toBe(200);
  });
});

describe('a completion in answer to a request for a stream', () => {
  const usage = { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 };
  const text = `{\n  "id": "chatcmpl-1", "object": "chat.completion", "created": 12345678901234567890,\r\n "model": "upstream-model", "system_fingerprint": "fp", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "héllo \\u0041\\n😀", "refusal": null, "reasoning_content": "r"}, "logprobs": {"x": -0.0}, "finish_reason": "stop"},
    {"index": 1, "message": {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1.0}"}},
      {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}, "finish_reason": "tool_calls"},
    {"index": 2, "message": {"role": "assistant", "content": null, "refusal": "no"}, "finish_reason": "content_filter"}
  ], "usage": ${JSON.stringify(usage)}, "x": 1}`;

  const common =
    '"id":"chatcmpl-1","object":"chat.completion.chunk","created":12345678901234567890,"model":"test-model","system_fingerprint":"fp","x":1';
  const chunkLine = (choices: string, more = '') => `data: {${common},"choices":[${choices}]${more}}\n\n`;
  const expected = [
    chunkLine(
      '{"index":0,"delta":{"role": "assistant", "content": "héllo \\u0041\\n😀", "refusal": null, "reasoning_content": "r"},"logprobs":{"x": -0.0},"finish_reason":null}',
    ),
    chunkLine('{"index":0,"delta":{},"finish_reason":"stop"}'),
    chunkLine(
      '{"index":1,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name": "f", "arguments": "{\\"a\\": 1.0}"}},{"index":1,"id":"call_2","type":"function","function":{"name": "g", "arguments": "{}"}}]},"finish_reason":null}',
    ),
    chunkLine('{"index":1,"delta":{},"finish_reason":"tool_calls"}'),
    chunkLine(
      '{"index":2,"delta":{"role": "assistant", "content": null, "refusal": "no"},"finish_reason":null}',
    ),
    chunkLine('{"index":2,"delta":{},"finish_reason":"content_filter"}'),
  ];

  test('becomes one, of the completion’s own bytes', async () => {
    const response = await answered(json(200, text), chatRequest({ stream: true }));
    expect([response.status, response.header('content-type')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
    ]);
    expect(response.text()).toBe([...expected, 'data: [DONE]\n\n'].join(''));
    for (const each of response.frames().slice(0, -1)) expect(() => JSON.parse(each.slice(6))).not.toThrow();
    expect(await gateway.accessLine(response)).toMatchObject({
      outcome: 'ok',
      prompt_tokens: 3,
      completion_tokens: 5,
    });
  });

  test('has the usage chunk when the client asked for it', async () => {
    const response = await answered(
      json(200, text),
      chatRequest({ stream: true, stream_options: { include_usage: true } }),
    );
    expect(response.text()).toBe(
      [...expected, chunkLine('', `,"usage":${JSON.stringify(usage)}`), 'data: [DONE]\n\n'].join(''),
    );
  });

  test('leaves a tool call’s own index, and invents no finish reason', async () => {
    const call = { index: 4, id: 'c', type: 'function', function: { name: 'f', arguments: '' } };
    const message = { role: 'assistant', tool_calls: [call] };
    const response = await answered(
      json(200, { id: 'x', choices: [{ message, finish_reason: null }] }),
      chatRequest({ stream: true }),
    );
    expect(response.frames()).toEqual([
      `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":${JSON.stringify(message)},"finish_reason":null}]}`,
      'data: [DONE]',
    ]);
  });

  test.each([
    ['without choices', { id: 'x' }],
    ['with none', { id: 'x', choices: [] }],
    ['with a choice that has no message', { id: 'x', choices: [{ index: 0 }] }],
  ])('is a 406 %s', async (_name, body) => {
    expectError(
      await answered(json(200, body), chatRequest({ stream: true })),
      406,
      'upstream_unusable_response',
    );
  });
});

describe('an upstream that cannot be reached is no error of the caller', () => {
  async function through(baseUrl: string, code: ErrorCode = 'upstream_unreachable'): Promise<void> {
    await using other = await startGateway({
      upstreams: { up: baseUrl },
      config: { upstreams: { up: { timeouts: { connect: '20s' } } } },
    });
    const response = await other.chat(chatRequest());
    expectError(response, ERRORS[code].status, code);
    expect(await other.accessLine(response)).toMatchObject({ outcome: code });
  }

  test('refused', async () => {
    await through(`http://127.0.0.1:${await closedPort()}/v1`);
  });

  test('unresolvable', async () => {
    await through('http://no-such-host.invalid/v1');
  });

  test('not speaking TLS', async () => {
    await using plain = await HostileUpstream.start({ script: silence(), allowViolations: true });
    await through(plain.baseUrl.replace('http:', 'https:'));
  });

  test('with a certificate that nobody vouches for, and then it is sent no credential', async () => {
    await using tls = await HostileUpstream.start({ tls: makeCertificate() });
    await through(tls.baseUrl, 'upstream_tls');
    expect(tls.sockets.map((socket) => socket.received.length)).toEqual(tls.sockets.map(() => 0));
    expect(tls.requests).toHaveLength(0);
  });
});

test('a stream’s tool calls are untouched', async () => {
  const frames = [
    frame(toolChunk({ index: 0, id: 'a', name: 'f', arguments: '' }, { model: 'test-model' })),
    frame(toolChunk({ index: 1, id: 'b', name: 'g', arguments: '' }, { model: 'test-model' })),
    'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\\"a\\""}}],"content":null,"x":[]}}]}\n\n',
  ];
  const response = await answered(
    sse([...frames, { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }]),
    chatRequest({ stream: true }),
  );
  expect(response.text().startsWith(frames.join(''))).toBe(true);
});
