// Forms on the wire: what reaches the upstream and when, what happens when one side breaks off or stalls, and when another
// target may be asked.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BOUNDARY, FORM_TYPE, field, file, formBytes, noise, renamed } from '../helpers/forms.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  early,
  HostileUpstream,
  head,
  json,
  lastChunk,
  pauseReading,
  reset,
  SSE_HEADERS,
  send,
  silence,
  upstreamError,
  wait,
} from '../helpers/hostile-upstream.ts';
import type { RawClient, RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

const MIB = 1024 * 1024;
const PATH = '/v1/audio/transcriptions';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;

const heard = json(200, { text: 'heard', usage: { type: 'duration', seconds: 2.5 } });

beforeAll(async () => {
  first = await HostileUpstream.start(heard);
  second = await HostileUpstream.start(heard);
  const timeouts = { headers: '1s', idle: '1s' };
  gateway = await startGateway({
    now: fleetingClock(),
    config: {
      max_body: '24MiB',
      upstreams: {
        first: { base_url: first.baseUrl, timeouts },
        second: { base_url: second.baseUrl, timeouts },
        nowhere: { base_url: 'http://127.0.0.1:9/v1', timeouts },
        hasty: { base_url: first.baseUrl, timeouts: { total: '300ms' } },
        azure: { base_url: first.baseUrl, send_model: false },
      },
      models: {
        m: { targets: [{ upstream: 'first', model: 'there' }] },
        same: { targets: [{ upstream: 'first', model: 'same' }] },
        two: {
          targets: [
            { upstream: 'first', model: 'there', priority: 1 },
            { upstream: 'second', model: 'else/where', priority: 2 },
          ],
        },
        hasty: { targets: [{ upstream: 'hasty', model: 'there' }] },
        lost: {
          targets: [
            { upstream: 'nowhere', model: 'there', priority: 1 },
            { upstream: 'second', model: 'elsewhere', priority: 2 },
          ],
        },
        deployed: { targets: [{ upstream: 'azure', model: 'x' }] },
        'dall-e-2': { targets: [{ upstream: 'first', model: 'painter' }] },
      },
    },
  });
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
});

interface Sending {
  readonly target?: string;
  readonly chunked?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A connection on which the head of a request for a form was sent. */
async function begin(length: number, { target = PATH, chunked = false, headers = {} }: Sending = {}) {
  const client = await gateway.connect();
  await client.send({
    target,
    headers: {
      authorization: `Bearer ${await gateway.key()}`,
      'content-type': FORM_TYPE,
      ...(chunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': String(length) }),
      ...headers,
    },
  });
  return client;
}

async function post(form: Buffer, sending: Sending = {}): Promise<RawResponse> {
  using client = await begin(form.length, sending);
  if (sending.chunked === true) await writeChunked(client, form);
  else await client.write(form);
  return await client.response();
}

async function writeChunked(client: RawClient, form: Buffer): Promise<void> {
  for (let at = 0; at < form.length; at += 100_000) {
    const piece = form.subarray(at, at + 100_000);
    await client.write(
      Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]),
    );
  }
  await client.write('0\r\n\r\n');
}

/** The next request of an upstream, complete. */
const nextOf = (upstream: HostileUpstream) => upstream.request(upstream.requests.length);
const files = () => gateway.metric('tollgate_upload_files');
const noFiles = () => until(async () => (await files()) === 0, 'no file to be left');

test.each([
  ['model first', [field('model', 'm'), file(noise(2_000))]],
  ['model last', [file(noise(2_000)), field('model', 'm')]],
  ['no model', [file(noise(2_000))]],
])('an empty line around the parts reaches the upstream as it came: %s', async (_name, parts) => {
  const around = Buffer.from('\r\n');
  const form = Buffer.concat([around, formBytes(parts), around]);
  const coming = nextOf(first);
  const isNamed = parts.some((part) => part.name === 'model');
  const answer = await post(form, { target: isNamed ? PATH : '/v1/images/edits' });
  expect(answer.status).toBe(200);
  const { body } = await coming;
  if (isNamed) expect(body.equals(renamed(form, 'm', 'there'))).toBe(true);
  // The default model has another name upstream: it is written behind the last part.
  else expect(body.equals(withModel(form, 'painter'))).toBe(true);
});

/** The form with a field `model` behind its last part. */
function withModel(form: Buffer, model: string): Buffer {
  const end = form.lastIndexOf(`--${BOUNDARY}--`);
  const more = `--${BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\n${model}\r\n`;
  return Buffer.concat([form.subarray(0, end), Buffer.from(more), form.subarray(end)]);
}

const small = noise(5_000);
const large = noise(3 * MIB);

describe.each([
  ['in one piece', false],
  ['in chunks', true],
])('a form that is sent %s arrives byte for byte, but for the model', (_how, chunked) => {
  test.each([
    ['small, model first', [field('model', 'm'), field('language', 'en'), file(small)]],
    ['small, model last', [file(small), field('model', 'm')]],
    ['large, model first', [field('model', 'm'), file(large), field('prompt', 'x')]],
    ['large, model last', [field('prompt', 'x'), file(large), field('model', 'm')]],
    ['large, model between', [file(large), field('model', 'm'), file(large, 'other')]],
  ])('%s', async (_name, parts) => {
    const form = formBytes(parts);
    const coming = nextOf(first);
    const answer = await post(form, { chunked });
    expect([answer.status, answer.json()]).toMatchObject([200, { text: 'heard' }]);
    const request = await coming;
    expect(request.body.equals(renamed(form, 'm', 'there'))).toBe(true);
    expect(request.header('content-type')).toBe(FORM_TYPE);
    expect(request.target).toBe('/v1/audio/transcriptions');
    const { access: _, ...line } = { access: 0, ...(await gateway.accessLine(answer)) };
    expect(line).toMatchObject({ model: 'm', outcome: 'ok', prompt_tokens: 25, bytes_in: form.length });
    await noFiles();
  });
});

test('where the name is the same at the target nothing differs, and where the URL names the model its field is gone', async () => {
  const form = formBytes([file(small), field('model', 'same'), field('language', 'en')]);
  let coming = nextOf(first);
  await post(form);
  expect((await coming).body.equals(form)).toBe(true);
  coming = nextOf(first);
  await post(formBytes([file(large), field('model', 'deployed'), field('language', 'en')]));
  expect((await coming).body.equals(formBytes([file(large), field('language', 'en')]))).toBe(true);
});

test('an image without a model is for the default, which is named where it has another name', async () => {
  for (const picture of [small, large]) {
    const parts = [field('prompt', 'a cat'), file(picture, 'image[]')];
    const coming = nextOf(first);
    expect((await post(formBytes(parts), { target: '/v1/images/edits' })).status).toBe(200);
    const request = await coming;
    const added = `--${BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\npainter\r\n--${BOUNDARY}--\r\n`;
    const sent = formBytes(parts);
    const expected = Buffer.concat([
      sent.subarray(0, sent.length - `--${BOUNDARY}--\r\n`.length),
      Buffer.from(added),
    ]);
    expect(request.body.equals(expected)).toBe(true);
  }
});

test('any form in any pieces arrives byte for byte', async () => {
  const sizes = fc.constantFrom(0, 1, 1_000, 70_000, MIB, MIB + 300_000);
  const at = fc.nat({ max: 3 });
  await fc.assert(
    fc.asyncProperty(fc.array(sizes, { maxLength: 3 }), at, fc.boolean(), async (each, place, chunked) => {
      const parts = each.map((size, index) => file(noise(size), `file${index}`));
      parts.splice(Math.min(place, parts.length), 0, field('model', 'm'));
      const form = formBytes(parts);
      const coming = nextOf(first);
      const answer = await post(form, { chunked });
      expect(answer.status).toBe(200);
      expect((await coming).body.equals(renamed(form, 'm', 'there'))).toBe(true);
    }),
    { numRuns: 25 },
  );
});

describe('a large form whose model comes first', () => {
  const form = formBytes([field('model', 'two'), file(large)]);

  test('is on its way while it comes, with its length', async () => {
    const coming = first.requestHead(first.requests.length);
    using client = await begin(form.length);
    await client.write(form.subarray(0, MIB));
    const request = await coming;
    expect(request.header('content-length')).toBe(String(form.length + 2));
    expect(request.header('connection')).toBe('close');
    await until(() => request.body.length > MIB - 200_000, 'what was sent to arrive');
    expect(request.complete).toBe(false);
    await client.write(form.subarray(MIB));
    expect((await client.response()).status).toBe(200);
    expect(request.body.equals(renamed(form, 'two', 'there'))).toBe(true);
    expect(await files()).toBe(0);
  });

  test('goes to another target as long as nothing of it was sent', async () => {
    const lost = formBytes([field('model', 'lost'), file(large)]);
    const coming = nextOf(second);
    expect((await post(lost)).status).toBe(200);
    expect((await coming).body.equals(renamed(lost, 'lost', 'elsewhere'))).toBe(true);
  });

  test('goes to no other once it was begun', async () => {
    const before = second.requests.length;
    first.next(json(503, upstreamError('busy')));
    const answer = await post(form);
    expect([answer.status, second.requests.length - before]).toEqual([503, 0]);
    expect(await gateway.accessLine(answer)).toMatchObject({ attempts: 1, outcome: 'upstream_error' });
  });

  test('is refused early, and the client reads why while it still sends', async () => {
    first.next(early(json(413, upstreamError('too long for this model'))));
    using client = await begin(form.length);
    await client.write(form.subarray(0, MIB));
    const answer = await client.response();
    expect([answer.status, answer.header('connection')]).toEqual([413, 'close']);
    expect(answer.text()).toContain('too long for this model');
    await client.write(form.subarray(MIB));
    await client.closed;
  });

  test('is refused by an upstream that resets the connection behind its refusal', async () => {
    const long = formBytes([field('model', 'm'), file(noise(16 * MIB))]);
    first.next(early(wait(20), json(413, upstreamError('too long for this model')), reset()));
    using client = await begin(long.length);
    const writing = client.write(long).catch(() => undefined);
    expect((await client.response()).status).toBe(413);
    client.destroy();
    await writing;
  });

  test('is sent no further once it is refused', async () => {
    const long = formBytes([field('model', 'm'), file(noise(16 * MIB))]);
    const text = JSON.stringify(upstreamError('too long'));
    const headers = { 'content-type': 'application/json', 'content-length': text.length };
    first.next(early(head(413, headers), wait(300), send(text)));
    const coming = first.requestHead(first.requests.length);
    using client = await begin(long.length);
    await client.write(long).catch(() => undefined);
    expect((await client.response()).status).toBe(413);
    expect((await coming).body.length).toBeLessThan(8 * MIB);
  });

  test('is gone from the upstream when the client leaves within it', async () => {
    const coming = first.requestHead(first.requests.length);
    const client = await begin(form.length);
    await client.write(form.subarray(0, MIB));
    const request = await coming;
    client.destroy();
    await request.closed;
    expect(request.complete).toBe(false);
    await gateway.logLine((line) => line['outcome'] === 'client_closed', 'the line of who left');
  });

  test('that turns out to be damaged is refused, and the upstream never has all of it', async () => {
    const broken = Buffer.from(form);
    broken.write('?', broken.length - 4);
    const coming = first.requestHead(first.requests.length);
    const answer = await post(broken);
    expect([answer.status, answer.text()]).toEqual([400, expect.stringContaining('"code":"invalid_form"')]);
    const request = await coming;
    await request.closed;
    expect(request.complete).toBe(false);
  });

  test('has a second model behind its file: refused, though it is on its way', async () => {
    const twice = formBytes([field('model', 'two'), file(large), field('model', 'x')]);
    const answer = await post(twice);
    expect([answer.status, answer.text()]).toEqual([400, expect.stringContaining('"param":"model"')]);
  });

  test('that is larger than it may be, in chunks', async () => {
    const huge = formBytes([field('model', 'm'), file(noise(25 * MIB))]);
    using client = await begin(0, { chunked: true });
    const writing = writeChunked(client, huge).catch(() => undefined);
    expect((await client.response()).status).toBe(413);
    await writing;
    expect((await post(huge)).status).toBe(413);
  });

  test('whose upstream stops reading is a timeout of the upstream', async () => {
    const long = formBytes([field('model', 'm'), file(noise(23 * MIB))]);
    first.next(early(pauseReading(), silence()));
    using client = await begin(long.length);
    const writing = client.write(long).catch(() => undefined);
    const answer = await client.response();
    expect([answer.status, answer.text()]).toEqual([
      504,
      expect.stringContaining('"code":"upstream_timeout"'),
    ]);
    client.destroy();
    await writing;
  });

  test('has the deadline for the head from its last byte on', async () => {
    first.next(silence());
    using client = await begin(form.length);
    await client.write(form.subarray(0, MIB));
    await new Promise((resolve) => setTimeout(resolve, 500));
    await client.write(form.subarray(MIB));
    const sent = performance.now();
    const answer = await client.response();
    expect([answer.status, answer.text()]).toEqual([
      504,
      expect.stringContaining('"code":"upstream_timeout"'),
    ]);
    expect(performance.now() - sent).toBeGreaterThan(900);
  });

  test('whose client pauses for longer than the upstream may be silent is waited for', async () => {
    using client = await begin(form.length);
    await client.write(form.subarray(0, MIB));
    await new Promise((resolve) => setTimeout(resolve, 1_300));
    await client.write(form.subarray(MIB));
    expect((await client.response()).status).toBe(200);
  });

  test('whose upstream answers before it has all of it', async () => {
    const events = [
      '{"type":"transcript.text.delta","delta":"a"}',
      '{"type":"transcript.text.done","text":"a"}',
    ];
    const frames = events.map((event) => `data: ${event}\n\n`);
    const asked = formBytes([field('model', 'two'), field('stream', 'true'), file(large)]);
    // It goes on reading: both ways are open to the end.
    first.next(
      early(
        head(200, SSE_HEADERS),
        chunk(frames[0] ?? ''),
        (c) => c.waitFor(c.request.received),
        chunk(frames[1] ?? ''),
        lastChunk(),
      ),
    );
    const coming = first.requestHead(first.requests.length);
    using client = await begin(asked.length);
    await client.write(asked.subarray(0, MIB));
    await client.readUntil('"delta":"a"');
    await client.write(asked.subarray(MIB));
    const answer = await client.response();
    expect([answer.complete, answer.text()]).toEqual([true, frames.join('')]);
    expect((await coming).body.equals(renamed(asked, 'two', 'there'))).toBe(true);
    // It does not care for the rest.
    first.next(early(head(200, SSE_HEADERS), chunk(frames.join('')), lastChunk()));
    using other = await begin(asked.length);
    await other.write(asked.subarray(0, MIB));
    const whole = await other.response();
    expect([whole.complete, whole.text(), whole.header('connection')]).toEqual([
      true,
      frames.join(''),
      'close',
    ]);
    await other.closed;
  });

  test('that takes longer than the whole request may is the client’s timeout, and no fault of the upstream', async () => {
    const hasty = formBytes([field('model', 'hasty'), file(large)]);
    using client = await begin(hasty.length);
    await client.write(hasty.subarray(0, MIB));
    const answer = await client.response();
    expect([answer.status, answer.text()]).toEqual([
      408,
      expect.stringContaining('"code":"request_timeout"'),
    ]);
    expect(gateway.app.breaker('hasty', 'there')?.state ?? 'closed').toBe('closed');
  });

  test('may say at its end that a stream is wanted', async () => {
    const asked = formBytes([field('model', 'two'), file(large), field('stream', 'true')]);
    first.next(json(200, { text: 'all at once', usage: { input_tokens: 3, output_tokens: 4 } }));
    const answer = await post(asked);
    expect(answer.header('content-type')).toContain('text/event-stream');
    expect(answer.frames()).toEqual([
      'data: {"type":"transcript.text.delta","delta":"all at once"}',
      'data: {"type":"transcript.text.done","text":"all at once","usage":{"input_tokens":3,"output_tokens":4}}',
    ]);
    expect(await gateway.accessLine(answer)).toMatchObject({
      stream: true,
      prompt_tokens: 3,
      completion_tokens: 4,
    });
  });
});

describe('where all of the form is at hand another target may be asked', () => {
  test.each([
    ['small', [field('model', 'two'), file(small)], 0],
    ['large, with its model at the end', [file(large), field('model', 'two')], 1],
  ])('%s', async (_name, parts, kept) => {
    const form = formBytes(parts);
    let during = -1;
    first.next([
      async () => {
        during = await files();
      },
      json(500, upstreamError('broken')),
    ]);
    const [one, other] = [nextOf(first), nextOf(second)];
    const answer = await post(form);
    expect(answer.status).toBe(200);
    expect((await one).body.equals(renamed(form, 'two', 'there'))).toBe(true);
    expect((await other).body.equals(renamed(form, 'two', 'else/where'))).toBe(true);
    expect(await gateway.accessLine(answer)).toMatchObject({ attempts: 2, upstream: 'second', model: 'two' });
    expect(during).toBe(kept);
    await noFiles();
  });
});

test('an upload that is cut short leaves no file', async () => {
  const client = await begin(4 * MIB);
  await client.write(formBytes([file(large)]).subarray(0, 3 * MIB));
  await until(async () => (await files()) === 1, 'the file');
  const held = () => gateway.metric('tollgate_upload_file_bytes');
  await until(async () => (await held()) > MIB, 'most of it to be in the file');
  client.destroy();
  await noFiles();
  expect(await held()).toBe(0);
});

test('a slow upstream makes a fast client wait, and all of it arrives', async () => {
  const long = formBytes([field('model', 'm'), file(noise(23 * MIB))]);
  first.next(
    early(
      pauseReading(),
      wait(400),
      (c) => c.resumeReading(),
      (c) => c.waitFor(c.request.received),
      heard,
    ),
  );
  using client = await begin(long.length);
  const coming = nextOf(first);
  await client.write(long);
  expect((await client.response()).status).toBe(200);
  expect((await coming).body.equals(renamed(long, 'm', 'there'))).toBe(true);
});

describe('refused', () => {
  const model = field('model', 'm');
  const with_ = (head: string, value: string) =>
    Buffer.concat([
      Buffer.from(`--${BOUNDARY}\r\n${head}\r\n\r\n${value}\r\n`),
      formBytes([model, file(small)]),
    ]);
  test.each([
    ['two models', formBytes([model, file(small), model]), 'duplicate_parameter', 'model'],
    ['no model', formBytes([file(small)]), 'missing_required_parameter', 'model'],
    ['an empty model', formBytes([field('model', ''), file(small)]), 'invalid_value', 'model'],
    ['a long model', formBytes([field('model', 'x'.repeat(2000)), file(small)]), 'invalid_value', 'model'],
    ['a model on two lines', formBytes([field('model', 'a\r\nb'), file(small)]), 'invalid_value', 'model'],
    ['a model as a file', formBytes([{ name: 'model', file: Buffer.from('m') }]), 'invalid_form', null],
    [
      'a stream that is neither',
      formBytes([model, field('stream', '1'), file(small)]),
      'invalid_type',
      'stream',
    ],
    [
      'two streams',
      formBytes([model, field('stream', 'true'), field('stream', 'false')]),
      'duplicate_parameter',
      'stream',
    ],
    ['a model in another case', formBytes([field('Model', 'x'), model]), 'invalid_form', null],
    ['a list of models', formBytes([field('model[]', 'x'), model]), 'invalid_form', null],
    ['an encoded model', formBytes([field('mod%65l', 'x'), model]), 'invalid_form', null],
    ['a model behind an underscore', formBytes([field('_model', 'x'), model]), 'invalid_form', null],
    ['a model with U+0000', formBytes([field('model%00', 'x'), model]), 'invalid_form', null],
    ['a format in camel case', formBytes([field('responseFormat', 'text'), model]), 'invalid_form', null],
    ['a stream with a long s', formBytes([field('\u017ftream', 'true'), model]), 'invalid_form', null],
    ['a charset', formBytes([field('_charset_', 'utf-16'), model]), 'invalid_form', null],
    [
      'a model in Latin-1 that is more than ASCII',
      with_(
        'content-disposition: form-data; name="model"\r\ncontent-type: text/plain; charset=ISO-8859-1',
        'é',
      ),
      'invalid_value',
      'model',
    ],
    [
      'a model in another charset',
      with_('content-disposition: form-data; name="model"\r\ncontent-type: text/plain; charset=utf-16', 'x'),
      'invalid_form',
      null,
    ],
    ['half a form', formBytes([model, file(small)]).subarray(0, 2_000), 'invalid_form', null],
    ['nothing', Buffer.alloc(0), 'invalid_form', null],
  ])('%s', async (_name, form, code, param) => {
    const answer = await post(form);
    expect([answer.status, answer.json()]).toMatchObject([400, { error: { code, param } }]);
  });

  test.each([
    ['N', '10', 'invalid_form', null],
    ['n', 'ten', 'invalid_type', 'n'],
    ['n', '\uff11\uff10', 'invalid_type', 'n'],
    ['n', '1_0', 'invalid_type', 'n'],
    ['n', '0', 'invalid_value', 'n'],
    ['n', '-1', 'invalid_value', 'n'],
  ])('pictures with %s=%s', async (name, value, code, param) => {
    const form = formBytes([field('prompt', 'a cat'), field(name, value), file(small, 'image')]);
    const answer = await post(form, { target: '/v1/images/edits' });
    expect([answer.status, answer.json()]).toMatchObject([400, { error: { code, param } }]);
  });

  test.each([
    ['without a boundary', { 'content-type': 'multipart/form-data' }, 400, 'invalid_form'],
    ['as JSON', { 'content-type': 'application/json' }, 400, 'unsupported_content_type'],
    ['compressed', { 'content-encoding': 'gzip' }, 415, 'unsupported_content_encoding'],
  ])('%s', async (_name, headers, status, code) => {
    const answer = await post(formBytes([model, file(small)]), { headers });
    expect([answer.status, answer.json()]).toMatchObject([status, { error: { code } }]);
  });

  test('but not a model whose text is the same in Latin-1', async () => {
    const head =
      'content-disposition: form-data; name="model"\r\nContent-Type: text/plain; charset=ISO-8859-1';
    const form = Buffer.concat([
      Buffer.from(`--${BOUNDARY}\r\n${head}\r\n\r\nm\r\n`),
      formBytes([file(small)]),
    ]);
    expect((await post(form)).status).toBe(200);
  });

  test('a form where JSON is taken', async () => {
    const answer = await post(formBytes([model]), { target: '/v1/chat/completions' });
    expect([answer.status, answer.json()]).toMatchObject([
      400,
      { error: { code: 'unsupported_content_type' } },
    ]);
  });
});
