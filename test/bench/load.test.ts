// The load generator of the bench: it reads answers however the network cuts them, and takes no wrong one for a right one.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { Connection } from '../../bench/load/connection.ts';
import {
  completion,
  requestBody,
  SHAPES,
  stampsIn,
  streamFrames,
  timedFrame,
  UPSTREAM_MODEL,
} from '../../bench/load/traffic.ts';
import { sharesOf, shareUnder } from '../../bench/profile.ts';

const MAIN = fileURLToPath(new URL('../../bench/load/main.ts', import.meta.url));
const UPSTREAM = fileURLToPath(new URL('../../bench/load/upstream.ts', import.meta.url));

interface Server extends AsyncDisposable {
  readonly url: string;
}

/** Answers every request, wherever its end is, with what `answer` writes. */
async function serve(answer: (socket: Socket) => void): Promise<Server> {
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    // Requests of these tests fit into one segment.
    socket.on('data', () => answer(socket));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Writes each byte by itself, in turns of the loop of their own. */
async function drip(socket: Socket, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    socket.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function ask(connection: Connection): Promise<{ readonly status: number; readonly body: string }> {
  return new Promise((resolve, reject) => {
    let body = '';
    connection.request(Buffer.from('POST / HTTP/1.1\r\n\r\n'), {
      data: (piece) => {
        body += piece.toString('latin1');
      },
      end: (status) => resolve({ status, body }),
      fail: reject,
    });
  });
}

const FIXED = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello');
const CHUNKED = Buffer.from(
  'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\na\r\n, you all!\r\n0\r\n\r\n',
);

test.each([
  ['with a length', FIXED, 'hello'],
  ['in chunks', CHUNKED, 'hello, you all!'],
])(
  'reads an answer %s that comes byte by byte, and the next one on the same connection',
  async (_name, bytes, body) => {
    await using server = await serve((socket) => void drip(socket, bytes));
    const connection = new Connection(new URL(server.url));
    expect(await ask(connection)).toEqual({ status: 200, body });
    expect(await ask(connection)).toEqual({ status: 200, body });
    connection.destroy();
  },
);

test('opens another connection where the answer closed the last one', async () => {
  await using server = await serve((socket) =>
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok'),
  );
  const connection = new Connection(new URL(server.url));
  for (let time = 0; time < 3; time += 1) expect((await ask(connection)).body).toBe('ok');
  connection.destroy();
});

test('an answer that breaks off is a failure', async () => {
  await using server = await serve((socket) => socket.end(CHUNKED.subarray(0, 60)));
  await expect(ask(new Connection(new URL(server.url)))).rejects.toThrow(/closed before/);
});

function run(job: object): Promise<{ readonly failed: boolean; readonly out: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, JSON.stringify(job)], { timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ failed: error !== null, out: stdout + stderr }),
    );
  });
}

const JOB = { headers: {}, alias: 'a', model: 'm', bytes: null };
const PACE = { frames: 4, every: 1, kind: 'exact' };

function streamOf(frames: readonly Buffer[]): Buffer {
  const chunks = frames.map((frame) => `${frame.length.toString(16)}\r\n${frame.toString()}\r\n`);
  return Buffer.from(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunks.join('')}0\r\n\r\n`);
}

test('streams are counted when every byte is right, and refused when one is not', async () => {
  const right = streamFrames('m', PACE.frames);
  const job = { ...JOB, kind: 'streams', concurrency: 3, times: 2, ramp_ms: 0, pace: PACE };
  await using good = await serve((socket) => void socket.write(streamOf(right)));
  await using wrong = await serve(
    (socket) => void socket.write(streamOf(right.with(1, right[2] ?? Buffer.of()))),
  );
  await using short = await serve((socket) => void socket.write(streamOf(right.slice(0, -1))));
  const [whole, other, cut] = await Promise.all([good, wrong, short].map(({ url }) => run({ ...job, url })));
  expect(whole).toMatchObject({ failed: false, out: expect.stringContaining('"streams":6,"chunks":24') });
  expect(other).toMatchObject({ failed: true, out: expect.stringContaining('differs') });
  expect(cut).toMatchObject({ failed: true, out: expect.stringContaining('bytes') });
});

test('requests are counted when their answers are right, and refused when one is not', async () => {
  const answer = (status: number, body: Buffer) =>
    Buffer.concat([Buffer.from(`HTTP/1.1 ${status} X\r\ncontent-length: ${body.length}\r\n\r\n`), body]);
  const job = { ...JOB, kind: 'closed', connections: 2, ms: 0, requests: 10, pace: null };
  await using good = await serve((socket) => void socket.write(answer(200, completion('m'))));
  await using refused = await serve((socket) => void socket.write(answer(429, completion('m'))));
  await using other = await serve((socket) => void socket.write(answer(200, completion('mm'))));
  const results = await Promise.all([good, refused, other].map(({ url }) => run({ ...job, url })));
  expect(results.map(({ failed }) => failed)).toEqual([false, true, true]);
  expect(results[1]?.out).toContain('status 429');
});

test('open load sends what is due, whoever answers', async () => {
  const body = completion('m');
  const bytes = Buffer.concat([
    Buffer.from(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`),
    body,
  ]);
  await using server = await serve((socket) => void setTimeout(() => socket.write(bytes), 50));
  const open = { ...JOB, kind: 'open', url: server.url, ms: 500 };
  const { out } = await run({ ...open, per_second: 400, connections: 512 });
  const { requests, p50_ms } = JSON.parse(out);
  // About 200 arrivals that know nothing of each other, the same in every run.
  expect(requests).toBeGreaterThan(150);
  expect(requests).toBeLessThan(250);
  expect(p50_ms).toBeGreaterThanOrEqual(49);
  // About 50 of them over two connections that answer 40 a second: half of them wait for more than 300 ms, which counts.
  const few = JSON.parse((await run({ ...open, per_second: 100, connections: 2 })).out);
  expect(few.requests).toBeGreaterThan(30);
  expect(few.p50_ms).toBeGreaterThanOrEqual(300);
});

test('a large answer is asked for, and its length is checked', async () => {
  const upstream = spawn(process.execPath, [UPSTREAM], { stdio: ['pipe', 'pipe', 'inherit'] });
  try {
    const [said] = await once(upstream.stdout, 'data');
    const url = `http://127.0.0.1:${/port (\d+)/.exec(String(said))?.[1]}/v1/chat/completions`;
    const closed = { ...JOB, kind: 'closed', url, connections: 1, ms: 0, requests: 2, pace: null };
    const model = UPSTREAM_MODEL;
    const { out } = await run({ ...closed, model, answer_bytes: 300_000 });
    expect(out).toContain('{"requests":2,');
    const other = await run({ ...closed, model: `${model}-other`, answer_bytes: 300_000 });
    expect(other.out).toContain(`an answer of status 200 and ${completion(model, 300_000).length} bytes`);
  } finally {
    upstream.stdin.end();
    await once(upstream, 'close');
  }
});

test('the time that a word carries is read from it', () => {
  const before = Number(process.hrtime.bigint() / 1000n);
  const [stamp = 0, ...others] = stampsIn(timedFrame('m'));
  expect(others).toEqual([]);
  expect(stamp).toBeGreaterThanOrEqual(before);
  expect(stamp).toBeLessThanOrEqual(Number(process.hrtime.bigint() / 1000n));
  expect(stampsIn(requestBody())).toEqual([]);
});

test('a profile is summed by parts, idle time and the profiler left out, native code with its caller', () => {
  const root = new URL('../../', import.meta.url).href;
  const frame = (functionName: string, url: string) => ({ functionName, url });
  const profile = {
    nodes: [
      { id: 1, callFrame: frame('(root)', ''), children: [2, 3, 4, 6] },
      { id: 2, callFrame: frame('(idle)', '') },
      { id: 3, callFrame: frame('scan', `${root}src/wire/json/json.ts`), children: [5] },
      { id: 4, callFrame: frame('dispatch', `${root}node_modules/undici/lib/x.js`) },
      { id: 5, callFrame: frame('copy', '') },
      { id: 6, callFrame: frame('post', 'node:inspector') },
    ],
    samples: [2, 3, 5, 4, 6, 1],
    timeDeltas: [0, 100, 10, 20, 10, 500, 0],
  };
  expect(Object.fromEntries(sharesOf(profile, false))).toEqual({
    'src/wire/': 0.75,
    'package undici': 0.25,
    'native code, system calls outside of JavaScript': 0,
  });
  expect(sharesOf(profile, true).get('src/wire/json/json.ts')).toBe(0.75);
  // Here the profiler counts, and what the functions of a place call counts as theirs.
  expect(shareUnder(profile, ['/src/wire/'])).toBe(30 / 540);
  expect(shareUnder(profile, ['/src/http/', 'undici'])).toBe(10 / 540);
});

test.each(SHAPES)('a body of %s is about as long as it is asked for, and asks for no stream', (shape) => {
  for (const bytes of [4_096, 65_536, 262_144]) {
    const body = requestBody({ bytes, shape });
    expect(body.length).toBeGreaterThan(bytes);
    expect(body.length).toBeLessThan(1.1 * bytes + 1_500);
    expect(JSON.parse(body.toString())).not.toHaveProperty('stream');
  }
});

test('words are in time by the pace of their stream, counted from its first word', async () => {
  const head = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
  const chunk = (bytes: Buffer) => `${bytes.length.toString(16)}\r\n${bytes.toString()}\r\n`;
  const word = () => chunk(timedFrame('m'));
  await using server = await serve((socket) => {
    // The wait for the first word does not count; of the four, the last two are due after 20 and 30 ms.
    setTimeout(() => socket.write(head + word() + word()), 200);
    setTimeout(() => {
      socket.write(`${word()}${word()}${chunk(Buffer.from('data: [DONE]\n\n'))}0\r\n\r\n`);
    }, 600);
  });
  const pace = { frames: 5, every: 10, kind: 'timed' };
  const job = { ...JOB, kind: 'streams', url: server.url, concurrency: 2, times: 1, ramp_ms: 0, pace };
  const { failed, out } = await run(job);
  expect(failed, out).toBe(false);
  expect(JSON.parse(out).in_time).toBe(0.5);
});

test('of a stream that is refused, no word is in time, and one that is held is asked for again, also after a reset', async () => {
  const refusal = 'HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n{}';
  const whole = Array.from({ length: 4 }, () => timedFrame('m'));
  let asked = 0;
  await using server = await serve((socket) => {
    asked += 1;
    if (asked === 5) socket.resetAndDestroy();
    else if (asked % 2 === 1) socket.write(refusal);
    else socket.write(streamOf([...whole, Buffer.from('data: [DONE]\n\n')]));
  });
  const pace = { frames: 6, every: 10, kind: 'timed' };
  const job = { ...JOB, kind: 'streams', url: server.url, concurrency: 1, times: 2, ramp_ms: 0, pace };
  const { failed, out } = await run(job);
  expect(failed, out).toBe(false);
  expect(JSON.parse(out)).toMatchObject({ refused: 1, in_time: 0.5 });
  const hold = spawn(process.execPath, [MAIN, JSON.stringify({ ...job, kind: 'hold' })]);
  const [said] = await once(hold.stdout, 'data');
  expect(String(said)).toBe('held 1\n');
  expect(asked).toBe(4);
  hold.stdin.end();
  await once(hold, 'close');
  const reset = spawn(process.execPath, [MAIN, JSON.stringify({ ...job, kind: 'hold' })]);
  expect(String((await once(reset.stdout, 'data'))[0])).toBe('held 1\n');
  expect(asked).toBe(6);
  reset.stdin.end();
  await once(reset, 'close');
});
