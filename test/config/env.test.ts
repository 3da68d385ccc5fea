// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expand } from '../../src/config/source/environment.ts';
import { ReferencedFiles } from '../../src/config/source/referenced-files.ts';
import { errorOf, extended, load, placesBefore, placesOf, withUpstream } from './sample.ts';

const NO_FILES = new ReferencedFiles('config.yaml');
const expanded = (text: string, env: NodeJS.ProcessEnv = {}): string => {
  const expansion = expand(text, env, NO_FILES);
  return expansion.ok ? expansion.value : `refused: ${expansion.faults.join(' | ')}`;
};

const MODEL =
  'upstreams: { demo: { builtin: echo } }\nmodels: { echo: { targets: [{ upstream: demo, model: "${X}" }] } }';
const modelOf = (env: NodeJS.ProcessEnv): string | undefined =>
  load(MODEL, env).dynamic.models['echo']?.targets[0]?.model;

describe('references', () => {
  it.each([
    ['${A}', 'one'],
    ['x-${A}-${A}${B}', 'x-one-onetwo'],
    ['${A:-other}', 'one'],
    ['${NONE:-other}', 'other'],
    ['${EMPTY:-other}', 'other'],
    ['${BLANK:-other}', 'other'],
    ['${NONE:-}', ''],
    ['${NONE:- kept }', ' kept '],
    ['${NONE:-a:b-c}', 'a:b-c'],
    ['$${A}', '${A}'],
    ['$${A}${A}', '${A}one'],
    ['${A}$${A}', 'one${A}'],
    ['$A $ $$ {A} }', '$A $ $$ {A} }'],
    ['${NESTED}', '${A}'],
    ['${NESTED}}', '${A}}'],
  ])('%s becomes %j', (text, expected) => {
    const env = { A: 'one', B: 'two', EMPTY: '', BLANK: ' \n', NESTED: '${A}' };
    expect(expanded(text, env)).toBe(expected);
  });

  it.each(['${', '${A', '${}', '${1A}', '${A-B}', '${A:}', '${A:?x}', '${ A }', '${A:-${B}}', 'x ${A'])(
    '%s is malformed',
    (text) => expect(expanded(text, { A: 'one', B: 'two' })).toMatch(/^refused: has a malformed reference/),
  );

  it('names every variable that is not set', () => {
    expect(expanded('${A} ${B:-x} ${C} ${A}')).toBe(
      'refused: refers to the environment variable A, which is not set | refers to the environment variable C, which is not set',
    );
  });

  it('does not take what every object has for a variable', () => {
    expect(expanded('${constructor}')).toMatch(/constructor, which is not set/);
    expect(expanded('${toString:-x}')).toBe('x');
  });
});

describe('a value from the environment', () => {
  it('comes out as it is, with its ends trimmed, and changes nothing else', () => {
    const text = withUpstream('base_url: https://api.example.com/v1\nquery: { a: "1", q: "${X}", z: "2" }');
    const plain = load(text, { X: 'plain' });
    const nasty = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({
        unit: fc.constantFrom(
          ...' \t\n\r:#{}[],&*!|>%@`"\'\\$-?~\u2028\u0000\ue000\ue001',
          'a',
          '${A}',
          '${X}',
          '$${',
          'models',
        ),
      }),
    );
    fc.assert(
      fc.property(nasty, (value) => {
        fc.pre(value.trim() !== '');
        const config = load(text, { X: value, A: 'leaked' });
        const { u } = config.dynamic.upstreams;
        expect(u).toHaveProperty('query', { a: '1', q: value.trim(), z: '2' });
        const same = { ...u, query: { a: '1', q: 'plain', z: '2' } };
        expect({ ...config.dynamic, upstreams: { u: same } }).toEqual(plain.dynamic);
        expect(config.static).toEqual(plain.static);
      }),
      { numRuns: 500 },
    );
  });

  it('needs no quotes in a flow collection', () => {
    const config = load(
      'upstreams: { u: { base_url: https://${HOST}/v1, headers: { a: ${A}, b: x${B:-d}y }, query: {q: "${A}\ue000"} } }\nmodels: { m: { targets: [{ upstream: u, model: ${A} }] } }',
      { HOST: 'h.example', A: 'a, {b}' },
    );
    expect(config.dynamic.upstreams['u']).toMatchObject({
      base_url: 'https://h.example/v1',
      headers: { a: 'a, {b}', b: 'xdy' },
      query: { q: 'a, {b}\ue000' },
    });
    expect(config.dynamic.models['m']?.targets[0]?.model).toBe('a, {b}');
  });

  it('is not expanded again', () => expect(modelOf({ X: '${Y}', Y: 'y' })).toBe('${Y}'));

  it('can be a number, a boolean, a duration, an item, a part', () => {
    const config = extended(
      'listen: { port: "${P}", trusted_proxies: ["${IP}"] }\nretry: { after_send: "${B}" }\ndrain: { timeout: "${N}s" }',
      { P: ' 81\n', IP: '10.0.0.1', B: 'true', N: '7' },
    );
    expect(config.static.listen).toEqual({
      host: '127.0.0.1',
      port: 81,
      trusted_proxies: ['10.0.0.1'],
      keep_alive: 75_000,
    });
    expect(config.dynamic.retry.after_send).toBe(true);
    expect(config.dynamic.drain.timeout).toBe(7000);
  });

  it('leaves an optional field out when it is empty and may be', () => {
    expect(extended('redis: ${REDIS_URL:-}').static).not.toHaveProperty('redis');
    expect(extended('redis: ${REDIS_URL:-}', { REDIS_URL: ' ' }).static).not.toHaveProperty('redis');
    expect(extended('drain: { timeout: "${T:-}" }').dynamic.drain.timeout).toBe(30_000);
  });

  it('is refused when it is empty and nothing says that it may be', () => {
    expect(placesBefore('redis: ${REDIS_URL}', { REDIS_URL: ' ' })).toEqual([
      '1:8 redis: is empty, as given by the environment variable REDIS_URL',
    ]);
  });

  it('is refused in every kind of field when it is unset', () => {
    const text = [
      'listen: { host: "${A}", port: "${B}", trusted_proxies: ["${C}"] }',
      'secret: ${D}',
      'max_body: ${E}',
      'upstreams:',
      '  u: { base_url: "https://${F}/v1", api_key: "${G}", headers: { x: "${H}" }, query: { q: "${I}" }, stream_usage: "${J}" }',
      'models:',
      '  m: { targets: [{ upstream: "${K}", model: "${L}", weight: "${M}" }], tiers: ["${N}"] }',
      'retry: { after_send: ${O} }',
    ].join('\n');
    const places = placesOf(text);
    const variables = places.map((place) => /the environment variable ([A-Z])/.exec(place)?.[1]);
    expect(variables).toEqual([...'ABCDEFGHIJKLMNO']);
  });
});

describe('keys of a mapping', () => {
  it('are not expanded, and say so', () => {
    expect(placesBefore('"${X}": 1', { X: 'redis' })).toEqual([
      '1:1 has a key with a reference; references are expanded in values only',
    ]);
  });
});

describe('a credential from the environment', () => {
  const text = withUpstream('base_url: https://api.example.com/v1\napi_key: ${KEY}');
  it.each([
    ['empty', { KEY: ' ' }, '5:14 upstreams.u.api_key: is empty, as given by the environment variable KEY'],
    ['unset', {}, '5:14 upstreams.u.api_key: refers to the environment variable KEY, which is not set'],
    [
      'with a line end inside',
      { KEY: 'sk-a\nx: b' },
      '5:14 upstreams.u.api_key: has a character that is not allowed in an HTTP header (only visible ASCII, space and tab are) (from the environment: KEY)',
    ],
    [
      'outside of ASCII',
      { KEY: 'sk-ä' },
      '5:14 upstreams.u.api_key: has a character that is not allowed in an HTTP header (only visible ASCII, space and tab are) (from the environment: KEY)',
    ],
  ])('is refused when %s', (_, env, place) => expect(placesOf(text, env)).toEqual([place]));

  it('is refused when empty even where it may be left out', () => {
    expect(placesOf(text.replace('${KEY}', '${KEY:-}'))).toEqual([
      '5:14 upstreams.u.api_key: is a credential and must not be empty (from the environment: KEY)',
    ]);
    expect(placesBefore('secret: ""')).toEqual(['1:9 secret: is a credential and must not be empty']);
  });

  it('may have spaces and a line end around it', () => {
    expect(load(text, { KEY: '\tsk-1 \n' }).dynamic.upstreams['u']).toMatchObject({ api_key: 'sk-1' });
  });

  it('is named by field and variable and never shown', () => {
    const { message } = errorOf(() => load(text, { KEY: 'sk-secret\u0001' }));
    expect(message).toContain('upstreams.u.api_key');
    expect(message).toContain('KEY');
    expect(message).not.toContain('sk-secret');
  });
});
