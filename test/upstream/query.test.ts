// A client's query behind an operator's: no spelling sets a parameter of the operator's again, and everything else stays.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { joinQuery } from '../../src/upstream/upstream-query.ts';

const PATH = '/v1/x?deployment=gpt&api-version=2024-10-21&Task=Kelvins';

describe('a client’s query', () => {
  test.each([
    'deployment=evil',
    'Deployment=evil',
    'DEPLOYMENT=evil',
    'deployment',
    'deployment[]=evil',
    'deployment%5B%5D=evil',
    'deployment[0]=evil',
    'deployment[a]=evil',
    'deployment.x=evil',
    '%64eployment=evil',
    '%2564eployment=evil',
    '%252564eployment=evil',
    '+deployment=evil',
    'deployment+=evil',
    'deployment%20=evil',
    'deployment%00x=evil',
    'deployment%3D=evil',
    'deployment%3Bx=evil',
    'deployment;x=evil',
    'de_ploy-ment=evil',
    'api_version=evil',
    'apiVersion=evil',
    'api.version=evil',
    'api+version=evil',
    'API%2DVERSION=evil',
    'ta%C5%BFk=evil',
    'tas%E2%84%AA=evil',
    '%EF%BC%A4eployment=evil',
    'deployment%ff=evil',
  ])('cannot set a parameter of the operator’s again: %s', (piece) => {
    expect(joinQuery(PATH, piece)).toBe(PATH);
    expect(joinQuery(PATH, `a=1&${piece}&b=2`)).toBe(`${PATH}&a=1&b=2`);
  });

  test('cannot hide one behind a `;`', () => {
    expect(joinQuery(PATH, 'a=1;deployment=evil')).toBe(`${PATH}&a=1%3Bdeployment=evil`);
    expect(joinQuery('/v1/x', 'a=1;b=2')).toBe('/v1/x?a=1%3Bb=2');
  });

  test.each([
    'deployments=1',
    'mydeployment=1',
    'x[deployment]=1',
    'include[]=a&include[]=b',
    'a=%zz&%=1&=2&b',
    'after=deployment',
  ])('keeps what only looks like one: %s', (query) => {
    expect(joinQuery(PATH, query)).toBe(`${PATH}&${query}`);
  });

  test('alone is all there is', () => {
    expect(joinQuery('/v1/x', '')).toBe('/v1/x');
    expect(joinQuery('/v1/x', '&&')).toBe('/v1/x');
    expect(joinQuery(PATH, '')).toBe(PATH);
  });

  test('is never read by anybody as setting one again', () => {
    const readers: ((query: string) => string[])[] = [
      (query) => [...new URLSearchParams(query).keys()],
      (query) => [...new URLSearchParams(query.replaceAll(';', '&')).keys()],
      (query) => [...new URLSearchParams(query).keys()].map((name) => name.replace(/[.[].*$/s, '')),
      (query) =>
        [...new URLSearchParams(query).keys()]
          .map((name) => name.split('\0', 1)[0] ?? '')
          .map((name) => name.trim()),
    ];
    const piece = fc
      .array(
        fc.constantFrom(
          'deployment',
          'Deploy',
          'ment',
          '%64',
          'eployment',
          '[]',
          '.',
          '+',
          '%00',
          ';',
          '=',
          'x',
          '%5B',
          '%',
          '_',
        ),
        { minLength: 1, maxLength: 5 },
      )
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 4 }), (pieces) => {
        const [, query = ''] = joinQuery('/x?deployment=gpt', pieces.join('&')).split('?', 2);
        for (const read of readers) {
          const same = read(query).filter((name) => name.toLowerCase().replace(/[_-]/g, '') === 'deployment');
          expect(same).toHaveLength(1);
        }
      }),
      { numRuns: 500 },
    );
  });
});
