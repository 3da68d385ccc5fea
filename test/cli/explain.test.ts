// `tollgate explain`: the explanation of a configuration, the requests to a running gateway, and what is never shown.
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { loadConfig } from '../../src/config/load-config.ts';
import { AdminServer } from '../../src/http/admin/admin-listener.ts';
import { Health } from '../../src/http/admin/health.ts';
import { main } from '../../src/main.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { UpstreamState } from '../../src/upstream/state/upstream-state.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { targetSample, upstreamSample } from '../helpers/upstream-states.ts';
import { PATIENCE, type TempDir, tempDir } from '../helpers/wait.ts';
import { collector } from './collector.ts';

const SECRETS = {
  OPENAI_KEY: 'sk-live-openai-0123456789',
  AZURE_KEY: 'azure-9876543210',
  SIGNATURE: 'signature-of-the-query',
  HASHING: 'the-secret-of-the-keyed-hash-of-all-keys',
};

const YAML = `
secret: \${HASHING}
upstreams:
  openai:
    base_url: https://api.openai.com/v1/
    api_key: \${OPENAI_KEY}
    headers: { OpenAI-Project: "proj-\${SIGNATURE}" }
    timeouts: { connect: 2s, first_token: 1500ms }
    max_concurrency: 7
  azure:
    base_url: https://res.openai.azure.com:8443/openai/deployments/d?region=\${SIGNATURE}
    headers: { api-key: "\${AZURE_KEY}" }
    query: { api-version: "2024-10-21", sig: "\${SIGNATURE}" }
    stream_usage: off
    health: { path: "/up?sig=\${SIGNATURE}", interval: 20s }
  bare:
    base_url: https://bare.example?\${SIGNATURE}
  demo: { builtin: echo }
models:
  gpt-4o:
    targets:
      - { upstream: demo, model: echo, priority: 2 }
      - { upstream: openai, model: gpt-4o-2024, weight: 3 }
      - { upstream: azure, model: d, weight: 1 }
      - { upstream: bare, model: never, weight: 0 }
    tiers: [Lite, Pro]
  gpt-4o-mini:
    targets: [{ upstream: demo, model: mini }, { upstream: openai, model: mini }]
    response_model: upstream
    balance: latency
    hedge: { after: 1500ms }
  "meta/*": { targets: [{ upstream: openai, model: "m/*:free" }, { upstream: demo, model: fixed }] }
  "meta/llama-*": { targets: [{ upstream: openai, model: "*" }] }
  bare: { targets: [{ upstream: bare, model: b }], body: { refuse: [models], remove: [user] } }
  changed:
    targets:
      - { upstream: openai, model: mini, forward_headers: [x-cost-center] }
      - upstream: bare
        model: o4
        priority: 2
        body:
          rename: { max_tokens: max_completion_tokens }
          remove: [temperature, stream_options]
          set: { metadata.region: "\${SIGNATURE}" }
        price: { input: 2.5, cached_input: 1, output: 10 }
    price: { input: 1, output: 2 }
    body: { default: { user: team }, refuse: [service_tier] }
  vectors: { targets: [{ upstream: openai, model: v }], endpoints: [embeddings, images] }
  numbers: { targets: [{ upstream: openai, model: v }], endpoints: [embeddings] }
tiers:
  Lite: { requests_per_minute: 20, concurrency: 2, price: { amount: 900, currency: usd, interval: month } }
  Free: { endpoints: [chat, images] }
retry: { attempts: 4, budget: 0.25, after_send: true, deadline: 90s }
`;

let dir: TempDir;
let configFile: string;
beforeEach(async () => {
  dir = await tempDir();
  configFile = dir.file('config.yaml');
  configure('0');
});
afterEach(() => dir.remove());

function configure(adminPort: string, host = '127.0.0.1') {
  writeFileSync(configFile, `admin: { host: "${host}", port: ${adminPort} }\n${YAML}`);
}

/** What one run said, after a look for what it must never say. */
async function explain(argv: readonly string[], patienceMs = PATIENCE, stdin: readonly string[] = []) {
  const [out, err] = [collector(), collector()];
  const io = {
    stdout: out.stream,
    stderr: err.stream,
    env: SECRETS,
    stdin: Readable.from(stdin),
    gatewayTimeoutMs: patienceMs,
  };
  const code = await main(['explain', ...argv, '--config', configFile], io);
  const [stdout, stderr] = [out.text(), err.text()];
  for (const secret of [...Object.values(SECRETS), '2024-10-21', 'Bearer']) {
    expect(stdout + stderr).not.toContain(secret);
  }
  return { code, out: stdout, err: stderr };
}

async function asJson(...argv: string[]) {
  const { code, out } = await explain([...argv, '--json']);
  const parsed: unknown = JSON.parse(out);
  return { code, said: parsed };
}

describe('from the configuration alone', () => {
  test('prints the endpoints of a model, for a tier and for all', async () => {
    expect(await asJson('--model', 'vectors')).toMatchObject({
      code: 0,
      said: { endpoints: ['embeddings', 'images'], targets: [{ path: '/v1/embeddings' }] },
    });
    expect(await asJson('--model', 'vectors', '--tier', 'Free')).toMatchObject({
      code: 0,
      said: { endpoints: ['images'] },
    });
    expect((await explain(['--model', 'vectors', '--tier', 'Lite'])).out).toMatch(
      /for +embeddings, images\n/,
    );
    const none = await explain(['--model', 'numbers', '--tier', 'Free']);
    expect([none.code, none.out]).toEqual([
      1,
      expect.stringMatching(/Free may not use it.*\n.*\n? *for +nothing/),
    ]);
  });

  test('lists the targets in order, with shares and destinations', async () => {
    const { code, said } = await asJson('--model', 'gpt-4o', '--tier', 'Lite');
    expect(code).toBe(0);
    expect(said).toMatchObject({
      config: { file: configFile, hash: loadConfig(configFile, SECRETS).hash },
      model: 'gpt-4o',
      match: { kind: 'exact', name: 'gpt-4o' },
      tiers: ['Lite', 'Pro'],
      tier: { name: 'Lite', allowed: true, offered: true },
      response_model: 'alias',
      retry: { attempts: 4, budget: 0.25, after_send: true, deadline: 90_000 },
      balance: 'weighted',
      hedge: null,
      limits: { Lite: { requests_per_minute: 20, concurrency: 2 } },
      server: { url: null, same_config: null, upstreams: false },
    });
    expect(Reflect.get(Object(said), 'targets')).toMatchObject([
      {
        upstream: 'openai',
        model: 'gpt-4o-2024',
        priority: 1,
        weight: 3,
        share: 0.75,
        scheme: 'https',
        host: 'api.openai.com',
        path: '/v1/chat/completions',
        headers: ['authorization', 'openai-project'],
        stream_usage: 'inject',
        timeouts: { connect: 2000, first_token: 1500, idle: 600_000, total: 3_600_000 },
        max_concurrency: 7,
        health: null,
        live: null,
      },
      {
        upstream: 'azure',
        share: 0.25,
        host: 'res.openai.azure.com:8443',
        path: '/openai/deployments/d/chat/completions?region=****&api-version=****&sig=****',
        headers: ['api-key'],
        stream_usage: 'off',
        health: { path: '/up?sig=****', interval: 20_000 },
      },
      { upstream: 'bare', weight: 0, share: 0 },
      { upstream: 'demo', model: 'echo', priority: 2, share: 1, builtin: 'echo', host: null, path: null },
    ]);
  });

  test('prints it as text', async () => {
    const { code, out, err } = await explain(['--model', 'gpt-4o']);
    expect([code, err]).toEqual([0, '']);
    for (const line of [
      '  tiers       Lite, Pro may use it',
      '  limits      Lite: requests per minute 20, concurrency 2',
      '  limits      Pro: not offered',
      '  response    the client reads the model name "gpt-4o"',
      '  gateway     no state to show: admin.port is 0, so its port is unknown',
      '  openai  (weight 3: 75%)',
      '    to          https://api.openai.com/v1/chat/completions',
      '    as model    "gpt-4o-2024"',
      '    headers     authorization, openai-project (values hidden)',
      '    timeouts    connect 2s, first token 1500ms, idle 10m, total 1h',
      '    usage       not requested',
      '    health      /up?sig=**** checked every 20s',
      '  balance     within a priority by weight',
      '  bare  (weight 0: no requests)',
      'priority 2',
      '    to          built in (echo)',
    ]) {
      expect(out.split('\n')).toContain(line);
    }
    expect(out).toMatch(
      /attempts +at most 4 for one request within 90s \(once an upstream may have begun: one more\); .* 25% /,
    );
    expect(out.match(/^priority/gm)).toHaveLength(2);
    expect(out).not.toContain('    now ');
    expect((await explain(['--model', 'gpt-4o-mini'])).out).toContain('model name that the upstream sends');
  });

  test.each([
    ['gpt-4o-mini', { kind: 'exact', name: 'gpt-4o-mini' }, ['mini', 'mini']],
    ['meta/x:1', { kind: 'pattern', name: 'meta/*', taken: 'x:1' }, ['m/x:1:free', 'fixed']],
    ['meta/llama-3', { kind: 'pattern', name: 'meta/llama-*', taken: '3' }, ['3']],
    ['meta/$&', { kind: 'pattern', name: 'meta/*', taken: '$&' }, ['m/$&:free', 'fixed']],
    ['meta/*', { kind: 'pattern', name: 'meta/*', taken: '*' }, ['m/*:free', 'fixed']],
  ])('prints what %s matches and becomes', async (model, match, models) => {
    const { code, said } = await asJson('--model', model);
    expect(code).toBe(0);
    expect(said).toMatchObject({ match, targets: models.map((each) => ({ model: each })) });
    expect(Reflect.get(Object(said), 'targets')).toHaveLength(models.length);
  });

  test('shows the order of the targets for a cache key', async () => {
    const targets =
      '[{ upstream: openai, model: a }, { upstream: azure, model: b }, { upstream: openai, model: c, priority: 2 }]';
    writeFileSync(
      configFile,
      YAML.replace('models:\n', `models:\n  sticky: { balance: affinity, targets: ${targets} }\n`),
    );
    const orders = new Set<unknown>();
    for (let i = 0; i < 12; i += 1) {
      const { said } = await asJson('--model', 'sticky', '--cache-key', `key ${i}`);
      const order = Reflect.get(Object(said), 'order');
      expect(order).toHaveLength(3);
      expect(order.at(-1)).toBe('openai/c');
      orders.add(String(order));
    }
    expect(orders.size).toBe(2);
    const { out } = await explain(['--model', 'sticky', '--cache-key', 'k']);
    expect(out).toMatch(/ order +(?:openai\/a, then azure\/b|azure\/b, then openai\/a), then openai\/c\n/);
    expect(out).toContain('prompt_cache_key, x-session-id, ids');
    expect((await explain(['--model', 'gpt-4o', '--cache-key', 'k'])).code).toBe(2);
  });

  test('prints balance and hedge of a model', async () => {
    const { out } = await explain(['--model', 'gpt-4o-mini']);
    expect(out).toContain(
      '  balance     within a priority, of two drawn by weight the faster one\n' +
        '  hedge       a second target after 1500ms without output\n',
    );
    expect((await asJson('--model', 'gpt-4o-mini')).said).toMatchObject({
      balance: 'latency',
      hedge: { after: 1500 },
    });
    expect((await explain(['--model', 'gpt-4o'])).out).not.toContain('  hedge ');
  });

  test('says which members are refused and changed', async () => {
    const { out } = await explain(['--model', 'bare']);
    expect(out).toMatch(/^ {2}body +refuses models$/m);
    expect(out).toMatch(/^ {4}body +removes user$/m);
    expect((await asJson('--model', 'bare')).said).toMatchObject({
      refuse: ['models'],
      targets: [{ body: ['removes user'] }],
    });
    expect((await explain(['--model', 'gpt-4o'])).out).not.toContain('  body ');
  });

  describe('with a body', () => {
    const BODY = '{"model":"changed",\n "max_tokens":5,"temperature":0.0,"stream":true,"messages":[]}';
    const FIRST =
      '{"model":"mini",\n "max_tokens":5,"temperature":0.0,"stream":true,"messages":[],"user":"team","stream_options":{"include_usage":true}}';
    const SECOND =
      '{"model":"o4",\n "max_completion_tokens":5,"stream":true,"messages":[],"metadata":{"region":"****"},"user":"team"}';
    const ask = (body: string, ...argv: string[]) => explain(['--body', '-', ...argv], PATIENCE, [body]);

    test('says what each target would be sent, byte for byte, and no value of the environment', async () => {
      const { code, out } = await ask(BODY);
      expect(code).toBe(0);
      expect(out).toContain(`    sends       ${FIRST.replace('\n', `\n${' '.repeat(16)}`)}\n`);
      expect(out).toContain(`    sends       ${SECOND.replace('\n', `\n${' '.repeat(16)}`)}\n`);
      const { out: text } = await ask(BODY, '--json');
      expect(JSON.parse(text)).toMatchObject({ targets: [{ sends: FIRST }, { sends: SECOND }] });
    });

    test('reads a file, of any size', async () => {
      const file = dir.file('body.json');
      const long = 'word '.repeat(40_000);
      writeFileSync(file, `{"model":"changed","messages":[],"x":"${long}"}`);
      const { out } = await explain(['changed', '--body', file, '--json']);
      expect(JSON.parse(out).targets[1].sends).toBe(
        `{"model":"o4","messages":[],"x":"${long}","metadata":{"region":"****"},"user":"team"}`,
      );
      const { out: short } = await explain(['--body', file]);
      expect(short.length).toBeLessThan(40_000);
      expect(short).toContain('bytes; --json has all)');
    });

    test('says how a request would be rejected', async () => {
      for (const [body, code] of [
        ['{"model":"changed","service_tier":1}', 'unsupported_parameter'],
        ['{"model":"changed","max_tokens":1,"max_completion_tokens":1}', 'duplicate_parameter'],
        ['{"model":"changed","metadata":1}', 'invalid_type'],
        ['{"model":"changed"', 'invalid_json'],
        ['{}', 'missing_required_parameter'],
      ] as const) {
        const answer = await ask(body);
        expect([answer.code, answer.out, answer.err]).toEqual([
          1,
          '',
          expect.stringContaining(`the request gets a 400 ${code}: `),
        ]);
        expect(JSON.parse((await ask(body, '--json')).out)).toMatchObject({
          rejected: { status: 400, code },
        });
      }
      expect((await ask('{"model":"nothing"}')).err).toContain('no model of ');
    });

    test('reads it as the endpoint does that is called', async () => {
      const { out } = await ask('{"model":"changed","stream":true,"input":"x"}', '--endpoint', 'responses');
      expect(out).toContain('https://api.openai.com/v1/responses\n');
      expect(out).toContain('sends       {"model":"mini","stream":true,"input":"x","user":"team"}\n');
    });

    test.each([
      [
        ['--body', '/nowhere/body.json'],
        'the file /nowhere/body.json cannot be read: ENOENT: no such file or directory',
      ],
      [['--body', '-', '--model', 'gpt-4o'], 'names another model than --model'],
      [['--body', '-', '--endpoint', 'chart'], 'unknown endpoint'],
      [['changed', '--model', 'changed'], 'give either MODEL or --model'],
    ])('%j is wrong usage', async (argv, message) => {
      const { code, err } = await explain(argv, PATIENCE, [BODY]);
      expect([code, err]).toEqual([2, expect.stringContaining(message)]);
    });

    test('escapes what could steer a terminal', async () => {
      const { out } = await ask('{"model":"gpt-4o","x":"\u202e\u009b"}');
      expect(out).toContain('"x":"\\u{202e}\\u{9b}"');
    });
  });

  test('says what targets are forwarded and what they charge', async () => {
    const { out } = await explain(['changed']);
    expect(out).toMatch(/^ {4}forwards +x-cost-center of the client$/m);
    expect(out).toMatch(/^ {4}price +1 in, 2 out per million tokens$/m);
    expect(out).toMatch(/^ {4}price +2.5 in, 1 cached, 10 out per million tokens$/m);
    expect((await asJson('changed')).said).toMatchObject({
      targets: [
        { forward_headers: ['x-cost-center'], price: { input: 1 }, sends: null },
        { forward_headers: [], price: { input: 2.5 }, sends: null },
      ],
    });
    const summary = describeConfig(loadConfig(configFile, SECRETS));
    expect(summary).toContain('openai: mini (forwards x-cost-center)');
    expect(summary).toMatch(
      /bare: o4 \(removes temperature, stream_options; renames max_tokens to max_completion_tokens; sets metadata.region: \*{4}; price 2.5 in, 1 cached, 10 out per million tokens\)/,
    );
  });

  test('shows the price in force of each target, of a list too, and later ones', async () => {
    const list =
      'upstreams: { up: { x: { input: 1, output: 2 }, "y*": [{ input: 3, output: 4, from: 9999-01-01 }] } }';
    const targets = '[{ upstream: up, model: x }, { upstream: up, model: y-1 }, { upstream: up, model: z }]';
    const lines = [
      'currency: eur',
      'prices: prices.yaml',
      'upstreams: { up: { builtin: echo } }',
      `models: { m: { targets: ${targets} }, "p/*": { targets: [{ upstream: up, model: "*" }] } }`,
    ];
    writeFileSync(dir.file('prices.yaml'), list);
    writeFileSync(configFile, lines.join('\n'));
    const { out } = await explain(['m']);
    expect(out.match(/^ {4}price .*$/gm)).toEqual([
      '    price       1 in, 2 out per million tokens (EUR)',
      '    price       none yet; from 9999-01-01 3 in, 4 out per million tokens (EUR)',
    ]);
    expect((await asJson('m')).said).toMatchObject({
      currency: 'EUR',
      targets: [
        { price: { input: 1, output: 2 }, later_prices: [] },
        { price: null, later_prices: [{ from: '9999-01-01', input: 3, output: 4 }] },
        { price: null, later_prices: [] },
      ],
    });
    expect((await asJson('p/x')).said).toMatchObject({ targets: [{ price: { input: 1, output: 2 } }] });
  });

  test('prints the match as text', async () => {
    expect((await explain(['--model', 'gpt-4o'])).out).toContain('  matches     the model of this name\n');
    expect((await explain(['--model', 'meta/x'])).out).toContain('the pattern "meta/*"; * matches "x"\n');
  });

  test('reports that a tier may not use it, and fails', async () => {
    const { code, out } = await explain(['--model', 'gpt-4o', '--tier', 'Free']);
    expect(code).toBe(1);
    expect(out).toContain('Free may not use it: requests get a 404 model_not_found (Lite, Pro may)');
    expect(out).toContain('openai  (weight 3: 75%)');
    expect((await asJson('--model', 'gpt-4o', '--tier', 'Free')).said).toMatchObject({
      tier: { name: 'Free', allowed: false, offered: true },
      limits: { Free: {} },
    });
  });

  test.each([
    ['gpt4o', ['gpt-4o']],
    ['gpt-4o-m', ['gpt-4o', 'gpt-4o-mini']],
    ['met/x', ['meta/*']],
    ['meta/', ['meta/*']],
    ['entirely-different', []],
  ])('reports an unknown model %s and suggests near names', async (model, near) => {
    const { code, out, err } = await explain(['--model', model, '--json']);
    expect([code, JSON.parse(out)]).toEqual([1, { model, match: null, nearest: near }]);
    expect(err).toContain(`no model of ${configFile} matches "${model}"`);
    expect(err).toContain(
      near.length === 0 ? '`tollgate check` lists its models' : `did you mean "${near[0] ?? ''}"`,
    );
    expect(await explain(['--model', model])).toEqual({ code: 1, out: '', err });
  });

  test('hides a query value without a name', async () => {
    const { said } = await asJson('--model', 'bare');
    expect(said).toMatchObject({
      targets: [{ host: 'bare.example', path: '/chat/completions?****', headers: [] }],
    });
  });

  test('prints no control characters of a name', async () => {
    const { out } = await explain(['--model', 'meta/a\u001b[31m\u009b\u202eb']);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what this looks for
    expect(out).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    expect(out).toContain('"meta/a\\u001b[31m\\u{9b}\\u{202e}b"');
  });

  test('reports the faults of a configuration', async () => {
    writeFileSync(configFile, 'upstreams: {}\n');
    const { code, out, err } = await explain(['--model', 'x']);
    expect([code, out]).toEqual([1, '']);
    expect(err).toContain(`${configFile}:1:1: `);
  });

  test.each([
    [[], '--model is missing'],
    [['--model', 'x', '--tier', 'Gold'], 'unknown tier: it is one of Free, Lite, Pro'],
    [['--model', 'x', '--jsn'], 'unknown option --jsn (did you mean --json?)'],
  ])('wrong usage: %j', async (argv, message) => {
    const { code, out, err } = await explain(argv);
    expect([code, out]).toEqual([2, '']);
    expect(err).toBe(`tollgate explain: ${message}; see tollgate explain --help\n`);
  });

  test('--help prints the usage', async () => {
    expect(await explain(['--help'])).toMatchObject({
      code: 0,
      out: expect.stringContaining('Usage:'),
      err: '',
    });
  });
});

describe('with a running gateway', () => {
  let admin: AdminServer | undefined;
  const others: Server[] = [];
  afterEach(async () => {
    await admin?.close();
    admin = undefined;
    for (const server of others.splice(0)) {
      if (server instanceof http.Server) server.closeAllConnections();
      server.close();
    }
  });

  const open = { breaker: 'open', cool_down: { cause: 'open', ms: 8200.5, admits_sole: true } } as const;
  const STATES = [
    upstreamSample('openai', [
      targetSample('another', { in_flight: 99 }),
      targetSample('gpt-4o-2024', { breaker: 'half_open', in_flight: 4 }),
    ]),
    upstreamSample('another', [targetSample('d', { in_flight: 99 })]),
    upstreamSample('azure', [targetSample('d', open)]),
    upstreamSample('demo', [targetSample('echo')]),
  ];

  /** A real admin listener at the address of the configuration. */
  async function serve(hash: () => string, upstreams?: () => readonly UpstreamState[], host = '127.0.0.1') {
    const health = new Health({ version: '1', configHash: hash, draining: () => true, checks: {} });
    admin = new AdminServer(createMetrics(), health, upstreams && { upstreams });
    const { port } = await admin.listen('127.0.0.1', 0);
    configure(String(port), host);
    return port;
  }

  const own = () => loadConfig(configFile, SECRETS).hash;

  /** Somebody else at that address. */
  async function occupy(server: Server) {
    others.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    configure(String(port));
    return port;
  }

  test('shows the state of each target', async () => {
    const port = await serve(own, () => STATES);
    const { code, said } = await asJson('--model', 'gpt-4o');
    expect(code).toBe(0);
    expect(said).toMatchObject({
      server: { url: `http://127.0.0.1:${port}`, config_hash: own(), same_config: true, upstreams: true },
      targets: [
        { upstream: 'openai', live: { state: 'half_open', in_flight: 4, until_ms: 0 } },
        { upstream: 'azure', live: { state: 'open', in_flight: 0, until_ms: 8200.5 } },
        { upstream: 'bare', live: null },
        { upstream: 'demo', live: { state: 'ok', in_flight: 0, until_ms: 0 } },
      ],
      next_rejected: {},
    });
    // One request probes the first target; those after it go on to the next priority.
    const targets: unknown = Reflect.get(Object(said), 'targets');
    expect(targets).toMatchObject([1, 0, 0, 99].map((next_hundred) => ({ next_hundred })));
    const { out } = await explain(['--model', 'gpt-4o']);
    expect(out).toContain(`  gateway     http://127.0.0.1:${port} runs this configuration\n`);
    expect(out.match(/^ +now .*$/gm)).toEqual([
      '    now         breaker half open, 4 in flight',
      '    now         breaker open, 0 in flight, cooling down for another 9s',
      '    now         breaker closed, 0 in flight',
    ]);
    expect(out.match(/^ +next .*$/gm)).toEqual(
      [1, 0, 0, 99].map((count) => `    next        gets ${count} of the next 100 requests first`),
    );
  });

  test('reports that it runs another configuration', async () => {
    await serve(
      () => '0123456789ab',
      () => STATES,
    );
    const { code, out } = await explain(['--model', 'gpt-4o']);
    expect(code).toBe(0);
    expect(out).toContain(`runs another configuration or environment (0123456789ab, this is ${own()})\n`);
    expect(out).toContain('breaker half open');
    expect((await asJson('--model', 'gpt-4o')).said).toMatchObject({
      server: { config_hash: '0123456789ab', same_config: false },
    });
  });

  test('connects to loopback when the gateway listens on all addresses', async () => {
    const port = await serve(own, () => STATES, '0.0.0.0');
    expect((await explain(['--model', 'gpt-4o'])).out).toContain(
      `http://127.0.0.1:${port} runs this configuration`,
    );
  });

  test('continues without the state when the gateway does not report it', async () => {
    await serve(own);
    const { code, out } = await explain(['--model', 'gpt-4o']);
    expect(code).toBe(0);
    expect(out).toContain('runs this configuration, and reports no upstream states\n');
    expect(out).not.toContain('    now ');
  });

  test('continues with the state when the gateway does not report its configuration', async () => {
    await serve(
      () => 'not a hash \u001b[2J',
      () => STATES,
    );
    const { out } = await explain(['--model', 'gpt-4o']);
    expect(out).toContain('did not report its configuration in time\n');
    expect(out).toContain('breaker half open');
    expect(out).not.toContain('\u001b');
  });

  const gone = async (port: number, patienceMs: number) => {
    const { code, out } = await explain(['--model', 'gpt-4o'], patienceMs);
    expect(code).toBe(0);
    expect(out).toContain(`  gateway     no state to show: no gateway answers at http://127.0.0.1:${port}\n`);
    expect(out).toContain('openai  (weight 3: 75%)');
  };

  test('continues when nothing listens there', async () => {
    const port = await closedPort();
    configure(String(port));
    await gone(port, PATIENCE);
  });

  test('continues when no answer arrives in time', async () => {
    await gone(await occupy(createServer()), 50);
  });

  test('continues when an answer does not end in time', async () => {
    const server = http.createServer((_, response) => void response.writeHead(200).write('[{"upstream":'));
    await gone(await occupy(server), 200);
  });

  test.each([
    ['a page', '<html>'],
    [
      'states of another form',
      '[{"upstream":"openai","model":"gpt-4o-2024","state":"\\u001b[2J","in_flight":0}]',
    ],
    ['more than it may', `[${' '.repeat(2 ** 23)}]`],
  ])('continues when another program answers with %s', async (_, body) => {
    await gone(await occupy(http.createServer((_request, response) => void response.end(body))), PATIENCE);
  });

  test('follows no redirect', async () => {
    let asked = 0;
    const server = http.createServer((request, response) => {
      if (request.url === '/elsewhere') asked += 1;
      response.writeHead(302, { location: '/elsewhere' }).end();
    });
    await gone(await occupy(server), PATIENCE);
    expect(asked).toBe(0);
  });
});
