// Which deadlines `tollgate check` warns about, and which combinations it takes for sound.
import { describe, expect, it } from 'vitest';
import { load } from './sample.ts';

interface Parts {
  readonly upstream?: string;
  readonly model?: string;
  readonly target?: string;
  readonly name?: string;
  readonly rest?: string;
  readonly second?: boolean;
}

/** Warnings of a configuration with these deadlines, as `path: message`. */
function warningsOf({ upstream, model, target, name = 'm', rest = '', second = false }: Parts): string[] {
  const timeouts = (own: string | undefined) => (own === undefined ? '' : `, timeouts: { ${own} }`);
  const targets = [
    `{ upstream: up, model: x${timeouts(target)} }`,
    ...(second ? ['{ upstream: other, model: y, priority: 2 }'] : []),
  ];
  const text = [
    'upstreams:',
    `  up: { base_url: "https://a.example/v1"${timeouts(upstream)} }`,
    ...(second ? ['  other: { base_url: "https://b.example/v1" }'] : []),
    'models:',
    `  ${name}: { targets: [${targets.join(', ')}]${model === undefined ? '' : `, ${model}`} }`,
    rest,
  ].join('\n');
  return load(text).warnings.map(({ message }) => message);
}

describe('deadlines that are warned about', () => {
  it.each<[string, Parts, string, RegExp]>([
    [
      'first_token above total',
      { upstream: 'first_token: 5m, total: 2m' },
      'upstreams.up.timeouts.first_token',
      /longer than `total` \(2m\)/,
    ],
    ['headers above total', { upstream: 'headers: 2h' }, 'upstreams.up.timeouts.headers', /`total` \(1h\)/],
    [
      'idle of a model above total',
      { upstream: 'total: 1m', model: 'timeouts: { idle: 2m }' },
      'models.m.timeouts.idle',
      /`total` \(1m\)/,
    ],
    [
      'first_token above retry.deadline',
      { target: 'first_token: 30s', rest: 'retry: { deadline: 20s }' },
      'models.m.targets[0].timeouts.first_token',
      /longer than `retry.deadline` \(20s\)/,
    ],
    [
      'headers above the default of retry.deadline',
      { upstream: 'headers: 11m' },
      'upstreams.up.timeouts.headers',
      /longer than `retry.deadline` \(10m\)/,
    ],
    [
      'first_token not below commit_after, with another target',
      { upstream: 'first_token: 5s', second: true },
      'upstreams.up.timeouts.first_token',
      /not shorter than `stream.commit_after` \(5s\)/,
    ],
    [
      'a hedge that begins too late',
      { upstream: 'first_token: 2s', model: 'hedge: { after: 2s }', second: true },
      'models.m.hedge.after',
      /not shorter than `first_token` \(2s\)/,
    ],
    [
      'retry.deadline below total',
      { upstream: 'total: 5m', rest: 'retry: { deadline: 1m }' },
      'retry.deadline',
      /shorter than `total` \(5m\): JSON responses/,
    ],
    ['idle below pings', { upstream: 'idle: 10s' }, 'upstreams.up.timeouts.idle', /shorter than 30s/],
    [
      'total of a thinking model',
      { upstream: 'total: 5m', name: 'o3-mini' },
      'upstreams.up.timeouts.total',
      /OpenAI's SDKs wait for 10m/,
    ],
    [
      'headers of a thinking model',
      { upstream: 'headers: 60s', name: 'deepseek-reasoner' },
      'upstreams.up.timeouts.headers',
      /JSON responses/,
    ],
  ])('%s', (_name, parts, path, message) => {
    const found = warningsOf(parts);
    expect(found).toEqual([expect.stringMatching(message)]);
    expect(found[0]?.startsWith(`${path}: `)).toBe(true);
  });

  it('says once what several targets and models share', () => {
    const text = [
      'upstreams: { up: { base_url: "https://a.example/v1", timeouts: { idle: 1s } } }',
      'models:',
      '  a: { targets: [{ upstream: up, model: x }, { upstream: up, model: y }] }',
      '  b: { targets: [{ upstream: up, model: x }] }',
    ].join('\n');
    expect(load(text).warnings).toHaveLength(1);
  });
});

describe('deadlines that are sound', () => {
  it.each<[string, Parts]>([
    ['none at all', { second: true, name: 'o3' }],
    ['first_token below commit_after', { upstream: 'first_token: 4s', second: true }],
    [
      'a raised commit_after',
      { upstream: 'first_token: 20s', second: true, rest: 'stream: { commit_after: 25s }' },
    ],
    ['first_token of the only target', { upstream: 'first_token: 2m' }],
    [
      'an upstream whose value a model replaces',
      { upstream: 'first_token: 2m', model: 'timeouts: { first_token: 2s }', second: true },
    ],
    [
      'a hedge before first_token',
      { upstream: 'first_token: 3s', model: 'hedge: { after: 1s }', second: true },
    ],
    ['retry.deadline below the default of total', { rest: 'retry: { deadline: 1m }' }],
    ['retry.deadline above total', { upstream: 'total: 1m', rest: 'retry: { deadline: 2m }' }],
    ['a short total of another model', { upstream: 'total: 5m', name: 'text-embedding-3-small' }],
    ['names that only look like thinking models', { upstream: 'total: 5m', name: 'gpt-4o-2024-11-20' }],
  ])('%s', (_name, parts) => {
    expect(warningsOf(parts)).toEqual([]);
  });
});
