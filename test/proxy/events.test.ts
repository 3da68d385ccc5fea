// What typed events say: which of them end a stream, where the model's name stands, what an error among them means.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { BodyPieces } from '../../src/http/pieces/body-pieces.ts';
import type { FrameReader } from '../../src/proxy/contracts/endpoint.ts';
import { RESPONSES } from '../../src/proxy/endpoints/json-endpoints.ts';
import { IMAGES, SPEECH } from '../../src/proxy/endpoints/media-endpoints.ts';
import { SseFrameScanner } from '../../src/wire/sse-frames.ts';
import { cuts, damage, damaged, frameBytes, pieces } from '../fuzz/generators.ts';
import { eventFrame, framesOf, inputUsage, responseEvents, responseObject } from '../helpers/recorded.ts';

function reader(endpoint = RESPONSES): FrameReader {
  const made = endpoint.frames?.();
  if (made === undefined) throw new Error('no frames of its own');
  return made;
}

function read(frame: string, endpoint = RESPONSES) {
  const bytes = Buffer.from(frame);
  return reader(endpoint).read(bytes, 0, bytes.length);
}

describe('events of a response', () => {
  test.each([
    ['response.created', 'json', false],
    ['response.queued', 'json', false],
    ['response.in_progress', 'json', false],
    ['response.output_item.added', 'json', false],
    ['response.content_part.added', 'json', false],
    ['response.output_text.delta', 'json', true],
    ['response.function_call_arguments.delta', 'json', true],
    ['response.web_search_call.searching', 'json', true],
    ['response.output_item.done', 'json', true],
    ['keepalive', 'json', false],
    ['response.completed', 'done', false],
    ['response.incomplete', 'done', false],
    ['response.failed', 'done', false],
    ['error', 'done', false],
  ])('%s', (type, kind, hasOutput) => {
    const hasError = type === 'response.failed' || type === 'error';
    expect(read(eventFrame({ type }))).toMatchObject({ kind, hasOutput, hasError, usageOnly: false });
    // The name in the data decides, whether or not the event has a name of its own.
    expect(read(`data: ${JSON.stringify({ type })}\n\n`)).toMatchObject({ kind, hasOutput, hasError });
  });

  test('the model and the usage are those of the response in the event', () => {
    const frame = eventFrame({ type: 'response.completed', response: responseObject() });
    const { modelSpan, usage } = read(frame);
    expect(modelSpan && frame.slice(modelSpan.start, modelSpan.end)).toBe('"upstream-model"');
    expect(usage).toEqual({ prompt: 7, completion: 4, total: 11, cached: 0, reasoning: 0 });
    const details = {
      input_tokens_details: { cached_tokens: 3 },
      output_tokens_details: { reasoning_tokens: 2 },
    };
    const counted = { ...inputUsage(), ...details };
    const last = eventFrame({ type: 'response.completed', response: { usage: counted } });
    expect(read(last).usage).toEqual({ prompt: 7, completion: 4, total: 11, cached: 3, reasoning: 2 });
    const deep = eventFrame({ type: 'response.output_item.done', item: { model: 'x', usage: inputUsage() } });
    expect(read(deep)).toMatchObject({ modelSpan: null, usage: null });
  });

  test('an event over several lines of data is read as one', () => {
    const frame =
      'event: response.created\r\ndata: {"type":"response.created",\r\ndata: "response":{"model":\r\ndata: "m"}}\r\n\r\n';
    const { kind, modelSpan } = read(frame);
    expect([kind, modelSpan && frame.slice(modelSpan.start, modelSpan.end)]).toEqual(['json', '"m"']);
  });

  test('what is no event of this API ends nothing', () => {
    // Hidden: to a client it would be the end.
    expect(read('data: [DONE]\n\n')).toMatchObject({ kind: 'other', hasError: false, usageOnly: true });
    expect(read('data: {"broken\n\n')).toMatchObject({ kind: 'other' });
    expect(read(': response.completed\n\n')).toMatchObject({ kind: 'comment' });
    expect(read('event: response.completed\n\n')).toMatchObject({ kind: 'comment', finish: null });
    expect(read('data: {"type":7}\n\n')).toMatchObject({ kind: 'json', hasOutput: false });
  });

  test('an error object of a server in between is an error, whatever it is called', () => {
    expect(read('data: {"error":{"message":"m"}}\n\n')).toMatchObject({ kind: 'json', hasError: true });
    expect(read('event: error\ndata: {"message":"m"}\n\n')).toMatchObject({ kind: 'done', hasError: true });
    expect(read('data: {"type":"response.created","error":null}\n\n')).toMatchObject({ hasError: false });
  });
});

describe('events of images and speech', () => {
  test('a picture is whole, and another one may follow', () => {
    const it = reader(IMAGES);
    const facts = (text: string) => it.read(Buffer.from(text), 0, Buffer.byteLength(text));
    expect(facts('data: [DONE]\n\n').kind).toBe('other');
    expect(facts(eventFrame({ type: 'image_generation.partial_image' }))).toMatchObject({
      hasOutput: true,
      finish: null,
    });
    expect(facts(eventFrame({ type: 'image_generation.completed', usage: inputUsage() }))).toMatchObject({
      kind: 'json',
      finish: 'image_generation.completed',
      usage: { prompt: 7, completion: 4 },
    });
    expect(facts('data: [DONE]\n\n').kind).toBe('done');
  });

  test('speech', () => {
    expect(read(eventFrame({ type: 'speech.audio.delta', audio: 'AA' }), SPEECH)).toMatchObject({
      hasOutput: true,
    });
    expect(read(eventFrame({ type: 'speech.audio.done' }), SPEECH).finish).toBe('speech.audio.done');
    expect(read(eventFrame({ type: 'error', message: 'm' }), SPEECH)).toMatchObject({
      kind: 'done',
      hasError: true,
    });
  });
});

test('facts do not depend on where the stream was cut', () => {
  const text = framesOf(responseEvents(['a', 'ü', '😀'])).join('');
  const bytes = Buffer.from(text);
  const factsOf = (parts: readonly Buffer[]) => {
    const [scanner, it] = [new SseFrameScanner(), reader()];
    return parts.flatMap((part) => {
      const batch = scanner.push(Buffer.from(part));
      let start = 0;
      return batch.ends.map((end) => {
        const { modelSpan, ...facts } = it.read(batch.bytes, start, end);
        start = end;
        return { ...facts, model: modelSpan && batch.bytes.toString('utf8', modelSpan.start, modelSpan.end) };
      });
    });
  };
  const whole = factsOf([bytes]);
  expect(whole.at(-1)).toMatchObject({ kind: 'done', model: '"upstream-model"' });
  fc.assert(
    fc.property(cuts, (places) => {
      expect(factsOf(pieces(bytes, places))).toEqual(whole);
    }),
    { numRuns: 100 },
  );
});

test('no bytes make it fail, and what it finds is inside', () => {
  fc.assert(
    fc.property(frameBytes, fc.option(damage), (frame, harm) => {
      const bytes = harm === null ? frame : damaged(frame, harm);
      const inside = Buffer.concat([
        Buffer.from('data: {"model":"a"}\n\n'),
        bytes,
        Buffer.from('data: 1\n\n'),
      ]);
      const [start, end] = [21, 21 + bytes.length];
      const { modelSpan } = reader().read(inside, start, end);
      if (modelSpan === null) return;
      expect(modelSpan.start).toBeGreaterThanOrEqual(start);
      expect(modelSpan.end).toBeLessThanOrEqual(end);
      expect(inside[modelSpan.start]).toBe(0x22);
    }),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 300) },
  );
});

test('an error of the gateway is an event with the next number, and an error object for SDKs', () => {
  const it = reader();
  for (const frame of framesOf(responseEvents().slice(0, 3)))
    it.read(Buffer.from(frame), 0, Buffer.byteLength(frame));
  const frame = it.errorFrame(new GatewayError('stream_incomplete'), 'req_1').toString();
  expect(frame).toMatch(/^event: error\ndata: .*\n\n$/);
  const data: unknown = JSON.parse(frame.split('data: ')[1] ?? '');
  const { message } = new GatewayError('stream_incomplete');
  const told = { code: 'stream_incomplete', message, param: null };
  expect(data).toEqual({
    type: 'error',
    ...told,
    sequence_number: 3,
    error: { ...told, type: 'server_error' },
  });
});

describe('an error before any output means', () => {
  const failed = (error: object) =>
    eventFrame({ type: 'response.failed', response: responseObject({ status: 'failed', error }) });
  test.each([
    [failed({ code: 'rate_limit_exceeded', message: 'slow' }), 429, true],
    [failed({ code: 'server_error', message: 'oops' }), 500, true],
    [failed({ code: 'invalid_prompt', message: 'no' }), 400, false],
    [failed({ code: 'image_too_large', message: 'no' }), 400, false],
    [failed({ code: 'something_new', message: 'no' }), 502, true],
    [
      eventFrame({ type: 'error', code: 'context_length_exceeded', message: 'long', param: 'input' }),
      400,
      false,
    ],
    [eventFrame({ type: 'error', message: 'x', code: null }), 502, true],
    ['data: {"error":{"message":"m","code":403}}\n\n', 403, true],
    ['data: {"error":{"message":"m","code":401}}\n\n', 406, true],
    ['data: {"error":{"message":"m","code":429}}\n\n', 429, true],
  ])('%#', (frame, status, next) => {
    const judged = reader().judge(Buffer.from(frame), {});
    expect([judged.error.status, judged.tryNextTarget]).toEqual([status, next]);
  });

  test('its text is shown in the shape of the API', () => {
    const { verbatim } = reader().judge(Buffer.from(failed({ code: 'server_error', message: 'oops' })), {});
    expect(JSON.parse(verbatim?.body.toString() ?? '')).toEqual({
      error: { message: 'oops', type: 'server_error', param: null, code: 'server_error' },
    });
  });
});

test.each([
  [64 * 1024, false],
  [65 * 1024, true],
])('an answer of %i bytes that becomes events is copied only where it is small', (size, isInPieces) => {
  const body = Buffer.from(JSON.stringify({ created: 1, data: [{ b64_json: 'Q'.repeat(size - 200) }] }));
  const events = IMAGES.asStream?.(body, Buffer.from('m'), false);
  expect(events).toBeInstanceOf(isInPieces ? BodyPieces : Buffer);
  expect(events?.length).toBeGreaterThan(size - 200);
});
