// One request and its answer: whose API it speaks, how it is stopped, and the set of all that run.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { toOriginForm } from '../../src/http/exchange/absolute-form.ts';
import {
  anthropicErrorBody,
  asAnthropicError,
  statusOfError,
} from '../../src/http/exchange/anthropic-error.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { Exchanges } from '../../src/http/exchange/exchanges.ts';
import { preparedByRetryTime, retryTimeOf } from '../../src/http/exchange/retry-times.ts';
import { DecodeQueue } from '../../src/http/pieces/decode-queue.ts';

function exchange(given: Partial<Pick<IncomingMessage, 'method' | 'url' | 'headers'>> = {}): Exchange {
  const request = Object.assign(new IncomingMessage(new Socket()), given);
  return new Exchange(request, new ServerResponse(request), '192.0.2.1');
}

test('it contains what a Set would contain, in any order of add and delete', () => {
  const all = Array.from({ length: 12 }, () => exchange());
  const step = fc.record({ who: fc.nat(all.length - 1), leaves: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const exchanges = new Exchanges();
      const model = new Set<Exchange>();
      for (const { who, leaves } of steps) {
        const each = all[who];
        if (each === undefined) continue;
        if (leaves) {
          exchanges.delete(each);
          model.delete(each);
        } else if (!model.has(each)) {
          exchanges.add(each);
          model.add(each);
        }
        expect(exchanges.size).toBe(model.size);
        expect(new Set(exchanges)).toEqual(model);
      }
      for (const each of model) exchanges.delete(each);
      expect(exchanges.size).toBe(0);
    }),
    { numRuns: 300 },
  );
});

test('an exchange that leaves during an iteration is visited once', () => {
  const exchanges = new Exchanges();
  const all = Array.from({ length: 5 }, () => exchange());
  for (const each of all) exchanges.add(each);
  const seen: Exchange[] = [];
  for (const each of exchanges) {
    seen.push(each);
    for (const other of all) exchanges.delete(other);
  }
  expect(seen).toEqual(all);
  expect(exchanges.size).toBe(0);
});

describe('an exchange', () => {
  const REASON = new GatewayError('client_closed');

  test.each([
    ['/v1/messages', {}, true],
    ['/v1/messages/count_tokens', {}, true],
    ['/v1/models', { 'anthropic-version': '2023-06-01' }, true],
    ['/v1/models', { 'x-api-key': 'k' }, true],
    ['/v1/models', { 'x-api-key': 'k', authorization: 'Bearer k' }, false],
    ['/v1/models', {}, false],
    ['/v1/chat/completions', { 'x-api-key': 'k' }, false],
  ])('for %s with %j speaks the API of its client', (url, headers, isAnthropic) => {
    const made = exchange({ url, headers });
    expect([made.target, made.isAnthropic]).toEqual([url, isAnthropic]);
    const ids = { 'x-request-id': made.id, ...(isAnthropic && { 'request-id': made.id }) };
    expect(made.headers).toEqual(ids);
  });

  test('has an id of its own, and routes HEAD as GET', () => {
    const ids = Array.from({ length: 1000 }, () => exchange().id);
    for (const id of ids) expect(id).toMatch(/^req_[0-9a-f]{32}$/);
    expect(new Set(ids).size).toBe(1000);
    expect(['HEAD', 'GET', 'POST'].map((method) => exchange({ method }).method)).toEqual([
      'GET',
      'GET',
      'POST',
    ]);
  });

  test('tells those that listen once why it stops, whatever one of them throws', async () => {
    const made = exchange();
    const told: string[] = [];
    const gone = () => told.push('gone');
    made.onStop(gone);
    made.onStop(() => {
      told.push('first');
      throw new Error('of a listener');
    });
    made.onStop((reason) => told.push(reason.code));
    made.offStop(gone);
    made.throwIfStopped();
    const waiting = made.orStopped(new Promise(() => undefined));
    expect(() => made.stop(REASON)).toThrow('of a listener');
    made.stop(new GatewayError('draining'));
    expect([told, made.stopReason]).toEqual([['first', 'client_closed'], REASON]);
    await expect(waiting).rejects.toBe(REASON);
    await expect(made.orStopped(Promise.resolve(1))).rejects.toBe(REASON);
    expect(() => made.throwIfStopped()).toThrow(REASON);
    expect(() => made.checkClient()).toThrow(REASON);
  });

  test('that was answered does not stop, and its time ends', () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(1000);
    onTestFinished(() => now.mockRestore());
    const made = exchange();
    expect([made.answered, made.firstOutputMs]).toEqual([false, undefined]);
    for (const ms of [1010.4, 1030]) {
      now.mockReturnValue(ms);
      made.markFirstOutput();
    }
    now.mockReturnValue(1050);
    made.markAnswered();
    now.mockReturnValue(1090);
    made.markAnswered();
    made.stop(REASON);
    expect([made.answered, made.firstOutputMs, made.elapsed, made.stopReason]).toEqual([
      true,
      10,
      50,
      undefined,
    ]);
  });

  test('asks after 100 ms whether its client is there', async () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    onTestFinished(() => now.mockRestore());
    const made = exchange();
    now.mockReturnValue(100);
    expect(made.checkClient()).toBeUndefined();
    const reads: (() => void)[] = [];
    made.connection = {
      whenRead: (callback) => reads.push(callback),
      decodeQueue: new DecodeQueue(),
    };
    now.mockReturnValue(99);
    expect(made.checkClient()).toBeUndefined();
    now.mockReturnValue(100);
    const here = made.checkClient();
    reads[0]?.();
    await here;
    const left = made.checkClient();
    made.stop(REASON);
    reads[1]?.();
    await expect(left).rejects.toBe(REASON);
  });
});

describe("an error in Anthropic's form", () => {
  test.each([
    [400, 'invalid_request_error'],
    [401, 'authentication_error'],
    [402, 'billing_error'],
    [403, 'permission_error'],
    [404, 'not_found_error'],
    [413, 'request_too_large'],
    [422, 'invalid_request_error'],
    [429, 'rate_limit_error'],
    [500, 'api_error'],
    [502, 'api_error'],
    [503, 'overloaded_error'],
    [504, 'timeout_error'],
    [529, 'overloaded_error'],
  ])('of the status %i is of the type %s', (status, type) => {
    const body = JSON.parse(anthropicErrorBody({ status, message: 'why', code: 'own' }, 'req_1'));
    expect(body).toEqual({
      type: 'error',
      error: { type, message: 'why', code: 'own' },
      request_id: 'req_1',
    });
  });

  test('has the status of its type, and keeps what has its form', () => {
    const own = (type: unknown) => JSON.stringify({ type: 'error', error: { type, message: 'm' } });
    const statuses = ['timeout_error', 'overloaded_error', 'unheard_of', 'toString', 4]
      .map(own)
      .map(statusOfError);
    expect(statuses).toEqual([504, 529, 502, 502, 502]);
    const kept = Buffer.from(own('api_error'));
    expect(asAnthropicError(500, kept, 'req_1')).toBe(kept);
    const made = asAnthropicError(404, Buffer.from('{"error":{"message":"no such model"}}'), 'req_1');
    expect(JSON.parse(String(made))).toEqual({
      type: 'error',
      error: { type: 'not_found_error', message: 'no such model' },
      request_id: 'req_1',
    });
  });
});

describe('a target in absolute form', () => {
  const read = (url: string, ...hosts: string[]) => {
    const request = new IncomingMessage(new Socket());
    request.url = url;
    request.rawHeaders.push('Accept', 'host', ...hosts.flatMap((host) => ['Host', host]));
    if (hosts[0] !== undefined) request.headers.host = hosts[0];
    return [toOriginForm(request), request.url, request.headers.host, request.rawHeaders.slice(2)];
  };

  test.each([
    ['http://gw:80/v1/models?a=b', '/v1/models?a=b', 'gw:80'],
    ['HTTPS://[::1]', '/', '[::1]'],
    ['http://gw?a', '/?a', 'gw'],
  ])('%s becomes its path, and Host its authority', (url, path, host) => {
    expect(read(url, 'other')).toEqual([path, path, host, ['Host', host]]);
  });

  test('without Host adds none', () => {
    expect(read('http://gw/a')).toEqual(['/a', '/a', undefined, []]);
  });

  test.each([
    ['/v1/models', 'gw'],
    ['http://user@gw/a', 'gw'],
    [`http://${'a'.repeat(262)}/a`, 'gw'],
    ['ftp://gw/a', 'gw'],
    ['*', 'gw'],
    ['http://gw/a', 'b a d'],
  ])('%s with the Host %s stays', (url, host) => {
    expect(read(url, host)).toEqual([url, url, host, ['Host', host]]);
  });
});

test('clients come back at eight times, by their ports', () => {
  const ports = [...Array.from({ length: 9 }, (_, at) => 40_000 + 2 * at), 40_001];
  expect([
    ...ports.map((remotePort) => retryTimeOf({ remotePort })),
    retryTimeOf({ remotePort: undefined }),
  ]).toEqual([2000, 2250, 2500, 2750, 3000, 3250, 3500, 3750, 2000, 2000, 2000]);
  const prepared: number[] = [];
  const timeFor = preparedByRetryTime((ms) => `${prepared.push(ms)}: ${ms}`);
  expect([timeFor({ remotePort: 40_002 }), timeFor({ remotePort: 40_002 }), prepared.length]).toEqual([
    '2: 2250',
    '2: 2250',
    8,
  ]);
});
