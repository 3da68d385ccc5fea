// Forms and the same as JSON, and where a form may come from.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { readPageForm, requireSameOrigin } from '../../src/http/page-form.ts';
import { errorCode, Served } from './served.ts';

let served: Served;
beforeAll(async () => {
  served = await Served.start({
    routes: (server) => {
      server.route('POST', '/form', async (exchange) => {
        requireSameOrigin(exchange, 'https://gate.example.com');
        const form = await readPageForm(exchange);
        answerJson(exchange, 200, {
          kind: form.kind,
          tier: form.get('tier') ?? null,
          proto: form.get('__proto__') ?? null,
        });
      });
    },
  });
});
afterAll(async () => {
  await served[Symbol.asyncDispose]();
});

const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';

async function post(
  type: string | undefined,
  body: string | Buffer,
  headers: Record<string, string> = {},
  host = 'a',
) {
  using client = await served.connect();
  const typed = type === undefined ? {} : { 'content-type': type };
  return await client.ask({ target: '/form', body, headers: { ...typed, ...headers }, host });
}

describe('a form', () => {
  test.each([
    [FORM_TYPE, 'tier=Free', 'form', 'Free'],
    [`${FORM_TYPE}; charset=UTF-8`, 'x=1&tier=a+b%26c', 'form', 'a b&c'],
    [FORM_TYPE.toUpperCase(), 'tier=1&tier=2', 'form', '1'],
    [FORM_TYPE, '', 'form', null],
    [JSON_TYPE, '{"tier":"Free"}', 'json', 'Free'],
    [`${JSON_TYPE};charset=utf-8`, '{"tier":5}', 'json', null],
    [JSON_TYPE, '{}', 'json', null],
    [JSON_TYPE, '{"tier":null}', 'json', null],
  ])('labelled %s with %s is read', async (type, body, kind, tier) => {
    expect((await post(type, body)).json()).toEqual({ kind, tier, proto: null });
  });

  test('has only its own fields', async () => {
    expect((await post(JSON_TYPE, '{"__proto__":"x"}')).json()).toMatchObject({ proto: 'x' });
    expect((await post(JSON_TYPE, '{"constructor":1}')).json()).toMatchObject({ proto: null });
  });

  test.each([
    [JSON_TYPE, '', 400, 'invalid_json'],
    [JSON_TYPE, '{', 400, 'invalid_json'],
    [JSON_TYPE, Buffer.from('{"tier":"\xff"}', 'latin1'), 400, 'invalid_json'],
    [JSON_TYPE, '[]', 400, 'invalid_body'],
    [JSON_TYPE, 'null', 400, 'invalid_body'],
    [JSON_TYPE, '"x"', 400, 'invalid_body'],
    ['text/plain', 'tier=Free', 400, 'unsupported_content_type'],
    ['', 'tier=Free', 400, 'unsupported_content_type'],
    ['multipart/form-data; boundary=x', '--x--', 400, 'unsupported_content_type'],
    [FORM_TYPE, `tier=${'x'.repeat(16 * 1024)}`, 413, 'request_too_large'],
  ])('labelled "%s" that is unusable is rejected', async (type, body, status, code) => {
    const response = await post(type, body);
    expect([response.status, errorCode(response)]).toEqual([status, code]);
  });
});

describe('the origin of a form', () => {
  test.each([
    ['a program', {}, 'a'],
    ['its own page', { origin: 'https://gate.example.com' }, 'gate.example.com'],
    [
      'its own page, as browsers say now',
      { origin: 'https://gate.example.com', 'sec-fetch-site': 'same-origin' },
      'x',
    ],
    ['an address bar', { 'sec-fetch-site': 'none' }, 'a'],
    ['another name of the host', { origin: 'http://127.0.0.1:8080' }, '127.0.0.1:8080'],
    ['an IPv6 host', { origin: 'http://[::1]:8080' }, '[::1]:8080'],
  ])('%s is accepted', async (_who, headers, host) => {
    expect((await post(FORM_TYPE, 'tier=Free', headers, host)).status).toBe(200);
  });

  test.each([
    ['another site', { origin: 'https://evil.example.org' }, 'gate.example.com'],
    ['a name that begins alike', { origin: 'https://gate.example.com.evil.example.org' }, 'gate.example.com'],
    ['another port', { origin: 'https://gate.example.com:444' }, 'gate.example.com'],
    ['a page without an origin', { origin: 'null' }, 'gate.example.com'],
    ['what a browser calls cross-site', { 'sec-fetch-site': 'cross-site' }, 'a'],
    ['a sister domain', { origin: 'https://gate.example.com', 'sec-fetch-site': 'same-site' }, 'a'],
    ['no origin at all', { origin: '' }, 'a'],
  ])('%s is rejected', async (_who, headers, host) => {
    const response = await post(FORM_TYPE, 'tier=Free', headers, host);
    expect([response.status, errorCode(response)]).toEqual([403, 'cross_origin_form']);
  });
});
