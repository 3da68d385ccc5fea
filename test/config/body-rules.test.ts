// `body` of upstreams, models and targets: what may be written there, which rule holds, and what `tollgate check` says of it.
import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { type BodyRule, describeBody, mergeRules } from '../../src/config/schema/body-rules.ts';
import { faultsOf, load } from './sample.ts';

const withBody = (ofUpstream = '', ofModel = '', ofTarget = '', name = 'body'): string => {
  const [upstream, model, target] = [ofUpstream, ofModel, ofTarget].map((rules, index) =>
    rules === '' ? '' : `, ${index === 2 ? 'body' : name}: ${rules}`,
  );
  return `upstreams: { a: { builtin: echo${upstream} } }
models: { m: { targets: [{ upstream: a, model: x${target} }]${model} } }
`;
};

/** The rules of one section. */
const rulesOf = (body: string, env: NodeJS.ProcessEnv = {}): readonly BodyRule[] | undefined =>
  load(withBody(body), env).dynamic.upstreams['a']?.body;

describe('body', () => {
  it('has rules of five kinds, of an upstream, a model and a target', () => {
    const { upstreams, models } = load(
      withBody(
        '{ refuse: [models, extra_body.api_base] }',
        '{ refuse: [n, session.model], remove: [user, stream_options] }',
        '{ rename: { max_tokens: max_completion_tokens }, set: { reasoning.effort: low }, default: { a\\.b: 1 } }',
      ),
    ).dynamic;
    expect(upstreams['a']?.body).toEqual([
      { kind: 'refuse', path: 'models' },
      { kind: 'refuse', path: 'extra_body.api_base' },
    ]);
    expect(models['m']?.body).toEqual([
      { kind: 'refuse', path: 'n' },
      { kind: 'refuse', path: 'session.model' },
      { kind: 'remove', path: 'user' },
      { kind: 'remove', path: 'stream_options' },
    ]);
    expect(models['m']?.targets[0]?.body).toEqual([
      { kind: 'rename', path: 'max_tokens', to: 'max_completion_tokens' },
      { kind: 'set', path: 'reasoning.effort', value: { json: '"low"', isHidden: false } },
      { kind: 'default', path: 'a\\.b', value: { json: '1', isHidden: false } },
    ]);
  });

  it('may be left out', () => {
    expect(load(withBody()).dynamic.upstreams['a']).not.toHaveProperty('body');
    expect(rulesOf('{ refuse: [] }')).toBe(undefined);
  });

  it.each([
    ['1', '1'],
    ['-1.50', '-1.50'],
    ['1e400', '1e400'],
    ['9007199254740993', '9007199254740993'],
    ['true', 'true'],
    ['"true"', '"true"'],
    ["'1'", '"1"'],
    ['yes', '"yes"'],
    ['low', '"low"'],
    ['null', 'null'],
    ['', 'null'],
    ['[1, a, {b: [~]}]', '[1,"a",{"b":[null]}]'],
    ['{ a: { "b c": "\\"" } }', '{"a":{"b c":"\\""}}'],
    ['{}', '{}'],
    [`\${N}`, '5'],
    [`"\${N}"`, '"5"'],
    [`"x \${N}"`, '"x 5"'],
    [`[\${N:-}]`, '[5]'],
  ])('takes the value %s', (value, json) => {
    const isHidden = value.includes('N');
    for (const kind of ['set', 'default'])
      expect(rulesOf(`{ ${kind}: { x: ${value} } }`, { N: '5' })).toEqual([
        { kind, path: 'x', value: { json, isHidden } },
      ]);
  });

  it.each([
    ['{ refuse: [model] }', 'must not be model'],
    ['{ refuse: [Mo-del] }', 'must not be model'],
    ['{ refuse: ["a b"] }', 'must be the name of a member'],
    ['{ refuse: ["a..b"] }', 'must be the name of a member'],
    ['{ refuse: ["_"] }', 'must be the name of a member'],
    ['{ refuse: ["a.b.c.d.e.f.g"] }', 'must be the name of a member'],
    ['{ remove: [model] }', 'is read by the gateway'],
    ['{ remove: [response_format] }', 'is read by the gateway'],
    ['{ set: { stream: true } }', 'is read by the gateway'],
    ['{ set: { Stream_Options.include_usage: true } }', 'is read by the gateway'],
    ['{ default: { n: 1 } }', 'is read by the gateway'],
    ['{ rename: { model: engine } }', 'is read by the gateway'],
    ['{ rename: { engine: model } }', 'is read by the gateway'],
    ['{ rename: { x: conversation } }', 'names an object of a holder'],
    ['{ rename: { x: fallbacks } }', 'is checked by the gateway'],
    ['{ rename: { x: prompt_cache.file_ids } }', 'names an object of a holder'],
    ['{ rename: { a: "b c" } }', 'must be the name of a member'],
    ['{ set: { a..b: 1 } }', 'must be the name of a member'],
    ['{ set: { a: 0x10 } }', 'has a number that JSON cannot have'],
    ['{ set: { a: [1, .inf] } }', 'has a number that JSON cannot have'],
    ['{ set: { a: { b: 007 } } }', 'has a number that JSON cannot have'],
    ['{ set: [a] }', 'must be a mapping'],
    ['{ remove: a }', 'must be a list'],
    ['{ delete: [a] }', 'unknown key'],
    ['{ set: { a: 1 }, remove: [a] }', '`a` contradicts `remove` of `a`'],
    ['{ set: { a: 1 }, refuse: [A] }', '`a` contradicts `refuse` of `A`'],
    ['{ set: { a: 1 }, default: { a: 2 } }', '`a` contradicts `set` of `a`'],
    ['{ set: { a: { b: 1 }, a.b: 2 } }', '`a.b` contradicts `set` of `a`'],
    ['{ remove: [a.b], set: { a: 1 } }', '`a` contradicts `remove` of `a.b`'],
    ['{ remove: [a, A] }', '`A` contradicts `remove` of `a`'],
    ['{ rename: { a: b }, remove: [b] }', '`a` contradicts `remove` of `b`'],
    ['{ rename: { a: b }, set: { b.c: 1 } }', '`b.c` contradicts `rename` of `a`'],
    ['{ rename: { a: b, c: b } }', '`c` contradicts `rename` of `a`'],
    ['{ rename: { a: b, b: c } }', '`b` contradicts `rename` of `a`'],
    ['{ rename: { a: A } }', '`a` contradicts its own new name'],
    ['{ rename: { a: a.b } }', '`a` contradicts its own new name'],
  ])('%s is a fault', (body, message) => {
    for (const text of [withBody(body), withBody('', body), withBody('', '', body)])
      expect(faultsOf(text).map((fault) => fault.message)).toEqual([expect.stringContaining(message)]);
  });

  it('takes a default of a new name, and a rejected member beside its parent', () => {
    expect(rulesOf('{ rename: { a: b }, default: { b: 1 }, refuse: [c.d], remove: [c] }')).toHaveLength(4);
  });

  it('shows no value of a variable', () => {
    const secret = `\${N}`;
    const text = withBody(`{ set: { x: { token: ${secret} }, y: plain } }`);
    const shown = describeConfig(load(text, { N: 's3cret' }));
    expect(shown).toContain('sets x: ****, y: "plain"');
    expect(shown).not.toContain('s3cret');
    const broken = faultsOf(`${text}oops: 1\n`, { N: 's3cret' });
    expect(JSON.stringify(broken)).not.toContain('s3cret');
  });

  it('appears in the output of check', () => {
    const text = describeConfig(
      load(
        withBody(
          '{ refuse: [models, route] }',
          '{ remove: [user] }',
          '{ rename: { a: b }, set: { c: [1] }, default: { d: "x\\u202ey" } }',
        ),
      ),
    );
    expect(text).toContain('refuses models, route');
    expect(text).toContain('removes user');
    expect(text).toContain('renames a to b; sets c: [1]; sets where missing d: "x\\u{202e}y"');
  });
});

describe('members, the earlier name', () => {
  it('is taken, with a warning', () => {
    const { dynamic, warnings } = load(withBody('{ refuse: [x] }', '{ remove: [y] }', '', 'members'));
    expect(dynamic.upstreams['a']?.body).toEqual([{ kind: 'refuse', path: 'x' }]);
    expect(dynamic.models['m']?.body).toEqual([{ kind: 'remove', path: 'y' }]);
    expect(warnings.map(({ message }) => message)).toEqual([
      'upstreams.a.members: is deprecated: rename it to `body`',
      'models.m.members: is deprecated: rename it to `body`',
    ]);
  });

  it('is a fault beside the new one', () => {
    const faults = faultsOf(withBody('{ remove: [x] }, body: { remove: [y] }', '', '', 'members'));
    expect(faults.map(({ message }) => message)).toEqual([
      'upstreams.a.members: is the earlier name of `body`: move its rules there',
    ]);
  });
});

describe('the layers', () => {
  const layer = (body: string): readonly BodyRule[] => rulesOf(body) ?? [];

  it.each([
    [
      'the nearest value',
      ['{ set: { a: 1 } }', '{ set: { a: 2 } }', '{ default: { A: 3 } }'],
      'sets where missing A: 3',
    ],
    ['rules about other members', ['{ set: { a: 1 } }', '{ remove: [b] }'], 'removes b; sets a: 1'],
    ['a rule above', ['{ set: { a.b: 1, c: 1 } }', '{ remove: [a] }'], 'removes a; sets c: 1'],
    ['a rule below', ['{ remove: [a] }', '{ set: { a.b: 1 } }'], 'sets a.b: 1'],
    ['another rename', ['{ rename: { a: b } }', '{ rename: { a: c } }'], 'renames a to c'],
    [
      'a default of the new name',
      ['{ rename: { a: b } }', '{ default: { b: 1 } }'],
      'renames a to b; sets where missing b: 1',
    ],
    [
      'a rename onto a member with a default',
      ['{ default: { b: 1 } }', '{ rename: { a: b } }'],
      'renames a to b; sets where missing b: 1',
    ],
    ['a value of the new name', ['{ rename: { a: b } }', '{ set: { b: 1 } }'], 'removes a; sets b: 1'],
    ['a rename onto a member that is set', ['{ set: { b: 1 } }', '{ rename: { a: b } }'], 'renames a to b'],
    ['a value of the old name', ['{ rename: { a: b } }', '{ set: { a: 1 } }'], 'sets a: 1'],
    ['what is rejected', ['{ refuse: [a] }', '{ remove: [b] }'], 'refuses a; removes b'],
    ['a rule for what is rejected', ['{ refuse: [a, b] }', '{ set: { a: 1 } }'], 'refuses b; sets a: 1'],
    ['what is rejected and set', ['{ set: { a: 1 } }', '{ refuse: [a] }'], 'refuses a; sets a: 1'],
    ['what is rejected above a rule', ['{ refuse: [a] }', '{ set: { a.b: 1 } }'], 'refuses a; sets a.b: 1'],
  ])('leave %s', (_, sections, expected) => {
    expect(describeBody(mergeRules(...sections.map(layer))).join('; ')).toBe(expected);
  });
});
