// Reading bodies on the wire: codings, limits, deadlines, 100 Continue.
import { setTimeout as sleep } from 'node:timers/promises';
import * as zlib from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { errorCode, LIMIT, Served } from './served.ts';

let served: Served;
beforeAll(async () => {
  served = await Served.start();
});
afterAll(async () => {
  await served[Symbol.asyncDispose]();
});

const TEXT = Buffer.from('{"model":"m","messages":[]}');
/** The best quality takes seconds for a bomb. */
const QUICK_BROTLI = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 } };
const ENCODERS = {
  gzip: (bytes: Buffer) => zlib.gzipSync(bytes),
  'x-gzip': (bytes: Buffer) => zlib.gzipSync(bytes),
  deflate: (bytes: Buffer) => zlib.deflateSync(bytes),
  br: (bytes: Buffer) => zlib.brotliCompressSync(bytes, QUICK_BROTLI),
  zstd: (bytes: Buffer) => zlib.zstdCompressSync(bytes),
} as const;
const CODINGS = ['gzip', 'x-gzip', 'deflate', 'br', 'zstd'] as const;

/** The answer of `/echo` to these bytes as they are, by length or in chunks of 1000 bytes. */
async function echo(bytes: Buffer, coding?: string, chunked = false): Promise<RawResponse> {
  using client = await served.connect();
  const headers = [
    'host: a',
    ...(coding === undefined ? [] : [`content-encoding: ${coding}`]),
    chunked ? 'transfer-encoding: chunked' : `content-length: ${bytes.length}`,
  ];
  await client.write(`POST /echo HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`);
  // Refused while it is being sent: that is the point of some of these.
  await (chunked ? client.write(chunks(bytes)) : client.write(bytes)).catch(() => undefined);
  return await client.response();
}

function chunks(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += 1000) {
    const part = bytes.subarray(at, at + 1000);
    parts.push(Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n'));
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

const read = (bytes: Buffer) => ({ bytes: bytes.length, start: bytes.toString('latin1', 0, 32) });

describe('codings', () => {
  test.each(CODINGS)('%s is decoded', async (coding) => {
    for (const chunked of [false, true]) {
      const response = await echo(ENCODERS[coding](TEXT), coding, chunked);
      expect([response.status, response.json()]).toEqual([200, read(TEXT)]);
    }
    expect((await echo(ENCODERS[coding](TEXT), coding.toUpperCase())).json()).toEqual(read(TEXT));
    expect((await echo(ENCODERS[coding](Buffer.alloc(0)), coding)).json()).toEqual(read(Buffer.alloc(0)));
  });

  test.each([undefined, 'identity', 'Identity', ''])('"%s" is not decoded', async (coding) => {
    expect((await echo(TEXT, coding)).json()).toEqual(read(TEXT));
  });

  test.each([
    'foo',
    'gzip, gzip',
    'gzip,',
    'compress',
    'aws-chunked',
    'gzip;q=1',
    '__proto__',
    'constructor',
    '*',
  ])('"%s" is not supported', async (coding) => {
    const response = await echo(TEXT, coding);
    expect(response.status).toBe(415);
    expect(errorCode(response)).toBe('unsupported_content_encoding');
  });

  test.each(CODINGS)('corrupt %s is rejected', async (coding) => {
    const good = ENCODERS[coding](Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * 7919) % 251)));
    const flipped = Buffer.from(good);
    for (let i = 10; i < flipped.length; i += 1) flipped[i] = 0xff;
    for (const bytes of [
      TEXT,
      flipped,
      good.subarray(0, good.length >> 1),
      good.subarray(0, good.length - 1),
    ]) {
      const response = await echo(bytes, coding);
      expect(errorCode(response)).toBe('corrupt_content_encoding');
      expect(response.status).toBe(400);
    }
  });

  test.each(CODINGS)('a decompression bomb of %s is rejected', async (coding) => {
    const bomb = ENCODERS[coding](Buffer.alloc(LIMIT * 1000));
    expect(bomb.length).toBeLessThan(LIMIT + 1000);
    const before = process.memoryUsage().arrayBuffers;
    const response = await echo(bomb, coding);
    expect(errorCode(response)).toBe('request_too_large');
    expect(response.status).toBe(413);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20_000_000);
  });

  test('the connection still works after a complete decompression bomb', async () => {
    using client = await served.connect();
    // Large enough before it explodes that the decoder does not keep up with what came.
    const noise = Buffer.from(Array.from({ length: 80_000 }, (_, i) => (i * i * 7919) >> 5));
    const bomb = zlib.gzipSync(Buffer.concat([noise, Buffer.alloc(LIMIT * 10)]));
    expect(bomb.length).toBeLessThan(LIMIT);
    await client.write(
      `POST /echo HTTP/1.1\r\nhost: a\r\ncontent-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`,
    );
    await client.write(bomb);
    const response = await client.response();
    expect(response.status).toBe(413);
    if (response.header('connection') === 'close') await client.closed;
    else expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('zstd with too large a window is rejected', async () => {
    const { ZSTD_c_windowLog, ZSTD_c_contentSizeFlag } = zlib.constants;
    const options = { params: { [ZSTD_c_windowLog]: 27, [ZSTD_c_contentSizeFlag]: 0 } };
    const parts: Buffer[] = [];
    await new Promise<void>((resolve) => {
      const encoder = zlib.createZstdCompress(options);
      encoder.on('data', (part: Buffer) => parts.push(part)).on('end', resolve);
      encoder.write(Buffer.alloc(1000, 'a'));
      encoder.flush(() => encoder.end(TEXT));
    });
    expect(errorCode(await echo(Buffer.concat(parts), 'zstd'))).toBe('corrupt_content_encoding');
  });

  test('any body is decoded alike in any coding and any pieces', async () => {
    using client = await served.connect();
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 3000 }),
        fc.constantFrom(...CODINGS),
        fc.array(fc.nat({ max: 3000 }), { maxLength: 3 }),
        async (content, coding, cuts) => {
          const body = Buffer.from(content);
          const bytes = ENCODERS[coding](body);
          await client.write(
            `POST /echo HTTP/1.1\r\nhost: a\r\ncontent-encoding: ${coding}\r\ncontent-length: ${bytes.length}\r\n\r\n`,
          );
          const places = cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b);
          for (const [index, place] of [...places, bytes.length].entries()) {
            await client.write(bytes.subarray(places[index - 1] ?? 0, place));
          }
          expect((await client.response()).json()).toEqual(read(body));
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe('limits', () => {
  test.each([false, true])(
    'exactly the limit passes and one byte more does not (chunked: %s)',
    async (chunked) => {
      expect((await echo(Buffer.alloc(LIMIT), undefined, chunked)).json()).toMatchObject({ bytes: LIMIT });
      const response = await echo(Buffer.alloc(LIMIT + 1), undefined, chunked);
      expect(response.status).toBe(413);
      expect(errorCode(response)).toBe('request_too_large');
      expect(response.text()).toContain(String(LIMIT));
    },
  );

  test.each(CODINGS)(
    'exactly the limit decoded from %s passes and one byte more does not',
    async (coding) => {
      expect((await echo(ENCODERS[coding](Buffer.alloc(LIMIT)), coding)).json()).toMatchObject({
        bytes: LIMIT,
      });
      expect(errorCode(await echo(ENCODERS[coding](Buffer.alloc(LIMIT + 1)), coding))).toBe(
        'request_too_large',
      );
    },
  );

  test.each([LIMIT + 1, 10 * 2 ** 30, 999_999_999_999_999])(
    'a declared length of %i is refused before any of it was sent',
    async (length) => {
      using client = await served.connect();
      await client.write(`POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: ${length}\r\n\r\n`);
      const response = await client.response();
      expect(response.status).toBe(413);
      expect(errorCode(response)).toBe('request_too_large');
      expect(response.header('connection')).toBe('close');
      expect(await client.closed).toBe('fin');
    },
  );

  test('a too large content-length is answered while the client still sends', async () => {
    using client = await served.connect();
    const size = 8 * 1024 * 1024;
    await client.write(`POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: ${size}\r\n\r\n`);
    for (let sent = 0; sent < size; sent += 65_536) await client.write(Buffer.alloc(65_536));
    expect(errorCode(await client.response())).toBe('request_too_large');
    expect(await client.closed).toBe('fin');
  });

  test('a body that decodes to nothing is limited by its encoded size', async () => {
    const empty = Buffer.from([0x00, 0x00, 0x00, 0xff, 0xff]);
    const blocks = Buffer.concat(Array.from({ length: LIMIT / 5 + 1 }, () => empty));
    const bytes = Buffer.concat([
      Buffer.from([0x78, 0x9c]),
      blocks,
      Buffer.from([1, 0, 0, 0xff, 0xff, 0, 0, 0, 1]),
    ]);
    expect(zlib.inflateSync(bytes)).toHaveLength(0);
    expect(errorCode(await echo(bytes, 'deflate', true))).toBe('request_too_large');
  });

  test('an endless chunked body is rejected and not collected', async () => {
    using client = await served.connect();
    await client.write('POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n');
    const piece = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536), Buffer.from('\r\n')]);
    for (let i = 0; i < 64; i += 1) await client.write(piece);
    expect(errorCode(await client.response())).toBe('request_too_large');
    await client.closed;
    await served.idle();
  });
});

describe('100 Continue', () => {
  const head = (path: string, ...fields: string[]) =>
    [`POST ${path} HTTP/1.1`, 'host: a', 'expect: 100-continue', ...fields, '', ''].join('\r\n');

  test('is sent before the body is read', async () => {
    using client = await served.connect();
    await client.write(head('/echo', 'content-length: 5000'));
    await client.readUntil('HTTP/1.1 100 Continue\r\n\r\n');
    await client.write(Buffer.alloc(5000));
    const response = await client.response();
    expect(response.json()).toMatchObject({ bytes: 5000 });
    expect(response.interim.map(({ status }) => status)).toEqual([100]);
    await client.write(head('/echo', 'transfer-encoding: chunked').replace('100-c', '100-C'));
    await client.readUntil('HTTP/1.1 100 Continue\r\n\r\n');
    await client.write('3\r\nabc\r\n0\r\n\r\n');
    expect((await client.response()).json()).toMatchObject({ bytes: 3 });
  });

  test.each([
    ['a path that does not exist', '/nowhere', 404, ['content-length: 5']],
    ['a length that is too large', '/echo', 413, ['content-length: 500000']],
    ['an unknown coding', '/echo', 415, ['content-length: 5', 'content-encoding: foo']],
    ['a refusal of the edge', '/echo', 400, ['content-length: 5', 'content_length: 5']],
  ])('is not sent for %s', async (_what, path, status, fields) => {
    using client = await served.connect();
    await client.write(head(path, ...fields));
    const response = await client.response();
    expect([response.status, response.interim]).toEqual([status, []]);
    // Body or next request: what comes now could be either, so nothing more is read.
    expect(response.header('connection')).toBe('close');
    await client.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n').catch(() => undefined);
    await client.closed;
    expect(client.responses).toHaveLength(1);
  });

  test('is not sent without a body, nor to HTTP/1.0', async () => {
    using client = await served.connect();
    await client.write(head('/echo'));
    const response = await client.response();
    expect([response.status, response.interim]).toEqual([200, []]);
    const old = await served.say(
      'POST /echo HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc',
    );
    expect([old.response.status, old.response.interim]).toEqual([200, []]);
  });

  test.each(['foo', '100-continue, foo', '100', ''])('the expectation "%s" fails', async (expectation) => {
    using client = await served.connect();
    await client.write(
      `POST /echo HTTP/1.1\r\nhost: a\r\nexpect: ${expectation}\r\ncontent-length: 3\r\n\r\n`,
    );
    const response = await client.response();
    expect([response.status, errorCode(response), response.interim]).toEqual([417, 'expectation_failed', []]);
    expect(response.header('connection')).toBe('close');
  });
});

describe('deadlines', () => {
  const answerOf = async (
    pace: { silence: number; grace: number; rate: number },
    send: (slow: Slow) => Promise<void>,
  ) => {
    await using slow = await Served.start({ pace });
    using client = await slow.connect();
    await client.write('POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n');
    let answered = false;
    const response = client.response().finally(() => {
      answered = true;
    });
    await send({
      write: (size) => client.write(Buffer.alloc(size)).catch(() => undefined),
      over: () => answered,
    });
    const got = await response;
    await slow.idle();
    return got;
  };
  interface Slow {
    write(size: number): Promise<void>;
    over(): boolean;
  }

  test('a silent client gets 408', async () => {
    const response = await answerOf({ silence: 100, grace: 60_000, rate: 1 }, async () => undefined);
    expect([response.status, errorCode(response)]).toEqual([408, 'request_timeout']);
    expect(response.header('connection')).toBe('close');
  });

  test('a client that trickles bytes gets 408', async () => {
    const response = await answerOf({ silence: 60_000, grace: 200, rate: 100_000 }, async (slow) => {
      while (!slow.over()) {
        await slow.write(1);
        await sleep(20);
      }
    });
    expect([response.status, errorCode(response)]).toEqual([408, 'request_timeout']);
  });

  test('a slow client at the minimum rate may finish', async () => {
    // 10 pieces of 100 bytes: each entitles to 10 s more.
    const response = await answerOf({ silence: 60_000, grace: 100, rate: 10 }, async (slow) => {
      for (let i = 0; i < 10; i += 1) {
        await slow.write(100);
        await sleep(30);
      }
    });
    expect([response.status, response.json()]).toMatchObject([200, { bytes: 1000 }]);
  });
});

describe('a client that disconnects', () => {
  test.each(['fin', 'reset'] as const)('in the middle of its body (%s) frees everything', async (how) => {
    const client = await served.connect();
    const before = served.begun.length;
    await client.write('POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nabc');
    await until(() => served.begun.length > before);
    if (how === 'fin') client.halfClose();
    else client.reset();
    await served.idle();
    expect(served.ended.at(-1)).toMatchObject({ target: '/echo', stopped: 'client_closed' });
    client.destroy();
  });

  test.each(['content-length: 9\r\n\r\nabc', 'transfer-encoding: chunked\r\n\r\n3\r\nabcXX'])(
    'in the middle of a body with an upgrade (%j) frees everything',
    async (rest) => {
      using client = await served.connect();
      await client.write(`POST /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n${rest}`);
      client.halfClose();
      await client.closed;
      await served.idle();
    },
  );

  test('in the middle of a chunked, compressed body frees everything', async () => {
    const client = await served.connect();
    const before = served.begun.length;
    await client.write(
      'POST /echo HTTP/1.1\r\nhost: a\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n3\r\n\x1f\r\n',
    );
    await until(() => served.begun.length > before);
    client.reset();
    await served.idle();
  });
});
