// A secret exists in one place, the holder's hand. A gateway as a process of its own, at debug level, goes through all
// that can happen to a request; then every byte it wrote, stored, answered and sent upstream is searched for every key,
// credential and prompt there was.
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type CommandResult, type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  completion,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  SSE_HEADERS,
  silence,
  sse,
  standardAnswer,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse, type RequestInput, requestBytes } from '../helpers/raw-client.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { bearer, keyOnPage, statusOf, textField } from './holder.ts';
import { disguises, filesIn, findLeaks, type Place, type Secret } from './leaks.ts';

const PROVIDER_KEY = 'sk-proj-Zq8vT1+mN/4kXw7Lr2Bd9Hs6Yc3Fg5Jp0==';
const PROVIDER_HEADER = 'hdr-7Kd2Wq9Zx4Vb1Nm8Lp5Tr3';
const SECRET = 'hmac-secret-0pQ9oW8eI7rU6tY5';
/** What somebody sends who mixed up two variables. */
const VENDOR_KEY = 'sk-ant-api03-Gh5Jk6Lm7Np8Qr9St0Uv';
const UNKNOWN_KEY = 'deadbeefcafef00d5eedfacade0ddba1';
const PROMPT = 'The patient, Ärztin Müller, said "my PIN is 4711" <quietly>';
const ANSWER = 'Confidential-answer-8842-of-the-model';
/** Put where it must be found, so that the search is known to work. */
const PLANTED = 'planted-5ec2e7f1a9b8c7d6e5f4a3b2';

/** Makes a handler throw an error that drags all of its request along, as careless libraries do. */
const CRASH = `
import http from 'node:http';
const { writeHead } = http.ServerResponse.prototype;
http.ServerResponse.prototype.writeHead = function (status, ...rest) {
  if (status === 200 && this.req?.headers['openai-beta'] === 'crash') {
    const { headers } = this.req;
    throw Object.assign(new TypeError('a fault in the code'), { headers, body: ${JSON.stringify(PROMPT)} });
  }
  return writeHead.call(this, status, ...rest);
};
`;

interface Answered {
  readonly place: Place;
  /** The key that this answer is for: the one place where it may stand. */
  readonly may: string | undefined;
}

describe('what is left behind', () => {
  let files: TempDir;
  let upstream: HostileUpstream;
  let gateway: Gateway;
  const answers: Answered[] = [];
  const commands: Answered[] = [];
  const keys = new Set<string>();
  /** Statuses in the order of the requests, by what was done. */
  const statuses = new Map<string, number>();

  /** Sends a request and keeps all that came back. */
  async function send(what: string, bytes: Buffer, may?: (response: RawResponse) => string): Promise<string> {
    using client = await RawClient.connect(gateway.url);
    await client.write(bytes);
    const response = await client.response();
    const key = may?.(response);
    if (key !== undefined) keys.add(key);
    statuses.set(what, response.status);
    answers.push({ place: { name: `the answer to ${what}`, bytes: client.received.bytes }, may: key });
    return key ?? '';
  }

  const ask = (what: string, input: RequestInput, may?: (response: RawResponse) => string) =>
    send(what, requestBytes(input), may);

  const chat = (what: string, key: string, extra: object = {}, headers: Record<string, string> = {}) =>
    ask(what, {
      headers: { ...bearer(key), ...headers },
      body: chatRequest({ messages: [{ role: 'user', content: PROMPT }], ...extra }),
    });

  async function command(what: string, ...words: string[]): Promise<CommandResult> {
    const result = await runCommand(words, environment());
    const text = `${result.stdout}\n${result.stderr}`;
    const isKey = what === 'issue';
    const key = isKey ? result.stdout.trim() : undefined;
    if (key !== undefined) keys.add(key);
    commands.push({ place: { name: `the output of ${what}`, bytes: Buffer.from(text) }, may: key });
    return result;
  }

  const environment = (): Record<string, string> => ({
    TEST_DIR: gateway.directory.path,
    PROVIDER_KEY,
    PROVIDER_HEADER,
    TOLLGATE_SECRET: SECRET,
  });

  const keysCommand = (what: string, ...words: string[]) =>
    command(what, 'keys', ...words, '--config', gateway.configFile);

  beforeAll(async () => {
    files = await tempDir();
    await writeFile(files.file('crash.mjs'), CRASH);
    upstream = await HostileUpstream.start();
    gateway = await startGateway({
      process: true,
      env: {
        PROVIDER_KEY,
        PROVIDER_HEADER,
        TOLLGATE_SECRET: SECRET,
        NODE_OPTIONS: `--import=${files.file('crash.mjs')}`,
      },
      config: {
        // biome-ignore-start lint/suspicious/noTemplateCurlyInString: the configuration expands it.
        secret: '${TOLLGATE_SECRET}',
        upstreams: {
          up: {
            base_url: upstream.baseUrl,
            api_key: '${PROVIDER_KEY}',
            headers: { 'x-account': '${PROVIDER_HEADER}' },
            timeouts: { headers: '400ms', first_token: '400ms', idle: '400ms' },
          },
          refused: { base_url: 'http://127.0.0.1:9/v1', api_key: '${PROVIDER_KEY}' },
          nowhere: { base_url: 'https://nowhere.invalid/v1', api_key: '${PROVIDER_KEY}' },
        },
        // biome-ignore-end lint/suspicious/noTemplateCurlyInString: the configuration expands it.
        models: {
          'test-model': { targets: [{ upstream: 'up', model: 'm' }] },
          refused: { targets: [{ upstream: 'refused', model: 'm' }] },
          nowhere: { targets: [{ upstream: 'nowhere', model: 'm' }] },
        },
        retry: { attempts: 1 },
        free_keys: { per_ip_per_day: 3 },
        auth: { failures_per_minute: 12 },
      },
    });
    await theWholeLife();
  });

  afterAll(async () => {
    await gateway?.close();
    await upstream?.close();
    await files?.remove();
  });

  async function theWholeLife(): Promise<void> {
    const keyOf = (response: RawResponse) => textField(response.json(), 'key');
    const first = await ask('checkout by JSON', { target: '/checkout', body: { tier: 'Free' } }, keyOf);
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    await ask('checkout by form', { target: '/checkout', headers: form, body: 'tier=Free' }, (response) =>
      keyOnPage(response.text()),
    );
    await ask('a checkout of Pro', { target: '/checkout', body: { tier: 'Pro' } });
    await ask('a key as the tier', { target: '/checkout', body: { tier: first } });
    await ask('a key as the tier in a form', { target: '/checkout', headers: form, body: `tier=${first}` });

    await keysCommand('issue', 'issue', '--tier', 'Pro', '--holder', 'A name');
    const [pro = ''] = [...keys].slice(-1);
    expect(await statusOf(gateway.url, pro)).toBe(200);
    await keysCommand('list', 'list');
    await keysCommand('show', 'show', pro.slice(0, 8));
    await keysCommand('show as JSON', 'show', pro.slice(0, 8), '--json');
    await keysCommand('show with a whole key', 'show', pro);
    await keysCommand('a key as the name', 'issue', '--tier', 'Pro', '--holder', `for ${pro}`);
    await keysCommand('a key as the tier', 'issue', '--tier', pro);
    await keysCommand('a key as the command', pro);
    await command('check', 'check', '--config', gateway.configFile);

    upstream.always(json(200, completion({ content: ANSWER })));
    await chat('a completion', pro);
    upstream.always(sse([contentChunk(ANSWER)]));
    await chat('a stream', pro, { stream: true });
    upstream.always(standardAnswer);
    await ask('the models', { method: 'GET', target: '/v1/models', headers: bearer(pro) });
    await ask('a key in the query', {
      method: 'GET',
      target: `/v1/models?key=${pro}&authorization=Bearer%20${pro}`,
      headers: bearer(pro),
    });
    await ask('a key in a path', { method: 'GET', target: `/keys/${pro}`, headers: bearer(pro) });
    await ask('health', { method: 'GET', target: '/health', headers: bearer(pro) });
    await ask('the pricing page', { method: 'GET', target: '/pricing', headers: bearer(pro) });

    await ask('no key', { method: 'GET', target: '/v1/models' });
    await chat('an unknown key', UNKNOWN_KEY);
    await chat("another vendor's key", VENDOR_KEY);
    await chat('a key in upper case', pro.toUpperCase());
    await chat('a key and a space', `${pro} `);
    await ask('Basic', {
      method: 'GET',
      target: '/v1/models',
      headers: { authorization: `Basic ${Buffer.from(`user:${pro}`).toString('base64')}` },
    });
    const twice = [
      ['authorization', `Bearer ${pro}`],
      ['authorization', `Bearer ${UNKNOWN_KEY}`],
    ] as const;
    await ask('two keys', { method: 'GET', target: '/v1/models', headers: twice });
    const line = `GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${pro}`;
    await send('a key with a control character', Buffer.from(`${line}\x01\r\n\r\n`, 'latin1'));
    await send('a key in too large a head', Buffer.from(`${line}\r\nx: ${pro.repeat(1000)}\r\n\r\n`));
    await ask('a body that is no JSON', { headers: bearer(pro), body: `{"model": "${PROMPT} ${pro}` });
    await ask('a body that is no text', {
      headers: { ...bearer(pro), 'content-type': 'text/plain' },
      body: `${PROMPT} ${pro}`,
    });
    await chat('a wrong type', pro, { stream: PROMPT });
    await chat('an unknown model', pro, { model: 'no-such-model' });

    upstream.always(
      json(
        401,
        upstreamError(`Incorrect API key provided: ${PROVIDER_KEY.slice(0, 8)}****${PROVIDER_KEY.slice(-4)}`),
      ),
    );
    await chat('401 of the upstream, key masked', pro);
    upstream.always(json(401, upstreamError(`Incorrect API key provided: ${PROVIDER_KEY}`)));
    await chat('401 of the upstream, key in full', pro);
    upstream.always(json(403, upstreamError(`Account ${PROVIDER_HEADER} may not do this`)));
    await chat('403 of the upstream, streamed', pro, { stream: true });
    upstream.always([
      head(500, { 'content-type': 'text/html', 'x-debug': PROVIDER_KEY, connection: 'close' }),
      (c) => c.send(`<pre>Authorization: Bearer ${PROVIDER_KEY}\n${PROMPT}</pre>`),
      (c) => c.close(),
    ]);
    await chat('500 of the upstream with its request in HTML', pro);
    upstream.always(json(200, `{"broken ${PROVIDER_KEY}`));
    await chat('an answer that is no JSON', pro);
    upstream.always([reset()]);
    await chat('a reset of the upstream', pro);
    upstream.always([head(200, SSE_HEADERS), chunk(frame(contentChunk(ANSWER))), reset()]);
    await chat('a stream that breaks', pro, { stream: true });
    upstream.always(silence());
    await chat('a timeout', pro);
    await chat('a timeout of a stream', pro, { stream: true });
    await chat('connection refused', pro, { model: 'refused' });
    await chat('a name that does not resolve', pro, { model: 'nowhere' });

    upstream.always(standardAnswer);
    await chat('a crash of the handler', pro, {}, { 'openai-beta': 'crash' });
    await ask('a crash elsewhere', {
      method: 'GET',
      target: '/v1/models',
      headers: { ...bearer(pro), 'openai-beta': 'crash' },
    });
    {
      using leaver = await gateway.open(
        chatRequest({ stream: true, messages: [{ role: 'user', content: PROMPT }] }),
        { key: pro },
      );
      leaver.reset();
    }

    const rotated = await ask('a rotation', { target: '/admin/keys/rotate', headers: bearer(pro) }, keyOf);
    await chat('the key from before the rotation', pro);
    await ask('a rotation with the old key', { target: '/admin/keys/rotate', headers: bearer(pro) });
    await chat('the key from after the rotation', rotated);
    await keysCommand('revoke', 'revoke', rotated.slice(0, 8), '--reason', 'it is time');
    await until(async () => {
      await chat('a revoked key', rotated);
      return statuses.get('a revoked key') === 401;
    }, 'the refusal of the revoked key');
    for (let turn = 0; turn < 12; turn += 1) {
      await chat('a guess', UNKNOWN_KEY.replace('dead', turn.toString(16).padStart(4, '0')));
    }

    // The search has to find this, in the log and in the store.
    await ask('the planted text as request id', {
      method: 'GET',
      target: '/health',
      headers: { 'x-request-id': PLANTED },
    });
    await keysCommand(
      'issue',
      'issue',
      '--tier',
      'Free',
      '--holder',
      Buffer.from(`_${PLANTED}`).toString('base64'),
    );
    await gateway.logLine((each) => each['request_id'] === PLANTED);
  }

  const everyKey = (): Secret[] =>
    [...keys].map((text, index) => ({ name: `key ${index + 1}`, text, publicPrefix: 8 }));

  const everySecret = (): Secret[] => [
    ...everyKey(),
    { name: 'the key that nobody has', text: UNKNOWN_KEY, publicPrefix: 8 },
    { name: "the other vendor's key", text: VENDOR_KEY },
    { name: 'the credential of the upstream', text: PROVIDER_KEY },
    { name: 'the account header of the upstream', text: PROVIDER_HEADER },
    { name: 'the secret', text: SECRET },
    { name: 'the prompt', text: PROMPT },
  ];

  test('it did all that', () => {
    const expected: Record<string, number> = {
      'checkout by JSON': 201,
      'checkout by form': 201,
      'a completion': 200,
      'a stream': 200,
      'a key in the query': 200,
      'an unknown key': 401,
      "another vendor's key": 401,
      'two keys': 400,
      'a key with a control character': 400,
      'a key in too large a head': 431,
      'a body that is no JSON': 400,
      'an unknown model': 404,
      '401 of the upstream, key in full': 406,
      '403 of the upstream, streamed': 406,
      'a timeout': 504,
      'connection refused': 502,
      'a crash elsewhere': 500,
      'a rotation': 200,
      'the key from before the rotation': 401,
      'the key from after the rotation': 200,
      'a revoked key': 401,
      'a guess': 429,
    };
    expect(Object.fromEntries(Object.keys(expected).map((what) => [what, statuses.get(what)]))).toEqual(
      expected,
    );
    expect(keys.size).toBe(5);
    expect(gateway.output).toContain('a fault in the code');
  });

  test('the search would find it: what was planted is found in log, answer and store', async () => {
    const planted = [{ name: 'the planted text', text: PLANTED }];
    const places = [
      { name: 'the log', bytes: Buffer.from(gateway.output) },
      ...answers.map(({ place }) => place),
      ...(await filesIn(gateway.directory.path)),
    ];
    const found = findLeaks(planted, places).join('\n');
    expect(found).toContain('the planted text (as it is) in the log');
    expect(found).toContain('the planted text (as it is) in the answer to the planted text as request id');
    expect(found).toMatch(/the planted text \(in base64, shifted by 1\) in file tollgate\.db/);
  });

  test('nothing is in the log or on the console', () => {
    expect(gateway.output.length).toBeGreaterThan(5_000);
    const secrets = [...everySecret(), { name: 'the answer of the model', text: ANSWER }];
    expect(findLeaks(secrets, [{ name: 'the log', bytes: Buffer.from(gateway.output) }])).toEqual([]);
  });

  test('nothing is in the store, the files beside it, or the configuration', async () => {
    const places = await filesIn(gateway.directory.path);
    expect(places.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['file tollgate.db', 'file tollgate.db-wal', 'file config.yaml']),
    );
    expect(findLeaks([...everySecret(), { name: 'the answer of the model', text: ANSWER }], places)).toEqual(
      [],
    );
  });

  test('nothing is in the metrics', async () => {
    const text = await gateway.metrics();
    expect(text).toContain('tollgate_requests_total');
    expect(findLeaks(everySecret(), [{ name: '/metrics', bytes: Buffer.from(text) }])).toEqual([]);
  });

  test('nothing is in answers, headers included, but a new key in the one that is for it', () => {
    expect(answers.length).toBeGreaterThan(40);
    for (const { place, may } of answers) {
      const others = everySecret().filter(({ text }) => text !== may);
      expect(findLeaks(others, [place])).toEqual([]);
      if (may === undefined) continue;
      const [head = '', body = ''] = place.bytes.toString().split('\r\n\r\n');
      expect(head).not.toContain(may);
      expect(body).toContain(may);
    }
  });

  test('nothing is in the output of commands but a new key on stdout', () => {
    expect(commands.length).toBeGreaterThan(8);
    for (const { place, may } of commands) {
      expect(
        findLeaks(
          everySecret().filter(({ text }) => text !== may),
          [place],
        ),
      ).toEqual([]);
      if (may !== undefined) expect(place.bytes.toString().split(may).length).toBe(2);
    }
  });

  test('upstreams were sent their own credential and no key', () => {
    const places = upstream.sockets.map((socket) => ({
      name: `connection ${socket.number}`,
      bytes: socket.received.bytes,
    }));
    expect(places.length).toBeGreaterThan(0);
    expect(findLeaks([...everyKey(), { name: 'the secret', text: SECRET }], places)).toEqual([]);
    expect(upstream.requests.every((each) => each.header('authorization') === `Bearer ${PROVIDER_KEY}`)).toBe(
      true,
    );
  });
});

test('a credential that stands in a faulty configuration is not quoted with the fault', async () => {
  await using directory = await tempDir();
  const file = directory.file('config.yaml');
  const faulty = [
    `upstreams: { up: { base_url: "https://user:${VENDOR_KEY}@vendor.test/v1", api_key: ${PROVIDER_KEY}, tmeouts: {} } }`,
    `models: { m: { targets: [{ upstream: up, model: m, wieght: ${VENDOR_KEY} }] } }`,
    `secret: "${SECRET}\\q"`,
  ];
  const secrets = [
    { name: "the vendor's key", text: VENDOR_KEY },
    { name: 'the credential', text: PROVIDER_KEY },
    { name: 'the secret', text: SECRET },
  ];
  for (const [count, words] of [
    [3, ['check']],
    [2, ['check']],
    [2, ['serve']],
    [1, ['keys', 'list']],
  ] as const) {
    await writeFile(file, faulty.slice(0, count).join('\n'));
    {
      const { code, stdout, stderr } = await runCommand([...words, '--config', file]);
      expect(code).toBe(1);
      expect(stderr).toMatch(/config\.yaml:\d+:\d+: /);
      expect(findLeaks(secrets, [{ name: words.join(' '), bytes: Buffer.from(stdout + stderr) }])).toEqual(
        [],
      );
    }
  }
});

describe('the search itself', () => {
  const secret: Secret = { name: 'it', text: 'a1b2c3d4e5f60718293a4b5c6d7e8f90', publicPrefix: 8 };

  test('finds every disguise, in the middle of other bytes', () => {
    for (const [form, disguise] of disguises(secret)) {
      const bytes = Buffer.concat([
        Buffer.from([0xff, 0x00, 0x80]),
        Buffer.from(disguise),
        Buffer.from([0xfe]),
      ]);
      expect(findLeaks([secret], [{ name: 'a place', bytes }])).toContain(`it (${form}) in a place`);
    }
  });

  test.each([0, 1, 2, 3, 4, 5])('finds it in base64 of a text that has %i characters in front', (before) => {
    const around = `${'x'.repeat(before)}${secret.text} and more`;
    for (const coding of ['base64', 'base64url'] as const) {
      const bytes = Buffer.from(Buffer.from(around).toString(coding));
      expect(findLeaks([secret], [{ name: 'a place', bytes }]).length).toBeGreaterThan(0);
    }
  });

  test('finds half of it, but not its public prefix', () => {
    const find = (text: string) => findLeaks([secret], [{ name: 'a place', bytes: Buffer.from(text) }]);
    expect(find(`…${secret.text.slice(18)}`)).toEqual(['it (its second half) in a place']);
    expect(find(`key ${secret.text.slice(0, 8)}…`)).toEqual([]);
  });
});
