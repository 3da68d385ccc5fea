// What the events of a message say: which is output, which ends the stream, what was used; and errors in both directions.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import {
  anthropicErrorBody,
  asAnthropicError,
  statusOfError,
} from '../../src/http/exchange/anthropic-error.ts';
import type { FrameReader } from '../../src/proxy/contracts/endpoint.ts';
import { MESSAGE_ENDPOINTS } from '../../src/proxy/endpoints/message-endpoints.ts';
import { MessageReader } from '../../src/proxy/endpoints/message-events.ts';
import { shapeOf } from '../../src/wire/answer-shape.ts';
import { readCompletion } from '../../src/wire/chat-chunk.ts';
import { SseFrameScanner } from '../../src/wire/sse-frames.ts';
import { cuts, damage, damaged, frameBytes, pieces } from '../fuzz/generators.ts';
import {
  blockStart,
  blockStop,
  delta,
  ERROR_OF,
  errorEvent,
  MESSAGE_STOP,
  message,
  messageDelta,
  messageStart,
  messageStream,
  PING,
  textDelta,
  USAGE,
} from '../helpers/messages.ts';
import { eventFrame } from '../helpers/recorded.ts';

const read = (frame: string, reader: FrameReader = new MessageReader()) =>
  reader.read(Buffer.from(frame), 0, Buffer.byteLength(frame));

describe('events of a message', () => {
  test.each([
    ['the start', messageStart(), 'json', false],
    ['a ping', PING, 'json', false],
    ['the start of a text', blockStart(), 'json', false],
    ['the start of thinking', blockStart({ type: 'thinking', thinking: '', signature: '' }), 'json', false],
    [
      'the start of a tool call',
      blockStart({ type: 'tool_use', id: 'toolu_1', name: 'f', input: {} }),
      'json',
      true,
    ],
    ['hidden thinking', blockStart({ type: 'redacted_thinking', data: 'RW1w' }), 'json', true],
    ['an empty piece', textDelta(''), 'json', false],
    ['a piece of text', textDelta('Hel'), 'json', true],
    ['a piece of thinking', delta({ type: 'thinking_delta', thinking: 'Hm' }), 'json', true],
    ['a signature', delta({ type: 'signature_delta', signature: 'RXFR' }), 'json', true],
    ['a piece of input', delta({ type: 'input_json_delta', partial_json: '{"a":' }), 'json', true],
    ['an empty piece of input', delta({ type: 'input_json_delta', partial_json: '' }), 'json', false],
    ['the end of a block', blockStop(), 'json', false],
    ['a change of the message', messageDelta(), 'json', false],
    ['an unknown event', eventFrame({ type: 'future', delta: { text: 'x' } }), 'json', false],
    ['the end', MESSAGE_STOP, 'done', false],
    ['an error', errorEvent(), 'done', false],
    ['an error without a name', `data: ${JSON.stringify(ERROR_OF('api_error'))}\n\n`, 'done', false],
    ['an error of a server in between', 'data: {"error":{"message":"m"}}\n\n', 'done', false],
    ['an error with a bare text', 'event: error\ndata: {"message":"m"}\n\n', 'done', false],
    ['no object', 'data: [1]\n\n', 'other', false],
    ['a comment', ': keep-alive\n\n', 'comment', false],
  ])('%s', (name, frame, kind, hasOutput) => {
    const hasError = name.startsWith('an error');
    expect(read(frame)).toMatchObject({ kind, hasOutput, hasError, finish: null, usageOnly: false });
  });

  test('only the last event ends the stream, and a [DONE] before it is hidden', () => {
    const reader = new MessageReader();
    expect(read('data: [DONE]\n\n', reader)).toMatchObject({ kind: 'other', usageOnly: true });
    for (const frame of messageStream().slice(0, -1)) expect(read(frame, reader).kind).toBe('json');
    expect(read('data: [DONE]\n\n', reader)).toMatchObject({ kind: 'other', usageOnly: true });
    expect(read(MESSAGE_STOP, reader).kind).toBe('done');
    expect(read('data: [DONE]\n\n', reader)).toMatchObject({ kind: 'done', usageOnly: false });
  });

  test('the model is that of the message, also over several lines', () => {
    const frame = messageStart();
    const { modelSpan } = read(frame);
    expect(modelSpan && frame.slice(modelSpan.start, modelSpan.end)).toBe('"upstream-model"');
    const lines = 'data: {"type":"message_start",\r\ndata: "message":{"model":\r\ndata: "m"}}\r\n\r\n';
    const span = read(lines).modelSpan;
    expect(span && lines.slice(span.start, span.end)).toBe('"m"');
    expect(read(eventFrame({ type: 'ping', model: 'x' })).modelSpan).toBe(null);
  });

  test('the whole answer may have arrived after a block, until another one begins', () => {
    const reader = new MessageReader();
    const after = messageStream().map((frame) => [read(frame, reader), reader.mayBeLast][1]);
    expect(after).toEqual([false, false, false, false, false, true, true, true]);
    expect([read(blockStart(), reader), reader.mayBeLast][1]).toBe(false);
  });

  test('the text of pieces is counted, and nothing twice', () => {
    const reader = new MessageReader();
    const counts = [
      textDelta('Hel'),
      delta({ type: 'thinking_delta', thinking: '12345' }),
      delta({ type: 'input_json_delta', partial_json: '{}' }),
      delta({ type: 'signature_delta', signature: 'RXFRRXFR' }),
      blockStop(),
      messageDelta(),
    ].map((frame) => [read(frame, reader), reader.text][1]);
    expect(counts).toEqual([3, 5, 2, 0, 0, 0]);
  });

  test('a message that the model refused ends as filtered', () => {
    const reader = new MessageReader();
    const finishes = messageStream([], 'refusal').map((frame) => read(frame, reader).finish);
    expect(finishes).toEqual([null, null, null, null, null, 'content_filter']);
  });
});

describe('the usage of a message', () => {
  const cache = {
    cacheWrite: 100,
    audioInput: 0,
    imageInput: 0,
    cachedAudio: 0,
    cachedImage: 0,
    audioOutput: 0,
  };
  const counted = { prompt: 1125, cached: 1000, reasoning: 0, details: cache };
  const usageOf = (...frames: string[]) => {
    const reader = new MessageReader();
    return frames.map((frame) => read(frame, reader).usage);
  };

  test('what was written to a cache and read from one is part of the prompt', () => {
    const whole = readCompletion(Buffer.from(JSON.stringify(message())));
    expect(whole.usage).toEqual({ ...counted, completion: 15, total: 1140 });
  });

  test('the last counts of a stream hold, and the end repeats them', () => {
    const [first, second, last] = usageOf(messageStart(), messageDelta(), MESSAGE_STOP);
    expect(first).toEqual({ ...counted, completion: 1, total: 1126 });
    expect(second).toEqual({ ...counted, completion: 15, total: 1140 });
    expect(last).toEqual(second);
  });

  test.each<[string, object, object]>([
    ['all of them again', { ...USAGE, output_tokens: 15 }, { ...counted, completion: 15 }],
    [
      'nulls',
      { input_tokens: null, cache_read_input_tokens: null, output_tokens: 15 },
      { ...counted, completion: 15 },
    ],
    ['the input without its caches', { input_tokens: 25, output_tokens: 15 }, { ...counted, completion: 15 }],
    ['zeros for the input', { input_tokens: 0, output_tokens: 15 }, { ...counted, completion: 15 }],
    [
      'a larger input',
      { ...USAGE, input_tokens: 75, output_tokens: 9 },
      { ...counted, prompt: 1175, completion: 9 },
    ],
    ['nothing', {}, { ...counted, completion: 1 }],
    [
      'thinking',
      { output_tokens: 15, output_tokens_details: { thinking_tokens: 9 } },
      { ...counted, completion: 15, reasoning: 9 },
    ],
  ])('a change of the message with %s', (_, usage, expected) => {
    expect(usageOf(messageStart(), messageDelta('end_turn', usage)).at(-1)).toMatchObject(expected);
  });

  test.each([
    ['compactions of the context', 'compaction'],
    ['advice of another model', 'advisor_message'],
  ])('%s are billed beside the message', (_, type) => {
    const compaction = {
      type,
      input_tokens: 1000,
      output_tokens: 50,
      cache_read_input_tokens: 10,
    };
    const turn = { type: 'message', input_tokens: 25, output_tokens: 15 };
    const iterations = [compaction, turn, { ...compaction, cache_creation_input_tokens: 7 }, null, 5];
    const sums = {
      prompt: 1125 + 2 * 1010 + 7,
      completion: 15 + 2 * 50,
      cached: 1020,
      details: { ...cache, cacheWrite: 107 },
    };
    const whole = JSON.stringify(message([], { usage: { ...USAGE, output_tokens: 15, iterations } }));
    expect(readCompletion(Buffer.from(whole)).usage).toMatchObject(sums);
    const events = [
      messageStart(),
      messageDelta('end_turn', { ...USAGE, output_tokens: 15, iterations }),
      MESSAGE_STOP,
    ];
    expect(usageOf(...events).at(-1)).toMatchObject(sums);
    // Turns of a loop of tools are in the totals already.
    expect(
      usageOf(messageDelta('end_turn', { ...USAGE, output_tokens: 15, iterations: [turn, turn] })),
    ).toMatchObject([{ ...counted, completion: 15 }]);
  });

  test('counts of the other API keep their meaning', () => {
    const chat = { prompt_tokens: 1125, completion_tokens: 15, cache_creation_input_tokens: 100 };
    const body = { choices: [], usage: { ...chat, cache_read_input_tokens: 1000 } };
    const { usage } = readCompletion(Buffer.from(JSON.stringify(body)));
    expect(usage).toEqual({ ...counted, completion: 15, total: 1140 });
  });
});

describe('errors', () => {
  test.each([
    ['invalid_request_error', 400],
    ['authentication_error', 401],
    ['billing_error', 402],
    ['permission_error', 403],
    ['not_found_error', 404],
    ['request_too_large', 413],
    ['rate_limit_error', 429],
    ['api_error', 500],
    ['timeout_error', 504],
    ['overloaded_error', 529],
    ['toString', 502],
  ])('%s in a stream or a 200 counts as %i', (type, status) => {
    const { error } = new MessageReader().judge(Buffer.from(errorEvent(type)), {});
    const hidden = [401, 402, 403];
    if (!hidden.includes(status)) expect(error.status).toBe(status);
    const [endpoint] = MESSAGE_ENDPOINTS;
    const whole = endpoint?.judgeAnswer?.(JSON.stringify(ERROR_OF(type)), {});
    expect(whole?.error).toMatchObject({ code: error.code, status: error.status });
    expect(statusOfError(JSON.stringify(ERROR_OF(type)))).toBe(status);
  });

  test.each([
    ['invalid_json', 'invalid_request_error'],
    ['invalid_api_key', 'authentication_error'],
    ['model_not_found', 'not_found_error'],
    ['request_too_large', 'request_too_large'],
    ['rate_limit_exceeded', 'rate_limit_error'],
    ['upstream_auth_error', 'api_error'],
    ['internal_error', 'api_error'],
    ['overloaded', 'overloaded_error'],
    ['upstream_timeout', 'timeout_error'],
  ] as const)('%s of the gateway is a %s', (code, type) => {
    const error = new GatewayError(code);
    const told = { type: 'error', error: { type, message: error.message, code }, request_id: 'req_1' };
    expect(JSON.parse(anthropicErrorBody(error, 'req_1'))).toEqual(told);
    const frame = new MessageReader().errorFrame(error, 'req_1').toString();
    expect(frame).toBe(`event: error\ndata: ${JSON.stringify(told)}\n\n`);
  });

  test('the own bytes of an upstream stay, and other shapes become Anthropic’s', () => {
    const own = Buffer.from(JSON.stringify(ERROR_OF('overloaded_error'), null, 1));
    expect(asAnthropicError(529, own, 'req_1')).toBe(own);
    for (const text of ['{"error":{"message":"m","code":7}}', '{"message":"m"}', '{"detail":"m"}']) {
      const shaped = {
        type: 'error',
        error: { type: 'rate_limit_error', message: 'm' },
        request_id: 'req_1',
      };
      expect(asAnthropicError(429, Buffer.from(text), 'req_1')).toBe(JSON.stringify(shaped));
    }
  });

  test('a whole message is no error', () => {
    expect(shapeOf(Buffer.from(JSON.stringify(message())))).not.toBe('error');
  });
});

const numRuns = Number(process.env['FUZZ_RUNS'] ?? 200);

test('facts do not depend on where the stream was cut', () => {
  const bytes = Buffer.from(messageStream(['a', 'ü', '😀']).join('').replaceAll('\n', '\r\n'));
  const factsOf = (parts: readonly Buffer[]) => {
    const [scanner, reader] = [new SseFrameScanner(), new MessageReader()];
    return parts.flatMap((part) => {
      const batch = scanner.push(Buffer.from(part));
      let start = 0;
      return batch.ends.map((end) => {
        const { modelSpan, ...facts } = reader.read(batch.bytes, start, end);
        start = end;
        const model = modelSpan && batch.bytes.toString('utf8', modelSpan.start, modelSpan.end);
        return { ...facts, model, text: reader.text };
      });
    });
  };
  // The second half of the last line end may come by itself.
  const seen = (parts: readonly Buffer[]) => factsOf(parts).filter(({ kind }) => kind !== 'comment');
  const whole = seen([bytes]);
  expect(whole.at(-1)).toMatchObject({ kind: 'done', usage: { total: 1140 } });
  fc.assert(
    fc.property(cuts, (places) => {
      expect(seen(pieces(bytes, places))).toEqual(whole);
    }),
    { numRuns },
  );
});

test('no bytes make the reader fail, and what it finds is inside', () => {
  fc.assert(
    fc.property(frameBytes, fc.option(damage), (frame, harm) => {
      const bytes = harm === null ? frame : damaged(frame, harm);
      const { modelSpan } = new MessageReader().read(bytes, 0, bytes.length);
      if (modelSpan === null) return;
      expect(modelSpan.end).toBeLessThanOrEqual(bytes.length);
      expect(bytes[modelSpan.start]).toBe(0x22);
    }),
    { numRuns },
  );
});
