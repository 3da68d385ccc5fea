// Lines of the log and a reader that does not read: what waits is bounded, what is dropped is counted, nobody waits.
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { LogSink } from '../../src/telemetry/log-sink.ts';
import { until } from '../helpers/wait.ts';

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

test('lines come in order, in pieces, soon', async () => {
  const to = new Reader();
  const sink = new LogSink({ to });
  sink.write('one\n');
  sink.write('two\n');
  await until(() => to.taken.length > 0);
  expect(to.taken).toEqual(['one\ntwo\n']);
  sink.write('x'.repeat(5000));
  expect(to.taken).toHaveLength(2);
  sink.end();
});

test('lines beyond the bound are dropped and counted, and later ones come when there is room again', async () => {
  const to = new Reader();
  to.isBlocked = true;
  const sink = new LogSink({ to, maxBytes: 20_000 });
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

test('a reader that has gone ends nothing: its lines are counted', async () => {
  const to = new Reader();
  const sink = new LogSink({ to });
  sink.write('one\n');
  to.destroy(new Error('EPIPE'));
  await until(() => sink.dropped === 1);
  sink.write('two\n');
  expect(sink.dropped).toBe(2);
  await new Promise<void>((resolve) => sink.flush(resolve));
  sink.end();
});

test('what is left is written at the end', () => {
  const to = new Reader();
  const sink = new LogSink({ to });
  sink.write('last\n');
  sink.end();
  expect(to.taken).toEqual(['last\n']);
});
