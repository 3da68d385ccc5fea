// What an upstream's refusal means, as a table.
import { describe, expect, test } from 'vitest';
import {
  blameFor,
  judgeErrorObject,
  judgeErrorResponse,
  relayedHeaders,
} from '../../src/upstream/error-outcome.ts';

const OBJECT = '{"error":{"message":"m","type":"t","param":null,"code":"c"}}';
const judge = (status: number, body = OBJECT, headers = {}) =>
  judgeErrorResponse(status, headers, Buffer.from(body));

test.each(['client_closed', 'invalid_form', 'request_timeout', 'request_too_large', 'draining'] as const)(
  '%s is no fault of the upstream',
  (code) => {
    expect(blameFor(code)).toEqual({ kind: 'neutral' });
  },
);

describe('a status', () => {
  test.each([
    [400, 'upstream_error', 400, false],
    [401, 'upstream_auth_error', 406, true],
    [402, 'upstream_account_error', 406, true],
    [403, 'upstream_error', 403, true],
    [404, 'upstream_error', 404, false],
    [408, 'upstream_error', 408, true],
    [409, 'upstream_error', 409, false],
    [413, 'upstream_error', 413, false],
    [422, 'upstream_error', 422, false],
    [429, 'upstream_error', 429, true],
    [498, 'upstream_error', 498, false],
    [500, 'upstream_error', 500, true],
    [529, 'upstream_error', 529, true],
    [599, 'upstream_error', 599, true],
    [201, 'upstream_invalid_response', 502, true],
    [204, 'upstream_invalid_response', 502, true],
    [301, 'upstream_invalid_response', 502, true],
    [399, 'upstream_invalid_response', 502, true],
    [600, 'upstream_invalid_response', 502, true],
    [999, 'upstream_invalid_response', 502, true],
  ])('%i is %s with %i, another target may be asked: %s', (status, code, shown, next) => {
    const failure = judge(status);
    expect([failure.error.code, failure.error.status, failure.tryNextTarget]).toEqual([code, shown, next]);
    expect(failure.verbatim?.status).toBe(code === 'upstream_error' ? status : undefined);
  });
});

describe('a body', () => {
  test.each([
    OBJECT,
    '{"error":{"message":"m"}}',
    ' {"error": {"code": 400, "message": ""}}\n',
    '{"error":{"message":"m","code":12345678901234567890}}',
  ])('that is an error object is shown as it is: %s', (body) => {
    expect(judge(400, body).verbatim?.body.toString()).toBe(body);
  });

  test.each([
    '',
    'null',
    '[]',
    '{}',
    '{"error":null}',
    '{"error":{}}',
    '{"error":{"message":5}}',
    '<html>',
    '{"error":{"message":"m"',
    '{"message":""}',
    '[[]]',
    '{"detail":[{"loc":1}]}',
  ])('that is none is not shown: %s', (body) => {
    expect(judge(500, body).verbatim).toBeUndefined();
  });

  test.each([
    '{"error":"boom"}',
    '{"message":"boom"}',
    '{"detail":"boom"}',
    '[{"error":{"message":"boom"}}]',
    '{"object":"error","message":"boom","code":400}',
  ])('in another shape is put into one: %s', (body) => {
    expect(JSON.parse(judge(503, body).verbatim?.body.toString() ?? '')).toEqual({
      error: { message: 'boom', type: 'server_error', param: null, code: null },
    });
  });

  test.each([
    ['a byte order mark before it', '\ufeff{"error":"boom"}', 'boom'],
    [
      'Spring',
      '{"timestamp":"t","status":400,"error":"Bad Request","message":"n must be 1","path":"/v1"}',
      'Bad Request: n must be 1',
    ],
    [
      'NestJS',
      '{"statusCode":400,"message":["n is 0","m is null"],"error":"Bad Request"}',
      'Bad Request: n is 0; m is null',
    ],
    [
      'OAuth',
      '{"error":"invalid_grant","error_description":"The code is old."}',
      'invalid_grant: The code is old.',
    ],
    ['one text twice', '{"error":"boom","message":"boom"}', 'boom'],
    [
      'ASP.NET',
      '{"type":"https://x","title":"Validation failed.","status":400,"errors":{"n":["too large","odd"],"m":["missing"]}}',
      'n: too large; odd; m: missing',
    ],
    ['problem details', '{"type":"about:blank","title":"Not Found","status":404}', 'Not Found'],
  ])('has the whole text of other shapes: %s', (_, body, message) => {
    const shown = JSON.parse(judge(400, body).verbatim?.body.toString() ?? '');
    expect(shown).toMatchObject({ error: { message } });
  });

  test('with a byte order mark before an error object is shown as it is', () => {
    const body = `\ufeff${OBJECT}`;
    expect(judge(400, body).verbatim?.body.toString()).toBe(body);
  });

  test('of a refused credential is never shown', () => {
    const permission = '{"error":{"message":"m","type":"permission_error"}}';
    for (const [status, body] of [
      [401, OBJECT],
      [403, permission],
    ] as const) {
      expect(judge(status, body, { 'retry-after': '1' })).toMatchObject({ headers: {} });
      expect(judge(status, body)).not.toHaveProperty('verbatim');
    }
  });
});

describe('headers', () => {
  test('of the list are relayed, in one spelling, and no others', () => {
    const all = {
      'retry-after': '7',
      'retry-after-ms': '7000',
      'x-should-retry': 'true',
      'openai-processing-ms': '5',
      'openai-version': 'v',
      'set-cookie': ['a=b'],
      server: 's',
      'x-ratelimit-limit-requests': '1',
      'content-encoding': 'gzip',
      'content-length': '5',
    };
    expect(Object.keys(relayedHeaders(all))).toEqual(Object.keys(all).slice(0, 5));
  });

  test('that came twice or were named by `connection` are not', () => {
    expect(
      relayedHeaders({ 'openai-version': ['a', 'b'], 'retry-after': '1', connection: 'close, Retry-After' }),
    ).toEqual({});
    expect(relayedHeaders({ 'retry-after': '1', connection: ['x', 'retry-after'] })).toEqual({});
  });

  test.each<[Record<string, string>, Record<string, string>]>([
    [{}, { 'retry-after': '1' }],
    [{ 'retry-after': '0' }, { 'retry-after': '1' }],
    [{ 'retry-after': 'soon' }, { 'retry-after': '1' }],
    [{ 'retry-after': 'Wed, 21 Oct 2015 07:28:00 GMT' }, { 'retry-after': '1' }],
    // V8 reads a time of 2001 in these words, as SDKs do.
    [{ 'retry-after': 'try again at 12' }, { 'retry-after': '1' }],
    [{ 'retry-after': '30' }, { 'retry-after': '30' }],
    [{ 'retry-after': '86400' }, { 'retry-after': '86400' }],
    [{ 'retry-after-ms': '1500' }, { 'retry-after-ms': '1500', 'retry-after': '2' }],
    [{ 'retry-after-ms': '0' }, { 'retry-after': '1' }],
    [{ 'x-should-retry': 'false' }, { 'x-should-retry': 'false' }],
    [{ 'retry-after': 'Wed, 21 Oct 2099 07:28:00 GMT' }, { 'retry-after': 'Wed, 21 Oct 2099 07:28:00 GMT' }],
  ])('%o say on a 429: %o', (headers, expected) => {
    expect(judge(429, OBJECT, headers).headers).toEqual(expected);
  });

  test('say nothing about waiting where it is not asked for', () => {
    expect(judge(500).headers).toEqual({});
    expect(judge(400).headers).toEqual({});
  });
});

describe('an error object with status 200', () => {
  test.each([
    ['{"error":{"message":"m","code":429}}', 429],
    ['{"error":{"message":"m","code":"503"}}', 503],
    ['{"error":{"message":"m","code":"x","status":418}}', 418],
    ['{"error":{"message":"m","status_code":422}}', 422],
    ['{"error":{"message":"m","code":200}}', 502],
    ['{"error":{"message":"m","code":1e3}}', 502],
    ['{"error":{"message":"m","code":"4e2"}}', 502],
    ['{"error":"text"}', 502],
    ['not json', 502],
  ])('%s is a %i', (text, status) => {
    expect(judgeErrorObject(text, {}).error.status).toBe(status);
  });

  test('that names 401 is about the operator’s key all the same', () => {
    expect(judgeErrorObject('{"error":{"message":"m","code":401}}', {}).error.code).toBe(
      'upstream_auth_error',
    );
  });
});
