// Calls from web pages: preflights without a key, headers on every kind of answer, and nothing at all when it is off.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { Cors } from '../../src/http/cors.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { errorCode, Served } from './served.ts';

const PAGE = 'https://app.example.com';
let served: Served;
let origins: readonly string[];
let asked: string[];
beforeAll(async () => {
  served = await Served.start({
    cors: new Cors(() => origins),
    routes: (server) => {
      server.route('POST', '/v1/chat/completions', (exchange) => {
        asked.push(exchange.id);
        throw new GatewayError('invalid_api_key');
      });
      server.route('GET', '/busy', () => {
        throw new GatewayError('upstream_busy');
      });
      server.route('GET', '/fails', () => {
        throw new Error('inside');
      });
      server.route('GET', '/stream', ({ response, headers }) => {
        response.writeHead(200, { ...headers, 'content-type': 'text/event-stream' });
        response.end('data: [DONE]\n\n');
      });
    },
  });
});
afterAll(async () => {
  await served[Symbol.asyncDispose]();
});

type Headers = Record<string, string>;
async function ask(method: string, target: string, headers: Headers): Promise<RawResponse> {
  using client = await served.connect();
  return await client.ask({ method, target, headers });
}
const preflight = (headers: Headers = {}, target = '/v1/chat/completions') =>
  ask('OPTIONS', target, { origin: PAGE, 'access-control-request-method': 'POST', ...headers });
const words = (value: string | undefined) => (value ?? '').split(', ');
const corsHeaders = (response: RawResponse) =>
  response.headers.map(([name]) => name.toLowerCase()).filter((name) => name.startsWith('access-control-'));

const SDK = [
  'authorization',
  'content-type',
  'x-stainless-os',
  'x-stainless-lang',
  'x-stainless-retry-count',
  'x-stainless-package-version',
  'openai-organization',
  'openai-project',
  'openai-beta',
  'api-key',
];

describe.each([[[PAGE, 'https://other.example.com']], [['*']], [['https://x.example.com', '*']]])(
  'with %j',
  (list) => {
    beforeAll(() => {
      origins = list;
      asked = [];
    });

    test('a preflight is answered without a key, and nobody is asked', async () => {
      const response = await preflight({ 'access-control-request-headers': SDK.join(',') });
      expect([response.status, response.text(), response.header('content-length')]).toEqual([
        204,
        '',
        undefined,
      ]);
      expect(response.header('access-control-allow-origin')).toBe(list.includes('*') ? '*' : PAGE);
      expect(words(response.header('access-control-allow-methods'))).toEqual([
        'GET',
        'HEAD',
        'POST',
        'DELETE',
        'OPTIONS',
      ]);
      expect(words(response.header('access-control-allow-headers')).sort()).toEqual([...SDK].sort());
      expect(response.header('access-control-max-age')).toBe('86400');
      expect(response.header('access-control-allow-credentials')).toBeUndefined();
      expect(asked).toEqual([]);
    });

    test('names of headers are told whatever their spelling, and only those that may be sent', async () => {
      const response = await preflight({
        'access-control-request-headers': ' Authorization , X-Stainless-New-Thing, cookie, x-evil,*,',
      });
      expect(words(response.header('access-control-allow-headers'))).toEqual([
        'authorization',
        'x-stainless-new-thing',
      ]);
      const all = words((await preflight()).header('access-control-allow-headers'));
      expect(all).toEqual(expect.arrayContaining(SDK));
    });

    test.each([
      ['POST', '/v1/chat/completions', 401],
      ['GET', '/nowhere', 404],
      ['GET', '/v1/chat/completions', 405],
      ['PUT', '/health', 405],
      ['GET', '/health#x', 400],
      ['GET', '/busy', 503],
      ['GET', '/fails', 500],
      ['GET', '/health', 200],
      ['GET', '/stream', 200],
    ])('%s %s tells the page (%i)', async (method, target, status) => {
      const response = await ask(method, target, { origin: PAGE });
      expect(response.status).toBe(status);
      expect(response.header('access-control-allow-origin')).toBe(list.includes('*') ? '*' : PAGE);
      expect(response.header('vary')).toBe(list.includes('*') ? undefined : 'origin');
      expect(words(response.header('access-control-expose-headers'))).toEqual(
        expect.arrayContaining([
          'x-request-id',
          'retry-after',
          'retry-after-ms',
          'x-should-retry',
          'x-ratelimit-limit-requests',
          'x-ratelimit-remaining-tokens',
        ]),
      );
    });

    test('a preflight for a path that does not exist lets the page see the 404', async () => {
      expect((await preflight({}, '/nowhere')).status).toBe(204);
    });
  },
);

describe('with a list of origins', () => {
  beforeAll(() => {
    origins = [PAGE];
  });

  test.each([
    'https://evil.example.org',
    'https://app.example.com.evil.example.org',
    'http://app.example.com',
    'https://app.example.com:444',
    'https://APP.example.com',
    'null',
    '',
  ])('the origin "%s" is told nothing', async (origin) => {
    for (const response of [await ask('GET', '/health', { origin }), await preflight({ origin })]) {
      expect(corsHeaders(response)).toEqual([]);
      expect(response.header('vary')).toBe('origin');
    }
  });

  test('an answer to a program says that it depends on the origin, and no more', async () => {
    const response = await ask('GET', '/health', {});
    expect([response.header('vary'), corsHeaders(response)]).toEqual(['origin', []]);
  });

  test('OPTIONS of a program says what is allowed', async () => {
    const response = await ask('OPTIONS', '/health', {});
    expect([response.status, response.header('allow'), corsHeaders(response)]).toEqual([
      204,
      'GET, HEAD, OPTIONS',
      [],
    ]);
  });

  test('another list counts from the next request on', async () => {
    origins = ['https://new.example.com'];
    expect(corsHeaders(await ask('GET', '/health', { origin: PAGE }))).toEqual([]);
    const response = await ask('GET', '/health', { origin: 'https://new.example.com' });
    expect(response.header('access-control-allow-origin')).toBe('https://new.example.com');
  });
});

describe('without origins', () => {
  beforeAll(() => {
    origins = [];
  });

  test.each([
    ['/v1/chat/completions', 405, 'method_not_allowed', 'POST'],
    ['/health', 405, 'method_not_allowed', 'GET, HEAD'],
    ['/nowhere', 404, 'unknown_url', undefined],
  ])('a preflight for %s is %i', async (target, status, code, allow) => {
    const response = await preflight({}, target);
    expect([response.status, errorCode(response), response.header('allow')]).toEqual([status, code, allow]);
    expect(corsHeaders(response)).toEqual([]);
  });

  test('no answer speaks of it', async () => {
    const response = await ask('GET', '/health', { origin: PAGE });
    expect([response.header('vary'), corsHeaders(response)]).toEqual([undefined, []]);
  });
});
