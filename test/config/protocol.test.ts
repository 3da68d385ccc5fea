// `protocol` of an upstream: which endpoints its models have, and what does not go together.
import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { ENDPOINTS_OF } from '../../src/config/schema/endpoint-names.ts';
import { destinationOf } from '../../src/proxy/request/example-request.ts';
import { load, placesOf } from './sample.ts';

const UPSTREAMS = `upstreams:
  a: { base_url: https://api.anthropic.com/v1, protocol: anthropic, api_key: k }
  b: { base_url: https://b.example/v1, protocol: anthropic, headers: { authorization: Bearer t } }
  o: { base_url: https://o.example/v1, protocol: openai, api_key: k }
  e: { builtin: echo }
`;
const file = (model: string, rest = ''): string => `${UPSTREAMS}models:\n  m: ${model}\n${rest}`;
const targets = (...names: string[]) =>
  `targets: [${names.map((name) => `{ upstream: ${name}, model: x }`).join(', ')}]`;
const endpointsOf = (model: string) => load(file(`{ ${model} }`)).dynamic.models['m']?.endpoints;

describe('the protocol of an upstream', () => {
  it('decides which endpoints its models have', () => {
    expect(endpointsOf(targets('a', 'b'))).toEqual(['messages']);
    expect(endpointsOf(`${targets('a')}, endpoints: [messages]`)).toEqual(['messages']);
    expect(endpointsOf(targets('o', 'e'))).toEqual(ENDPOINTS_OF.openai);
    expect(endpointsOf(`${targets('o')}, endpoints: [chat]`)).toEqual(['chat']);
  });

  it('is `openai` where nothing else is said, which changes no hash', () => {
    const text = file(`{ ${targets('o')} }`);
    expect(load(text.replace(', protocol: openai', '')).hash).toBe(load(text).hash);
    expect(load(text.replace('protocol: openai', 'protocol: anthropic')).hash).not.toBe(load(text).hash);
  });

  it.each<[string, string, string[]]>([
    ['targets of two', `{ ${targets('a', 'o', 'b', 'e')} }`, ['7:57 ', '7:111 ']],
    ['targets of two, the other way', `{ ${targets('e', 'a')} }`, ['7:57 ']],
    ['endpoints of the other', `{ ${targets('a')}, endpoints: [messages, chat] }`, ['7:68 ']],
    ['only endpoints of the other', `{ ${targets('o')}, endpoints: [messages] }`, ['7:58 ']],
  ])('with %s is a fault where it stands', (_, model, places) => {
    const found = placesOf(file(model));
    expect(found.map((each) => each.replace(/(?<=^\d+:\d+ ).*/, ''))).toEqual(places);
    for (const each of found) expect(each).toMatch(/`protocol`/);
  });

  it.each<[string, string, string]>([
    [
      'a built-in model',
      UPSTREAMS.replace('{ builtin: echo }', '{ builtin: echo, protocol: anthropic }'),
      'has no effect with `builtin`',
    ],
    ['an unknown name', UPSTREAMS.replace('protocol: openai', 'protocol: bedrock'), 'openai'],
    [
      'a second key',
      UPSTREAMS.replace('api_key: k }', 'api_key: k, headers: { X-Api-Key: k } }'),
      'is also set by `api_key`',
    ],
  ])('with %s is a fault', (_, upstreams, message) => {
    const text = file(`{ ${targets('o')} }`).replace(UPSTREAMS, upstreams);
    expect(placesOf(text)).toEqual([expect.stringContaining(message)]);
  });

  it('of an unknown upstream is not judged', () => {
    expect(placesOf(file(`{ ${targets('x', 'a', 'b')} }`))).toEqual([
      expect.stringContaining('there is no upstream `x`'),
    ]);
  });

  it('may have a bearer token in `headers` beside the key', () => {
    const text = file(`{ ${targets('a')} }`).replace(
      'api_key: k }',
      'api_key: k, headers: { authorization: Bearer t } }',
    );
    expect(
      load(text)
        .warnings.map(({ message }) => message)
        .join(),
    ).not.toMatch(/authorization/);
  });

  it('of the other API has no calls to pass through', () => {
    const passthrough = 'passthrough: { upstream: a, paths: [/v1/files] }\n';
    expect(placesOf(file(`{ ${targets('a')} }`, passthrough))).toEqual([
      expect.stringContaining('`protocol: anthropic`'),
    ]);
  });

  it('is shown, with the header of the credential', () => {
    const config = load(file(`{ ${targets('a')} }`));
    expect(describeConfig(config)).toMatch(/ a .*api\.anthropic\.com\/v1; protocol anthropic; api_key set/);
    expect(describeConfig(config)).toMatch(/ m .*\(for messages\)/);
    const { a, o } = config.dynamic.upstreams;
    if (a === undefined || o === undefined) throw new Error('no upstreams');
    expect(destinationOf(a, 'messages')).toMatchObject({ path: '/v1/messages', headers: ['x-api-key'] });
    expect(destinationOf(o, 'messages').headers).toEqual(['authorization']);
  });
});
