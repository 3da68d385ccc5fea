// `members` of upstreams and models: what may be written there, and what `tollgate check` says of it.
import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { faultsOf, load } from './sample.ts';

const withMembers = (ofUpstream: string, ofModel = '{}'): string =>
  `upstreams: { a: { builtin: echo, members: ${ofUpstream} } }
models: { m: { targets: [{ upstream: a, model: x }], members: ${ofModel} } }
`;

describe('members', () => {
  it('are lists of names and paths, of an upstream and of a model', () => {
    const { upstreams, models } = load(
      withMembers(
        '{ refuse: [models, extra_body.api_base] }',
        '{ refuse: [n, session.model], remove: [user] }',
      ),
    ).dynamic;
    expect(upstreams['a']?.members).toEqual({ refuse: ['models', 'extra_body.api_base'], remove: [] });
    expect(models['m']?.members).toEqual({ refuse: ['n', 'session.model'], remove: ['user'] });
  });

  it('may be left out', () => {
    expect(load(withMembers('')).dynamic.upstreams['a']).not.toHaveProperty('members');
  });

  it.each([
    ['{ refuse: [model] }', 'must not be model'],
    ['{ refuse: [Mo-del] }', 'must not be model'],
    ['{ refuse: ["a b"] }', 'must be the name of a member'],
    ['{ refuse: ["a..b"] }', 'must be the name of a member'],
    ['{ refuse: ["_"] }', 'must be the name of a member'],
    ['{ refuse: ["a.b.c.d.e.f.g"] }', 'must be the name of a member'],
    ['{ remove: [model] }', 'is read by the gateway'],
    ['{ remove: [streamOptions.include_obfuscation] }', 'is read by the gateway'],
    ['{ remove: [max_tokens] }', 'is read by the gateway'],
  ])('%s is a fault', (members, message) => {
    for (const text of [withMembers(members), withMembers('{}', members)])
      expect(faultsOf(text).map((fault) => fault.message)).toEqual([expect.stringContaining(message)]);
  });

  it('stand in what check says', () => {
    const text = describeConfig(load(withMembers('{ refuse: [models, route] }', '{ remove: [user] }')));
    expect(text).toContain('refuses models, route');
    expect(text).toContain('removes user');
  });
});
