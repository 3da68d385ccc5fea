// The first event of an upstream is left out of a session for transcription where it says that the session was created.
import { expect, test } from 'vitest';
import { CreatedFilter } from '../../src/realtime/transcription-start.ts';

/** An unmasked frame of text. */
function frame(text: string): Buffer {
  const head = Buffer.from([0x81, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(text.length, 6);
  return Buffer.concat([head, Buffer.from(text)]);
}

const CREATED = frame('{"type":"session.created"}');
const OTHER = frame('{"type":"error"}');

test.each([1, 7, 1000])(
  'an event that says so is left out, in pieces of %i bytes, and what follows is not',
  (size) => {
    const filter = new CreatedFilter();
    const all = Buffer.concat([CREATED, OTHER, CREATED]);
    const passed: Buffer[] = [];
    for (let at = 0; at < all.length; at += size) passed.push(filter.pass(all.subarray(at, at + size)));
    expect(Buffer.concat(passed)).toEqual(Buffer.concat([OTHER, CREATED]));
  },
);

test.each([1, 7, 1000])('another event is passed on whole, in pieces of %i bytes', (size) => {
  const filter = new CreatedFilter();
  const all = Buffer.concat([OTHER, CREATED]);
  const passed: Buffer[] = [];
  for (let at = 0; at < all.length; at += size) passed.push(filter.pass(all.subarray(at, at + size)));
  expect(Buffer.concat(passed)).toEqual(all);
});

test('an event beyond 64 KiB is passed on from there', () => {
  const filter = new CreatedFilter();
  const large = frame('x'.repeat(100_000));
  expect(filter.pass(large.subarray(0, 60_000))).toHaveLength(0);
  expect(filter.pass(large.subarray(60_000, 70_000))).toEqual(large.subarray(0, 70_000));
  expect(filter.pass(large.subarray(70_000))).toEqual(large.subarray(70_000));
});
