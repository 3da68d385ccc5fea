// Uploads that are kept or passed on: when each is done, how slowly they may come, where they are kept, and that nothing of them
// is left.
import { readdir } from 'node:fs/promises';
import { expect, test } from 'vitest';
import type { BodyPace } from '../../src/http/body/read-body.ts';
import { Upload } from '../../src/http/body/upload.ts';
import { SpoolFiles } from '../../src/http/body/upload-spool.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { noise } from '../helpers/forms.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { tempDir, until } from '../helpers/wait.ts';
import { Served } from './served.ts';

const MIB = 1024 * 1024;
const PACE: BodyPace = { silence: 150, grace: 400, rate: 1e9 };

interface Setting {
  /** Where the upload is known well enough, in bytes. */
  readonly knownAt?: number;
  readonly room?: SpoolFiles;
  readonly pace?: BodyPace;
}

/** Says how each upload was kept and what came of it. */
function serve({
  knownAt,
  room = new SpoolFiles({ limit: 1, gauges: gauges() }),
  pace = PACE,
}: Setting): Promise<Served> {
  return Served.start({
    routes: (server) =>
      server.route('POST', '/upload', async (exchange) => {
        let seen = 0;
        const watcher = {
          push(piece: Buffer) {
            seen += piece.length;
          },
          end() {},
          get knownAt() {
            return knownAt !== undefined && seen >= knownAt ? knownAt : undefined;
          },
        };
        const upload = new Upload(exchange, 16 * MIB, watcher, room, pace);
        try {
          await upload.buffer();
          const { isLive, whole } = upload;
          const reader = upload.source([]).open();
          const pieces: Buffer[] = [];
          for (let piece = await reader.next(); piece !== undefined; piece = await reader.next())
            pieces.push(piece);
          const isSame = Buffer.concat(pieces).equals(noise(seen));
          answerJson(exchange, 200, { isLive, inMemory: whole !== undefined, isSame, seen });
        } finally {
          await upload.close();
        }
      }),
  });
}

function gauges() {
  const values = { files: 0, bytes: 0 };
  const gauge = (name: keyof typeof values) => ({
    add(by: number) {
      values[name] += by;
    },
  });
  return { files: gauge('files'), bytes: gauge('bytes'), values };
}

async function begin(
  served: Served,
  length: number,
  headers: Record<string, string> = {},
): Promise<RawClient> {
  const client = await served.connect();
  await client.send({ target: '/upload', headers: { 'content-length': String(length), ...headers } });
  return client;
}

async function upload(served: Served, length: number): Promise<unknown> {
  using client = await begin(served, length);
  await client.write(noise(length));
  return (await client.response()).json();
}

test.each([
  ['a small one is waited for', 10_000, 100, { isLive: false, inMemory: true }],
  ['so is one of 1 MiB', MIB, 100, { isLive: false, inMemory: true }],
  ['a larger one goes on its way', MIB + 1, 100, { isLive: true, inMemory: false }],
  ['where what matters comes late it is kept', 3 * MIB, 3 * MIB - 100, { isLive: false, inMemory: false }],
  [
    'so it is without enough behind what matters',
    3 * MIB,
    3 * MIB - 200_000,
    { isLive: false, inMemory: false },
  ],
  ['where that comes in the middle the rest is not', 3 * MIB, 2 * MIB, { isLive: true, inMemory: false }],
  ['where it never comes it is kept', 3 * MIB, undefined, { isLive: false, inMemory: false }],
])('%s', async (_name, length, knownAt, kept) => {
  const counted = gauges();
  await using served = await serve({
    room: new SpoolFiles({ limit: 1, gauges: counted }),
    pace: { silence: 60_000, grace: 60_000, rate: 1e9 },
    ...(knownAt === undefined ? {} : { knownAt }),
  });
  expect(await upload(served, length)).toEqual({ ...kept, isSame: true, seen: length });
  await until(() => counted.values.files === 0 && counted.values.bytes === 0, 'the file to be gone');
});

test('the connection is reusable after the answer to a forwarded upload', async () => {
  await using served = await serve({ knownAt: 10 });
  using client = await begin(served, 2 * MIB);
  await client.write(noise(2 * MIB));
  expect((await client.response()).json()).toMatchObject({ isLive: true, isSame: true });
  await client.send({ target: '/upload', headers: { 'content-length': '5' } });
  await client.write(noise(5));
  expect((await client.response()).json()).toMatchObject({ seen: 5 });
});

test('a client that waits for 100 Continue gets it', async () => {
  await using served = await serve({ knownAt: 10 });
  using client = await begin(served, 2 * MIB, { expect: '100-continue' });
  await client.readUntil('HTTP/1.1 100');
  await client.write(noise(2 * MIB));
  expect((await client.response()).json()).toMatchObject({ isSame: true });
});

test.each([
  ['while it is kept', undefined],
  ['while it is passed on', 10],
])('silence %s is a timeout', async (_name, knownAt) => {
  await using served = await serve(knownAt === undefined ? {} : { knownAt });
  using client = await begin(served, 3 * MIB);
  await client.write(noise(2 * MIB));
  expect((await client.response()).status).toBe(408);
});

test.each([
  ['while it is kept', undefined],
  ['while it is passed on', 10],
])('too slow a body is a timeout, too: %s', async (_name, knownAt) => {
  const counted = gauges();
  const room = new SpoolFiles({ limit: 1, gauges: counted });
  const slow = { silence: 10_000, grace: 300, rate: 1e9 };
  await using served = await serve({ room, pace: slow, ...(knownAt === undefined ? {} : { knownAt }) });
  using client = await begin(served, 3 * MIB);
  await client.write(noise(2 * MIB));
  let isAnswered = false;
  const answer = client.response().finally(() => {
    isAnswered = true;
  });
  while (!isAnswered) {
    await client.write('x').catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect((await answer).status).toBe(408);
  await until(() => counted.values.files === 0, 'the file to be gone');
});

test('uploads beyond the limit of files are told to retry', async () => {
  await using served = await serve({ pace: { silence: 10_000, grace: 10_000, rate: 1 } });
  using first = await begin(served, 3 * MIB);
  await first.write(noise(3 * MIB).subarray(0, 2 * MIB));
  await until(async () => {
    using other = await begin(served, 3 * MIB);
    await other.write(noise(3 * MIB));
    const answer = await other.response();
    if (answer.status === 200) return false;
    expect([answer.status, answer.header('retry-after')]).toEqual([503, '1']);
    expect(answer.text()).toContain('"code":"overloaded"');
    return true;
  }, 'one to be refused');
  await first.write(noise(3 * MIB).subarray(2 * MIB));
  expect((await first.response()).json()).toMatchObject({ isSame: true });
});

test('a failing directory is the same, and uses no slot', async () => {
  const counted = gauges();
  const told: unknown[] = [];
  const onError = (cause: unknown) => void told.push(cause);
  const room = new SpoolFiles({ limit: 1, gauges: counted, directory: '/nowhere/at/all', onError });
  await using served = await serve({ room });
  for (const _ of [1, 2])
    expect(await upload(served, 2 * MIB)).toMatchObject({ error: { code: 'overloaded' } });
  expect(counted.values).toEqual({ files: 0, bytes: 0 });
  expect(told).toEqual([expect.objectContaining({ code: 'ENOENT' })]);
});

test('the file has no name', async () => {
  await using directory = await tempDir();
  const counted = gauges();
  await using served = await serve({
    room: new SpoolFiles({ limit: 1, gauges: counted, directory: directory.path }),
  });
  using client = await begin(served, 3 * MIB);
  await client.write(noise(3 * MIB).subarray(0, 2 * MIB));
  await until(() => counted.values.bytes > MIB, 'the file');
  expect(await readdir(directory.path)).toEqual([]);
  client.destroy();
  await until(() => counted.values.files === 0, 'the file to be gone');
});

test('the rest of an abandoned upload is discarded', async () => {
  await using served = await Served.start({
    routes: (server) =>
      server.route('POST', '/upload', async (exchange) => {
        const watcher = { push() {}, end() {}, knownAt: 1 };
        const upload = new Upload(
          exchange,
          16 * MIB,
          watcher,
          new SpoolFiles({ limit: 1, gauges: gauges() }),
          PACE,
        );
        await upload.buffer();
        upload.source([]).open().cancel();
        await upload.close();
        answerJson(exchange, 200, {});
      }),
  });
  using client = await begin(served, 8 * MIB);
  const writing = client.write(noise(8 * MIB));
  const answer = await client.response();
  expect([answer.status, answer.header('connection')]).toEqual([200, 'close']);
  await writing;
  await client.closed;
});
