// Writing to a stream of a command.
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { write } from '../../src/cli/program/terminal.ts';

test('a text is flushed when its write resolves, and nothing is left on the stream', async () => {
  const flushed: string[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      flushed.push(String(chunk));
      setImmediate(done);
    },
  });
  for (const text of ['a', 'b']) await write(stream, text);
  expect(flushed).toEqual(['a', 'b']);
  expect(stream.listenerCount('error')).toBe(0);
});

test('a broken stream fails its write, and does not end the process', async () => {
  const stream = new Writable({ write: (_chunk, _encoding, done) => done(new Error('broken')) });
  await expect(write(stream, 'a')).rejects.toThrow('broken');
});
