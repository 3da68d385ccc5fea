import { describe, expect, test } from 'vitest';
import { MODEL_ENDPOINTS } from '../../src/proxy/endpoints/form-endpoints.ts';
import { RESPONSES } from '../../src/proxy/endpoints/json-endpoints.ts';
import { SPEECH } from '../../src/proxy/endpoints/media-endpoints.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';
import { estimateTokens } from '../../src/proxy/request/token-estimate.ts';

function estimate(request: object | string) {
  const body = Buffer.from(typeof request === 'string' ? request : JSON.stringify(request));
  return { ...estimateTokens(scanRequest(body)), bytes: body.length };
}

const user = (content: unknown) => ({ model: 'm', messages: [{ role: 'user', content }] });

test.each([
  ['its characters', '{"model":"m","input":"h\\u00e9 😀"}', 4],
  ['what stands in the place of its text, in bytes', '{"model":"m","input":["hello","world"]}', 17],
  ['all of it, where another member may have the text', '{"model":"m","text":"hello"}', 28],
])('speech counts %s', (_, text, characters) => {
  const body = Buffer.from(text);
  const { estimate: counted, quantities } = SPEECH.readFacts(body, scanRequest(body, SPEECH.wanted));
  expect([counted.prompt, quantities?.characters]).toEqual([characters, characters]);
});

test('a file of sound counts a second for ten tokens', () => {
  const { form } = MODEL_ENDPOINTS.find(({ path }) => path === 'audio/transcriptions') ?? {};
  const facts = form?.readFacts({ text: () => undefined, files: 1, textBytes: 400, bytes: 160_400 });
  expect([facts?.estimate.prompt, facts?.quantities?.milliseconds]).toEqual([200, 10_000]);
});

describe('the estimate of a request', () => {
  test('is a token for four bytes, and what the client allows the answer', () => {
    const { prompt, completion, isBounded, bytes } = estimate({ ...user('Hello'), max_tokens: 100 });
    expect([prompt, completion, isBounded]).toEqual([Math.ceil(bytes / 4), 100, true]);
  });

  test.each([
    ['the newer name counts', { max_tokens: 5, max_completion_tokens: 7 }, 7, true],
    ['in any order', { max_completion_tokens: 7, max_tokens: 5 }, 7, true],
    ['null is no number', { max_completion_tokens: null, max_tokens: 5 }, 5, true],
    ['each of several answers counts', { max_tokens: 5, n: 3 }, 15, true],
    ['nothing said', {}, 256, false],
    ['null', { max_tokens: null }, 256, false],
    ['no bound, as some servers write it', { max_tokens: -1 }, 256, false],
    ['zero', { max_tokens: 0 }, 256, false],
    [
      'the larger one, as an upstream may know only one',
      { max_tokens: 9000, max_completion_tokens: 7 },
      9000,
      true,
    ],
    ['a number in a string', { max_tokens: '100000', n: '10' }, 1_000_000, true],
    ['a fraction in a string, with space', { max_tokens: ' +1.5e3\n', n: '2.' }, 3000, true],
  ])('%s', (_, fields, completion, isBounded) => {
    expect(estimate({ ...user('Hello'), ...fields })).toMatchObject({ completion, isBounded });
  });

  test('numbers as they may be spelled', () => {
    expect(estimate('{"model":"m","max_tokens":1e3,"n": 2 }').completion).toBe(2000);
    expect(estimate('{"model":"m","max_tokens":10.0}').completion).toBe(10);
    expect(estimate('{"model":"m","n":1E1,"max_tokens":100000.00000000000}').completion).toBe(1_000_000);
    expect(estimate('{"model":"m","max_tokens":"\\u0031\\u0030"}').completion).toBe(10);
    expect(estimate('{"model":"m","max_tokens":10.2,"n":1.5}').completion).toBe(22);
  });

  test('stays exact however much is asked for', () => {
    const { completion } = estimate('{"model":"m","max_tokens":999999999999,"n":999999999999}');
    expect(Number.isSafeInteger(Math.floor(completion) * 1024)).toBe(true);
  });

  test.each([
    ['max_tokens', '{"a":1}', 'invalid_type'],
    ['max_tokens', '[100000]', 'invalid_type'],
    ['max_completion_tokens', 'true', 'invalid_type'],
    ['max_tokens', '"many"', 'invalid_type'],
    ['max_tokens', '"0x100000"', 'invalid_type'],
    ['max_tokens', '"1_000_000"', 'invalid_type'],
    ['max_tokens', '"\uff11\uff10"', 'invalid_type'],
    ['max_tokens', '""', 'invalid_type'],
    ['max_tokens', `1${'0'.repeat(300)}`, 'invalid_value'],
    ['n', 'true', 'invalid_type'],
    ['n', '[10]', 'invalid_type'],
    ['n', '"ten"', 'invalid_type'],
    ['n', '-4294967286', 'invalid_value'],
    ['n', '0', 'invalid_value'],
    ['n', '"-10"', 'invalid_value'],
    ['n', '0.5', 'invalid_value'],
  ])('is refused where a reader could take another number: %s %s', (name, value, code) => {
    const body = Buffer.from(`{"model":"m","${name}":${value}}`);
    expect(() => scanRequest(body)).toThrow(expect.objectContaining({ code, param: name }));
  });

  test.each([
    ['"max_output_tokens":"5000"', 5000, true],
    ['"max_output_tokens":5e3', 5000, true],
    ['"max_output_tokens":null', 256, false],
    ['"max_output_tokens":-1', 256, false],
  ])('of a response: %s', (member, completion, isBounded) => {
    const body = Buffer.from(`{"model":"m",${member}}`);
    const { estimate: found } = RESPONSES.readFacts(body, scanRequest(body, RESPONSES.wanted));
    expect(found).toMatchObject({ completion, isBounded });
  });

  test.each([
    ['"max_output_tokens":true', 'max_output_tokens', 'invalid_type'],
    ['"max_output_tokens":"many"', 'max_output_tokens', 'invalid_type'],
    ['"background":"true"', 'background', 'invalid_type'],
    ['"store":0', 'store', 'invalid_type'],
  ])('of a response is refused: %s', (member, param, code) => {
    const body = Buffer.from(`{"model":"m",${member}}`);
    expect(() => RESPONSES.readFacts(body, scanRequest(body, RESPONSES.wanted))).toThrow(
      expect.objectContaining({ code, param }),
    );
  });

  test('stays exact however huge a number is', () => {
    for (const number of ['1e400', '9'.repeat(200), '"1e99999"']) {
      const { completion } = estimate(`{"model":"m","max_tokens":${number},"n":${number}}`);
      expect(completion).toBeGreaterThan(1e11);
      expect(Number.isSafeInteger(Math.floor(completion) * 1024)).toBe(true);
    }
  });
});
