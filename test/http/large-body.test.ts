// How a large body is read: into memory that its reader gives, in turns that leave room for everybody else.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { PACE, readBody } from '../../src/http/body/read-body.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { LARGE_BODY, type LargeBody } from '../../src/http/pieces/body-buffer.ts';
import { BufferPool, type PooledBuffer } from '../../src/http/pieces/buffer-pool.ts';
import { until } from '../helpers/wait.ts';
import { Served } from './served.ts';

const MIB = 1024 * 1024;
const LIMIT = 16 * MIB;

/** As the road of a request keeps a body, with a note of what came in which turn of the event loop. */
class Kept implements LargeBody {
  readonly sizes: number[] = [];
  readonly turns: number[] = [];
  /** When each piece came, in monotonic milliseconds. */
  readonly times: number[] = [];
  /** Of the memory that was read into last. */
  prefix = '';
  readonly #pool = new BufferPool();
  readonly #slabs: PooledBuffer[] = [];
  #turn = 0;
  #clock: NodeJS.Immediate;

  constructor() {
    const tick = () => {
      this.#turn += 1;
      this.#clock = setImmediate(tick);
    };
    this.#clock = setImmediate(tick);
  }

  take(bytes: number): Buffer {
    const slab = this.#pool.take(bytes);
    this.#slabs.push(slab);
    return slab.bytes;
  }

  arrived(bytes: Buffer, size: number): void {
    this.sizes.push(size);
    this.turns.push(this.#turn);
    this.times.push(performance.now());
    this.prefix = bytes.toString('latin1', 0, 8);
  }

  release(): void {
    clearImmediate(this.#clock);
    for (const slab of this.#slabs) slab.release();
  }
}

/** @param beside another request is under way meanwhile */
async function post(body: Buffer, headers: Record<string, string | number>, { beside = false } = {}) {
  const kept = new Kept();
  const whole = Promise.withResolvers<void>();
  let status = 0;
  let digest = '';
  await using served = await Served.start({
    routes: (server) => {
      server.route('GET', '/slow', async (exchange) => {
        await whole.promise;
        answerJson(exchange, 200, {});
      });
      server.route('POST', '/large', async (exchange) => {
        try {
          const read = await readBody(exchange, LIMIT, PACE, kept);
          digest = createHash('sha256').update(read).digest('hex');
        } finally {
          whole.resolve();
          kept.release();
        }
        answerJson(exchange, 200, {});
      });
    },
  });
  const other = beside ? fetch(`${served.url}/slow`) : undefined;
  if (beside) await until(() => served.server.inFlight === 1);
  await new Promise<void>((resolve, reject) => {
    const sent = httpRequest(`${served.url}/large`, { method: 'POST', headers });
    sent.once('response', (response) => {
      status = response.statusCode ?? 0;
      response.resume().once('close', resolve);
    });
    sent.once('error', reject);
    sent.end(body);
  });
  expect((await other)?.status).toBe(beside ? 200 : undefined);
  return { kept, status, digest };
}

const BODY = Buffer.from('0123456789abcdef-'.repeat((8 * MIB) / 17));
const DIGEST = createHash('sha256').update(BODY).digest('hex');

test.each([
  ['of a known length', { 'content-length': BODY.length }, BODY],
  ['in chunks', { 'transfer-encoding': 'chunked' }, BODY],
  ['as gzip', { 'content-encoding': 'gzip' }, gzipSync(BODY)],
  ['as zstd', { 'content-encoding': 'zstd' }, zstdCompressSync(BODY)],
])('a body %s is read into the memory that was given, and told of as it comes', async (_, headers, bytes) => {
  const { kept, status, digest } = await post(bytes, headers);
  expect(status).toBe(200);
  expect(digest).toBe(DIGEST);
  expect(kept.prefix).toBe('01234567');
  expect(kept.sizes.length).toBeGreaterThan(20);
  expect(kept.sizes).toEqual(kept.sizes.toSorted((a, b) => a - b));
  expect(kept.sizes[0]).toBeLessThanOrEqual(2 * LARGE_BODY);
  expect(kept.sizes.at(-1)).toBe(BODY.length);
});

test('no turn of the event loop takes more than some pieces of it', async () => {
  const { kept } = await post(BODY, { 'content-length': BODY.length });
  const perTurn = new Map<number, number>();
  for (const [index, turn] of kept.turns.entries()) {
    const came = (kept.sizes[index] ?? 0) - (kept.sizes[index - 1] ?? 0);
    perTurn.set(turn, (perTurn.get(turn) ?? 0) + came);
  }
  // What is under way when it stops is a piece more, and the first one brings what came before it was large.
  expect(Math.max(...perTurn.values())).toBeLessThanOrEqual(512 * 1024);
  expect(perTurn.size).toBeGreaterThanOrEqual(BODY.length / (512 * 1024));
});

test.each([
  ['of a known length', { 'content-length': BODY.length }, BODY],
  ['as gzip', { 'content-encoding': 'gzip' }, gzipSync(BODY)],
])('a body %s rests while another request is under way', async (_, headers, bytes) => {
  const { kept, digest } = await post(bytes, headers, { beside: true });
  expect(digest).toBe(DIGEST);
  const rests = kept.times.filter((time, index) => time - (kept.times[index - 1] ?? time) >= 0.9);
  expect(rests.length).toBeGreaterThanOrEqual(BODY.length / (512 * 1024));
});

test('one that is too large is refused, and its memory is given back', async () => {
  const { kept, status } = await post(Buffer.alloc(LIMIT + 1, 'x'), { 'transfer-encoding': 'chunked' });
  expect(status).toBe(413);
  expect(kept.sizes.at(-1)).toBeGreaterThan(LIMIT / 2);
  expect(kept.sizes.at(-1)).toBeLessThanOrEqual(LIMIT);
});

describe.each(['in chunks', 'compressed', 'of a known length'])(
  'a body that ends with the piece by which it is large, %s',
  (how) => {
    const text = Buffer.alloc(LARGE_BODY + 500, 'x');
    const headers = {
      'in chunks': { 'transfer-encoding': 'chunked' },
      compressed: { 'content-encoding': 'gzip' },
      'of a known length': { 'content-length': text.length },
    }[how];

    /** @param admission what becomes of it, which takes a turn of the event loop */
    async function order(admission: () => void): Promise<{ status: number; order: string[] }> {
      const order: string[] = [];
      const kept = new Kept();
      await using served = await Served.start({
        routes: (server) => {
          server.route('POST', '/large', async (exchange) => {
            const { request } = exchange;
            const admit = async (): Promise<void> => {
              await until(() => request.complete, 'the whole request');
              await nextTurn();
              order.push('decided');
              admission();
            };
            // As where the key is checked meanwhile: its end is known when the last piece is read.
            await until(() => request.complete, 'the whole request');
            const large: LargeBody = { take: (n) => kept.take(n), arrived: () => {}, admit };
            const read = await readBody(exchange, LIMIT, PACE, large);
            order.push(`read ${read.length}`);
            answerJson(exchange, 200, {});
          });
        },
      });
      const sent = httpRequest(`${served.url}/large`, { method: 'POST', headers });
      sent.end(how === 'compressed' ? gzipSync(text) : text);
      const [answer]: IncomingMessage[] = await once(sent, 'response');
      answer?.resume();
      kept.release();
      return { status: answer?.statusCode ?? 0, order };
    }

    test('is read when it is admitted', async () => {
      expect(await order(() => {})).toEqual({ status: 200, order: ['decided', `read ${text.length}`] });
    });

    test('is not read when it is rejected', async () => {
      const reject = () => {
        throw new GatewayError('rate_limit_exceeded');
      };
      expect(await order(reject)).toEqual({ status: 429, order: ['decided'] });
    });
  },
);
