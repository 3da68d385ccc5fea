// Events of a realtime client with a member that the configuration refuses: in any spelling, however the frames are cut, and
// nothing of such an event reaches the upstream. Other events pass as they came.
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket as Client } from 'ws';
import { foldPath } from '../../src/config/schema/body-rules.ts';
import { WatchedMembers } from '../../src/proxy/routes/watched-members.ts';
import { ClientEvents } from '../../src/realtime/realtime-members.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { RealtimeUpstream } from '../helpers/realtime-upstream.ts';
import { until, within } from '../helpers/wait.ts';

const REFUSED = ['session.model', 'session.audio.input.transcription.model', 'tools'];
const watched = new WatchedMembers([...REFUSED, 'other']);
const events = () => new ClientEvents(watched, new Map(REFUSED.map((path) => [foldPath(path), path])));

/** A frame as a client sends it. */
function frame(text: string | Buffer, { opcode = 1, fin = true } = {}): Buffer {
  const payload = Buffer.from(text);
  const mask = Buffer.from([7, 19, 200, 91]);
  const size = payload.length;
  const length = size < 126 ? [size] : size < 65_536 ? [126, size >> 8, size & 255] : [127, 0, 0, 0, 0];
  const rest = size < 65_536 ? [] : [size >>> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255];
  const [first = 0, ...extended] = [...length, ...rest];
  const head = Buffer.from([(fin ? 0x80 : 0) | opcode, 0x80 | first, ...extended]);
  return Buffer.concat([head, mask, payload.map((byte, index) => byte ^ (mask[index & 3] ?? 0))]);
}

/** What passes of bytes that come in pieces of one size. */
function pass(bytes: Buffer, step: number) {
  const gate = events();
  const passed: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += step) passed.push(gate.admit(bytes.subarray(at, at + step)));
  return { passed: Buffer.concat(passed), refusal: gate.rejection };
}

const good = [
  frame('{"type":"session.update","session":{"voice":"x","tools":[{"model":"y"}],"other":1},"other":2}'),
  frame('{"type":"input_audio_buffer.append",', { fin: false }),
  frame('', { opcode: 9 }),
  frame(`"audio":"${'A'.repeat(70_000)}"}`, { opcode: 0 }),
  frame('[1,{"session":{"model":1}}]'),
  frame('ping', { opcode: 9 }),
];

describe.each([1, 5, 1000, 1_000_000])('in pieces of %i bytes', (step) => {
  test('valid events are forwarded unchanged', () => {
    const { passed, refusal } = pass(Buffer.concat(good), step);
    expect(passed.equals(Buffer.concat(good))).toBe(true);
    expect(refusal).toBe(undefined);
  });

  test.each([
    ['{"type":"session.update","session":{"model":"dear"}}', 1008, 'session.model'],
    ['{"session":{"MODEL":null}}', 1008, 'session.model'],
    ['{"Session":{"mode\\u006c":"x"}}', 1008, 'session.model'],
    ['{"session":{},"session":{"model":"x"}}', 1008, 'session.model'],
    ['{"session":{"audio":{"input":{"transcription":{"model":"x"}}}}}', 1008, REFUSED[1]],
    ['{"tools":[]}', 1008, 'tools'],
    ['\ufeff{"session":{"model":"x"}}', 1007, null],
    ['{"session":{"model":"x"}', 1007, null],
  ])('%s is rejected', (text, closeCode, param) => {
    const bad = [
      frame(text),
      Buffer.concat([frame(text.slice(0, 9), { fin: false }), frame(text.slice(9), { opcode: 0 })]),
    ];
    for (const each of bad) {
      const { passed, refusal } = pass(Buffer.concat([...good, each, ...good]), step);
      expect(passed.equals(Buffer.concat(good))).toBe(true);
      expect(refusal).toMatchObject({ closeCode, error: { param } });
    }
  });

  test.each([
    ['a binary message', frame('{"session":{"model":"x"}}', { opcode: 2 }), 1003],
    ['no frame', Buffer.from('GET / HTTP/1.1\r\n\r\n'), 1002],
  ])('%s is rejected', (_, bytes, closeCode) => {
    const { passed, refusal } = pass(Buffer.concat([...good, bytes]), step);
    expect(passed.equals(Buffer.concat(good))).toBe(true);
    expect(refusal).toMatchObject({ closeCode });
  });
});

test('an event of more than 32 MiB is rejected', () => {
  const piece = frame('x'.repeat(60_000), { opcode: 0, fin: false });
  const gate = events();
  gate.admit(frame('{"a":"', { fin: false }));
  for (let size = 0; size < 33 * 1024 * 1024; size += 60_000) gate.admit(piece);
  gate.admit(frame('"}', { opcode: 0 }));
  expect(gate.rejection).toMatchObject({ closeCode: 1009 });
});

describe('an event without an end is rejected as soon as it is too long', () => {
  test.each([
    ['by the length of its frame', Buffer.from([0x81, 0xff, 0, 0, 0, 0, 2, 0, 0, 1, 1, 2, 3, 4]), 1],
    [
      'in empty frames',
      Buffer.concat(Array.from({ length: 10_000 }, () => frame('', { opcode: 0, fin: false }))),
      700,
    ],
    [
      'in pings between its frames',
      Buffer.concat(Array.from({ length: 1_000 }, () => frame('x'.repeat(60), { opcode: 9 }))),
      700,
    ],
  ])('%s', (_, bytes, count) => {
    const gate = events();
    if (count > 1) gate.admit(frame('{"a":"', { fin: false }));
    for (let sent = 0; sent < count; sent += 1) expect(gate.admit(bytes).length).toBe(0);
    expect(gate.rejection).toMatchObject({ closeCode: 1009 });
  });
});

describe('in a session', () => {
  let upstream: RealtimeUpstream;
  let gateway: Gateway;

  beforeAll(async () => {
    upstream = await RealtimeUpstream.start();
    const target = { targets: [{ upstream: 'up', model: 'there' }] };
    gateway = await startGateway({
      config: {
        upstreams: { up: { base_url: upstream.baseUrl } },
        models: { open: target, strict: { ...target, body: { refuse: ['session.model'] } } },
      },
    });
  });
  afterAll(async () => {
    await gateway?.close();
    await upstream?.[Symbol.asyncDispose]();
  });

  async function open(model: string) {
    const next = upstream.next();
    const client = new Client(
      `${gateway.url.replace('http', 'ws')}/v1/realtime?model=${model}`,
      ['realtime'],
      {
        headers: { authorization: `Bearer ${await gateway.key()}` },
      },
    );
    const read: string[] = [];
    client.on('message', (data) => read.push(String(data)));
    const closed = within(once(client, 'close'), 'the end of the session');
    await within(once(client, 'open'), 'the session to open');
    return { client, session: await next, read, closed };
  }

  test('the client receives the reason, and the upstream nothing of the event', async () => {
    const { client, session, read, closed } = await open('strict');
    client.send('{"type":"session.update","session":{"voice":"alloy"}}');
    client.send('{"type":"session.update","session":{"Model":"dear"}}');
    client.send('{"type":"response.create"}');
    const [code, reason] = await closed;
    expect([code, String(reason)]).toEqual([1008, 'unsupported_parameter']);
    expect(JSON.parse(read[0] ?? '')).toMatchObject({
      type: 'error',
      error: { code: 'unsupported_parameter', param: 'session.model' },
    });
    await until(() => session.messages.length > 0, 'the first event');
    expect(session.messages.map(({ text }) => text)).toEqual([
      '{"type":"session.update","session":{"voice":"alloy"}}',
    ]);
    const line = await gateway.logLine((each) => each['close_code'] === 1008, 'the line of the session');
    expect(line).toMatchObject({ outcome: 'unsupported_parameter', closed_by: 'gateway' });
  });

  test('a model without rules receives it', async () => {
    const { client, session, closed } = await open('open');
    client.send('{"type":"session.update","session":{"model":"dear"}}');
    await until(() => session.messages.length > 0, 'the event');
    client.close(1000);
    expect((await closed)[0]).toBe(1000);
  });
});
