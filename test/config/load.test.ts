// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, expectTypeOf, it } from 'vitest';
import { loadConfig } from '../../src/config/load-config.ts';
import type {
  DynamicConfig,
  ModelConfig,
  StaticConfig,
  Tier,
  TierConfig,
  UpstreamConfig,
} from '../../src/config/schema/config-schema.ts';
import { ENDPOINTS_OF } from '../../src/config/schema/endpoint-names.ts';
import { errorOf, extended, load, MINIMAL, placesBefore, withUpstream } from './sample.ts';

const folder = mkdtempSync(join(tmpdir(), 'tollgate-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

function write(content: string | Uint8Array): string {
  const file = join(folder, 'config.yaml');
  writeFileSync(file, content);
  return file;
}

describe('a configuration', () => {
  it('has a default for everything but upstreams and models', () => {
    const { static: fixed, dynamic, warnings, file } = load(MINIMAL);
    const timeouts = { connect: 3000, idle: 600_000, total: 3_600_000 };
    expect(file).toBe('config.yaml');
    expect(warnings).toEqual([]);
    expect(fixed).toEqual({
      listen: { host: '127.0.0.1', port: 8080, trusted_proxies: [], keep_alive: 75_000 },
      admin: { host: '127.0.0.1', port: 9090 },
      store: { kind: 'sqlite', path: './data/tollgate.db' },
      workers: 1,
    });
    expect(dynamic).toEqual({
      public_url: 'http://127.0.0.1:8080',
      realtime: { idle: 600_000, lifetime: 3_600_000 },
      budgets: { unpriced: 'allow' },
      max_body: 33_554_432,
      max_answer: { frame: 33_554_432, json: 67_108_864, embeddings: 268_435_456 },
      upstreams: {
        demo: { kind: 'builtin', builtin: 'echo', timeouts, max_concurrency: 200, stream_usage: 'inject' },
      },
      models: {
        echo: {
          targets: [{ upstream: 'demo', model: 'echo', weight: 1, priority: 1 }],
          tiers: ['Free', 'Lite', 'Pro'],
          endpoints: [...ENDPOINTS_OF.openai],
          balance: 'weighted',
          fallback_on: [],
          response_model: 'alias',
        },
      },
      tiers: { Free: {}, Lite: {}, Pro: {} },
      retry: { attempts: 3, budget: 0.2, deadline: 600_000, after_send: false },
      stream: { commit_after: 5000, keepalive: 15_000, write_stall: 60_000 },
      free_keys: { per_ip_per_day: 3 },
      auth: { failures_per_minute: 60, max_rotation_overlap: 0 },
      drain: { delay: 0, timeout: 30_000 },
      overload: { event_loop_delay: 250, heap: 0.85 },
    });
  });

  it('takes every field that this version knows what to do with', () => {
    const config = load(
      [
        'listen: { host: "::1", port: 81, trusted_proxies: [10.0.0.0/8, "fd00::/8", 192.0.2.1], keep_alive: 620s, max_connections: 100 }',
        'admin: { host: localhost, port: 0, hosts: [metrics.example.com] }',
        'public_url: https://gate.example/api/',
        'store: sqlite:/var/lib/tollgate/db',
        'secret: 0123456789abcdef0123456789abcdef',
        'usage: { spool: /var/lib/tollgate/usage }',
        'max_body: 64KiB',
        'max_answer: { frame: 64KiB, json: 512MiB, embeddings: 16GiB }',
        'upstreams:',
        '  a:',
        '    base_url: https://a.example/v1?x=y',
        '    api_key: sk-1',
        '    headers: { openai-project: 007, x-on: on }',
        '    query: { api-version: 2024-10-21, n: 1.10, empty: "" }',
        '    timeouts: { connect: 500ms, headers: 1m, first_token: 2m, idle: 5s, total: 1h }',
        '    max_concurrency: 1',
        '    stream_usage: off',
        '    send_model: false',
        '    shared_objects: [pmpt_1, "vs_*"]',
        '    health: { path: /healthz?deep=1, interval: 5s }',
        'models:',
        '  "v/*-chat": { targets: [{ upstream: a, model: "x-*", weight: 0.5, priority: 2 }], tiers: [Pro, Free], endpoints: [embeddings, chat], balance: latency, fallback_on: [content_filter, context_length_exceeded], affinity: { header: X-Thread }, response_model: upstream, price: { input: 0.15, cached_input: 0.075, output: 0.6 } }',
        'tiers: { Free: { endpoints: [chat] }, Pro: { price: { amount: 900, currency: usd, interval: month }, requests_per_minute: 20 } }',
        'retry: { attempts: 1, budget: 1, deadline: 30s, after_send: true }',
        'stream: { commit_after: 0s, keepalive: 1s, write_stall: 2s }',
        'realtime: { idle: 1m, lifetime: 2h }',
        'passthrough: { upstream: a, paths: [/v1/files, /v1/batches], max_upload: 1MiB, batch_discount: 40, batch_poll: 90s }',
        'free_keys: { per_ip_per_day: 0 }',
        'auth: { failures_per_minute: 1, max_rotation_overlap: 1d }',
        'drain: { delay: 1s, timeout: 0s }',
        'overload: { event_loop_delay: off, heap: off }',
        'branding: { name: Gate, color: "#1a7f5a" }',
      ].join('\n'),
    );
    expect(config.static).toEqual({
      listen: {
        host: '::1',
        port: 81,
        trusted_proxies: ['10.0.0.0/8', 'fd00::/8', '192.0.2.1'],
        keep_alive: 620_000,
        max_connections: 100,
      },
      admin: { host: 'localhost', port: 0, hosts: ['metrics.example.com'] },
      store: { kind: 'sqlite', path: '/var/lib/tollgate/db' },
      secret: '0123456789abcdef0123456789abcdef',
      usage: { spool: '/var/lib/tollgate/usage' },
      workers: 1,
    });
    expect(config.dynamic).toEqual({
      public_url: 'https://gate.example/api',
      realtime: { idle: 60_000, lifetime: 7_200_000 },
      passthrough: {
        upstream: 'a',
        paths: ['/v1/files', '/v1/batches'],
        max_upload: 1_048_576,
        batch_discount: 40,
        batch_poll: 90_000,
      },
      budgets: { unpriced: 'allow' },
      max_body: 65_536,
      max_answer: { frame: 65_536, json: 536_870_912, embeddings: 17_179_869_184 },
      upstreams: {
        a: {
          kind: 'http',
          base_url: 'https://a.example/v1?x=y',
          api_key: 'sk-1',
          headers: { 'openai-project': '007', 'x-on': 'on' },
          query: { 'api-version': '2024-10-21', n: '1.10', empty: '' },
          timeouts: { connect: 500, headers: 60_000, first_token: 120_000, idle: 5000, total: 3_600_000 },
          max_concurrency: 1,
          stream_usage: 'off',
          send_model: false,
          shared_objects: ['pmpt_1', 'vs_*'],
          health: { path: '/healthz?deep=1', interval: 5000 },
        },
      },
      models: {
        'v/*-chat': {
          targets: [{ upstream: 'a', model: 'x-*', weight: 0.5, priority: 2 }],
          tiers: ['Free', 'Pro'],
          endpoints: ['chat', 'embeddings'],
          balance: 'latency',
          fallback_on: ['context_length_exceeded', 'content_filter'],
          affinity: { header: 'x-thread' },
          response_model: 'upstream',
          price: [{ from: 0, price: { input: 150_000, cached_input: 75_000, output: 600_000 } }],
        },
      },
      tiers: {
        Free: { endpoints: ['chat'] },
        Pro: { price: { amount: 900, currency: 'usd', interval: 'month' }, requests_per_minute: 20 },
      },
      retry: { attempts: 1, budget: 1, deadline: 30_000, after_send: true },
      stream: { commit_after: 0, keepalive: 1000, write_stall: 2000 },
      free_keys: { per_ip_per_day: 0 },
      auth: { failures_per_minute: 1, max_rotation_overlap: 86_400_000 },
      drain: { delay: 1000, timeout: 0 },
      overload: { event_loop_delay: 'off', heap: 'off' },
      branding: { name: 'Gate', color: '#1a7f5a' },
    });
  });

  it.each([
    '1.10',
    'on',
    'no',
    '2023-05-15',
    '1e3',
    '0x10',
    '0o14',
    '007',
    '1_000',
    '.inf',
    'TRUE',
    '12:30:45',
    '=',
    '"null"',
    "'~'",
  ])('keeps the text %s as it is', (text) => {
    const model = load(MINIMAL.replace('model: echo', `model: ${text}`)).dynamic.models['echo'];
    expect(model?.targets[0]?.model).toBe(text.replaceAll(/^["']|["']$/g, ''));
  });

  it('has types that match its meaning', () => {
    expectTypeOf<StaticConfig['listen']>().branded.toEqualTypeOf<{
      host: string;
      port: number;
      trusted_proxies: string[];
      keep_alive: number;
      max_connections?: number;
      readonly tls?: true;
    }>();
    expectTypeOf<StaticConfig['store']>().toEqualTypeOf<
      { readonly kind: 'sqlite'; readonly path: string } | { readonly kind: 'postgres'; readonly url: string }
    >();
    expectTypeOf<Pick<StaticConfig, 'redis' | 'secret'>>().toEqualTypeOf<{
      redis?: string;
      secret?: string;
    }>();
    expectTypeOf<StaticConfig['usage']>().toEqualTypeOf<
      { spool?: string; keep_hours?: number; keep_days?: number } | undefined
    >();
    expectTypeOf<DynamicConfig['upstreams']>().toEqualTypeOf<Record<string, UpstreamConfig>>();
    expectTypeOf<DynamicConfig['models']>().toEqualTypeOf<Record<string, ModelConfig>>();
    expectTypeOf<DynamicConfig['tiers']>().toEqualTypeOf<Partial<Record<Tier, TierConfig>>>();
    expectTypeOf<DynamicConfig['retry']>().toEqualTypeOf<{
      attempts: number;
      budget: number;
      deadline: number;
      after_send: boolean;
    }>();
    expectTypeOf<Extract<UpstreamConfig, { kind: 'http' }>['api_key']>().toEqualTypeOf<string | undefined>();
    expectTypeOf<ModelConfig['tiers']>().toEqualTypeOf<Tier[]>();
    expectTypeOf<TierConfig['concurrency']>().toEqualTypeOf<number | undefined>();
  });
});

describe('PORT', () => {
  it('takes the place of listen.port, also in the default of public_url', () => {
    const config = extended('listen: { port: 1 }', { PORT: ' 3000\n' });
    expect(config.static.listen.port).toBe(3000);
    expect(config.dynamic.public_url).toBe('http://127.0.0.1:3000');
    expect(config.hash).toBe(extended('listen: { port: 3000 }').hash);
  });

  it('does nothing when it is empty', () => {
    expect(extended('', { PORT: ' ' }).static.listen.port).toBe(8080);
  });

  it.each(['x', '-1', '65536', '80.5', '0x50'])('is refused as %j, at listen.port or the start', (PORT) => {
    const message = 'listen.port: the environment variable PORT must be a whole number from 0 to 65535';
    expect(placesBefore('max_body: 1MiB\nlisten: { port: 1 }', { PORT })).toEqual([`2:11 ${message}`]);
    expect(placesBefore('max_body: 1MiB\nlisten: {}', { PORT })).toEqual([`2:1 ${message}`]);
    expect(placesBefore('max_body: 1MiB', { PORT })).toEqual([`1:1 ${message}`]);
  });
});

describe('public_url', () => {
  it.each([
    ['listen: { host: "::1", port: 0 }', 'http://[::1]:0'],
    ['listen: { host: gate.internal }', 'http://gate.internal:8080'],
    ['public_url: https://gate.example//', 'https://gate.example'],
  ])('of %s is %s', (line, url) => expect(extended(line).dynamic.public_url).toBe(url));
});

describe('the hash', () => {
  const text = withUpstream('base_url: https://a.example\napi_key: ${KEY}\nquery: { a: b, c: d }');
  const { hash } = load(text, { KEY: 'one' });

  it('stays when only the writing changes', () => {
    const same = [
      `# a comment\n${text}\n`,
      text.replace('{ a: b, c: d }', '{ c: "d", a: \'b\' }'),
      `${text}\nretry: { attempts: 3 }\nmax_body: 32768KiB\ntiers: { Pro: {}, Free: {}, Lite: {} }`,
      text.replace('${KEY}', 'one'),
      text.replaceAll('\n', '\r\n'),
    ];
    expect(same.map((other) => load(other, { KEY: 'one' }).hash)).toEqual(same.map(() => hash));
  });

  it('changes with the meaning, a credential included', () => {
    const others = [
      load(text, { KEY: 'two' }),
      load(`${text}retry: { attempts: 2 }`, { KEY: 'one' }),
      load(`${text}listen: { port: 1 }`, { KEY: 'one' }),
      load(text.replace('model: x', 'model: y'), { KEY: 'one' }),
      load(`${text}tiers: { Free: {} }`, { KEY: 'one' }),
    ].map((config) => config.hash);
    expect(new Set([hash, ...others]).size).toBe(6);
    for (const other of others) expect(other).toMatch(/^[0-9a-f]{12}$/);
  });
});

describe('a file', () => {
  it('is read and named as it was given', () => {
    const file = write(MINIMAL);
    expect(loadConfig(file, {})).toEqual({ ...load(MINIMAL), file });
    expect(loadConfig(write(`\ufeff${MINIMAL}`), {}).hash).toBe(load(MINIMAL).hash);
  });

  const faultOf = (file: string): string => {
    const { faults, message } = errorOf(() => loadConfig(file, {}));
    expect(faults).toHaveLength(1);
    expect(message.startsWith(`${file}:`)).toBe(true);
    return message.slice(file.length);
  };

  it('that cannot be read is one fault', () => {
    expect(faultOf(join(folder, 'none.yaml'))).toBe(
      ':1:1: cannot be read: there is no such file; `tollgate init` writes a first one',
    );
    expect(faultOf(folder)).toBe(':1:1: cannot be read: it is a directory');
    expect(faultOf('/dev/zero')).toBe(':1:1: is larger than 1 MiB');
  });

  it('may have 1 MiB and no more', () => {
    const filler = '#'.repeat(2 ** 20 - MINIMAL.length);
    expect(loadConfig(write(MINIMAL + filler), {}).hash).toBe(load(MINIMAL).hash);
    expect(faultOf(write(`${MINIMAL}${filler}#`))).toBe(':1:1: is larger than 1 MiB');
  });

  it('has to be UTF-8, and says where it is not', () => {
    expect(faultOf(write(Buffer.from([...Buffer.from('a: "ä"\nb: x'), 0xe4, 0x0a])))).toBe(
      ':2:5: is not UTF-8 here',
    );
    expect(faultOf(write(Buffer.from(MINIMAL, 'utf16le')))).toMatch(/^:1:1: /);
    expect(faultOf(write(Buffer.from([0x61, 0xc3])))).toBe(':1:2: is not UTF-8 here');
  });
});
