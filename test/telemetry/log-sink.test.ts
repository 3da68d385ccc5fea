// The log sink with a stalled reader: the buffer is bounded, drops are counted, nothing blocks.
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { fileOutput, LogSink, streamOutput } from '../../src/telemetry/log/log-sink.ts';
import { tempDir, until } from '../helpers/wait.ts';

/** Takes what is written when it is let, and then says that it did. */
class Reader extends Writable {
  readonly taken: string[] = [];
  #blocked: (() => void) | undefined;
  isBlocked = false;

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.taken.push(chunk.toString());
    if (this.isBlocked) this.#blocked = done;
    else done();
  }

  letGo(): void {
    this.isBlocked = false;
    this.#blocked?.();
  }
}

test('lines are written in order, in batches, soon', async () => {
  const to = new Reader();
  const sink = new LogSink(streamOutput(to));
  sink.write('one\n');
  sink.write('two\n');
  await until(() => to.taken.length > 0);
  expect(to.taken).toEqual(['one\ntwo\n']);
  sink.write('x'.repeat(64 * 1024));
  expect(to.taken).toHaveLength(2);
  sink.end();
});

test('lines beyond the bound are dropped and counted, and later ones are written when there is room again', async () => {
  const to = new Reader();
  to.isBlocked = true;
  const sink = new LogSink(streamOutput(to), 20_000);
  for (let line = 0; line < 100; line += 1) sink.write(`${String(line).padEnd(999)}\n`);
  expect(sink.dropped).toBe(80);
  expect(sink.waiting).toBe(20_000);
  to.letGo();
  await until(() => sink.waiting < 20_000);
  sink.write('later\n');
  await new Promise<void>((resolve) => sink.flush(resolve));
  const lines = to.taken
    .join('')
    .split('\n')
    .map((line) => line.trim());
  expect(lines).toEqual([...Array.from({ length: 20 }, (_, line) => String(line)), 'later', '']);
  expect([sink.dropped, sink.waiting]).toEqual([80, 0]);
  sink.end();
});

test('a closed reader stops nothing: its lines are counted as dropped', async () => {
  const to = new Reader();
  const sink = new LogSink(streamOutput(to));
  sink.write('one\n');
  to.destroy(new Error('EPIPE'));
  await until(() => sink.dropped === 1);
  sink.write('two\nthree\n');
  expect(sink.dropped).toBe(3);
  await new Promise<void>((resolve) => sink.flush(resolve));
  sink.end();
});

test('buffered lines are written at exit', () => {
  const to = new Reader();
  const sink = new LogSink(streamOutput(to));
  sink.write('last\n');
  sink.end();
  expect(to.taken).toEqual(['last\n']);
});

test('a file gets every line, the last ones at exit', async () => {
  await using directory = await tempDir();
  const descriptor = openSync(directory.file('log'), 'a');
  const sink = new LogSink(fileOutput(descriptor));
  sink.write(`${'x'.repeat(100_000)}\n`);
  await new Promise<void>((resolve) => sink.flush(resolve));
  sink.write('last\n');
  sink.end();
  closeSync(descriptor);
  expect(readFileSync(directory.file('log'), 'utf8')).toBe(`${'x'.repeat(100_000)}\nlast\n`);
});

test.skipIf(!existsSync('/dev/full'))('a full disk drops lines and blocks nothing', async () => {
  const descriptor = openSync('/dev/full', 'w');
  const sink = new LogSink(fileOutput(descriptor));
  for (let line = 0; line < 3; line += 1) {
    sink.write('lost\n');
    await new Promise<void>((resolve) => sink.flush(resolve));
  }
  expect([sink.dropped, sink.waiting]).toEqual([3, 0]);
  sink.write('last\n');
  sink.end();
  closeSync(descriptor);
});
