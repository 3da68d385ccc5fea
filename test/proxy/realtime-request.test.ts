// The query and the subprotocols of a session: what is found in them, and that nothing else of them changes.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readProtocols, readSessionQuery } from '../../src/realtime/realtime-request.ts';

describe('the query', () => {
  test.each([
    ['/v1/realtime?model=a', 'a', 'model=b%2Fc'],
    ['/v1/realtime?x=1&model=a%20b&&y=%7e+%7E&z', 'a b', 'x=1&model=b%2Fc&&y=%7e+%7E&z'],
    ['/v1/realtime?mod%65l=a+b', 'a b', 'mod%65l=b%2Fc'],
    ['/v1/realtime?model=a=b&models=c', 'a=b', 'model=b%2Fc&models=c'],
  ])('%s', (target, model, rewritten) => {
    const query = readSessionQuery(target);
    expect([query.model, query.rewrite('b/c')]).toEqual([model, rewritten]);
  });

  // An upstream could read it instead of the one that was checked.
  test.each([
    'Model',
    'MODEL',
    '_model',
    'mod%45l',
    'model%00x',
    'mo-del',
    'model[]',
    'model%5B0%5D',
    'model.x',
    'mod%2565l',
    '+model',
    'model+',
  ])('rejects %s', (name) => {
    for (const query of [`${name}=b`, `model=a&${name}=b`, `${name}&model=a`])
      expect(() => readSessionQuery(`/v1/realtime?${query}`)).toThrow(
        expect.objectContaining({ code: 'invalid_value', param: 'model' }),
      );
  });

  test('can omit the model', () => {
    const query = readSessionQuery('/v1/realtime?a=1&model=m&b=%zz');
    expect(query.rewrite(undefined)).toBe('a=1&b=%zz');
  });

  test('keeps every other parameter byte for byte', () => {
    const piece = fc
      .stringMatching(/^[a-z0-9%+=._~!$'()*,;:@/?-]{0,12}$/)
      .filter((each) => !/^m/i.test(each) && !each.includes('%6') && !each.includes('%4'));
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 5 }),
        fc.array(piece, { maxLength: 5 }),
        fc.string({ minLength: 1, unit: 'grapheme' }),
        (before, after, name) => {
          const asked = [...before, 'model=x', ...after].join('&');
          const query = readSessionQuery(`/v1/realtime?${asked}`).rewrite(name);
          expect(query).toBe([...before, `model=${encodeURIComponent(name)}`, ...after].join('&'));
          expect(readSessionQuery(`/?${query}`).model).toBe(name);
        },
      ),
      { numRuns: 100 },
    );
  });
});

describe('the subprotocols', () => {
  test('give the key, and are forwarded without it and without any that could be a key', () => {
    const offered =
      'realtime, openai-insecure-api-key.abc,openai-organization.org_1 , openai-project.p, openai-beta.realtime-v1, bearer.xyz, realtime';
    expect(readProtocols(offered)).toEqual({
      authorization: 'Bearer abc',
      forwarded: ['realtime', 'openai-beta.realtime-v1'],
    });
    expect(readProtocols(undefined)).toEqual({ authorization: undefined, forwarded: [] });
  });
});
