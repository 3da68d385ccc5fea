import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check.ts';
import { load } from './sample.ts';

describe('the description of a configuration', () => {
  it('says what the file means, in the order in which things are tried', () => {
    const config = load(
      [
        'listen: { host: "::1", port: 0, trusted_proxies: [10.0.0.0/8] }',
        'secret: 0123456789abcdef0123456789abcdef',
        'upstreams:',
        '  openai: { base_url: https://api.example.com:8443/v1?x=y, api_key: sk-1, headers: { openai-project: p } }',
        '  local: { base_url: http://127.0.0.1:11434/v1, timeouts: { idle: 1500ms } }',
        '  demo: { builtin: echo, max_concurrency: 5 }',
        'models:',
        '  m:',
        '    targets:',
        '      - { upstream: demo, model: last, priority: 3 }',
        '      - { upstream: openai, model: a, weight: 3 }',
        '      - { upstream: local, model: b }',
        '      - { upstream: local, model: c, priority: 2 }',
        '  "x/*": { targets: [{ upstream: openai, model: "*" }], tiers: [Pro], response_model: upstream }',
        'tiers:',
        '  Free: { requests_per_minute: 20, concurrency: 2 }',
        '  Pro: { price: { amount: 900, currency: usd, interval: month } }',
      ].join('\n'),
    );
    const lines = describeConfig(config).split('\n');
    expect(lines.slice(0, 21)).toEqual([
      `config.yaml is valid (${config.hash})`,
      '  listen      [::1]:(any free port) behind 10.0.0.0/8',
      '  admin       127.0.0.1:9090',
      '  public_url  http://[::1]:0',
      '  store       SQLite, ./data/tollgate.db',
      '  redis       none: a single process',
      '  secret      set',
      '  max_body    32MiB',
      '  retry       at most 3 upstream requests for one request',
      '  drain       after 0s, for 30s',
      'upstreams',
      '  openai  https://api.example.com:8443; api_key set; headers openai-project; at most 200 at once; connect 3s, headers 1m, first token 1m, idle 1m, total 10m',
      '  local   http://127.0.0.1:11434; no api_key; at most 200 at once; connect 3s, headers 1m, first token 1m, idle 1500ms, total 10m',
      '  demo    built in (echo); at most 5 at once; connect 3s, headers 1m, first token 1m, idle 1m, total 10m',
      'models',
      '  m    -> openai: a (75%), local: b (25%); then local: c; then demo: last',
      '  x/*  -> openai: * [Pro only] (answers with the name of the upstream)',
      'tiers',
      '  Free  20 requests a minute, 2 at once',
      '  Pro   no limits, price 900 usd a month',
      'warnings',
    ]);
    expect(lines.slice(21)).toContain(
      'config.yaml:16:11: tiers.Free.requests_per_minute: is read but not enforced by this version',
    );
    expect(lines.join('\n')).not.toMatch(/sk-1|0123456789|x=y/);
  });
});
