import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { jsonString, spliceSpans } from '../../src/proxy/request/request-scan.ts';
import { readChunk, readCompletion } from '../../src/wire/chat-chunk.ts';
import { properties } from '../fuzz/properties.ts';

/** The facts of a frame, with the text of the model's span instead of its place. */
function read(frame: string | Buffer) {
  const bytes = Buffer.from(frame);
  const { modelSpan, ...facts } = readChunk(bytes);
  return {
    ...facts,
    model: modelSpan === null ? null : bytes.toString('utf8', modelSpan.start, modelSpan.end),
  };
}

const NOTHING = {
  hasError: false,
  model: null,
  hasOutput: false,
  finish: null,
  usage: null,
  usageOnly: false,
};

/** A frame with one choice that has these members. */
const choice = (members: string) => `data: {"choices":[{"index":0,${members}}]}\n\n`;
const delta = (members: string) => choice(`"delta":{${members}}`);

describe('the kind of a frame', () => {
  test.each([
    ['a comment', ': OPENROUTER PROCESSING\n\n', 'comment'],
    ['an empty comment', ':\n\n', 'comment'],
    ['a comment that looks like data', ': data: {"error":1}\n\n', 'comment'],
    ['a blank line', '\n', 'comment'],
    ['a late line feed', '\n', 'comment'],
    ['nothing', '', 'comment'],
    ['other fields', 'id: 1\nretry: 3000\nevent: ping\n\n', 'comment'],
    ['a field whose name begins with data', 'database: {}\n\n', 'comment'],
    ['a field in capitals', 'DATA: {}\n\n', 'comment'],
    ['a field behind a space', ' data: {}\n\n', 'comment'],
    ['done', 'data: [DONE]\n\n', 'done'],
    ['done without the space', 'data:[DONE]\r\n\r\n', 'done'],
    ['done with more behind it', 'data: [DONE] \n\n', 'done'],
    ['done with a name', 'event: x\ndata: [DONE]\r\r', 'done'],
    ['done without its blank line', 'data: [DONE]', 'done'],
    ['two spaces before done', 'data:  [DONE]\n\n', 'other'],
    ['an object', 'data: {}\n\n', 'json'],
    ['an object without the space', 'data:{"a":1}\r\r', 'json'],
    ['an object in white space', 'data:  \t{"a": 1}\t \r\n\r\n', 'json'],
    ['an object behind a comment', ': ping\ndata: {}\n\n', 'json'],
    ['an object before a comment', 'data: {}\n: ping\n\n', 'json'],
    ['an object with a name', 'event: message\ndata: {}\nid: 1\n\n', 'json'],
    ['an object behind a byte order mark', '\ufeffdata: {}\n\n', 'json'],
    ['an object over several lines', 'data: {"a":\ndata: [1,\r\ndata\rdata:2]}\n\n', 'json'],
    ['an array', 'data: [{"a":1}]\n\n', 'other'],
    ['a string', 'data: "x"\n\n', 'other'],
    ['text', 'data: hello\n\n', 'other'],
    ['an error page', 'data: <html>\n\n', 'other'],
    ['empty data', 'data:\n\n', 'comment'],
    ['blank data', 'data: \ndata:\t\n\n', 'comment'],
    ['the field alone', 'data\n\n', 'comment'],
    ['an object that breaks off', 'data: {"choices":[\n\n', 'other'],
    ['two objects', 'data: {}{}\n\n', 'other'],
    ['two objects on two lines', 'data: {}\ndata: {}\n\n', 'other'],
    ['an object whose second line is no data', 'data: {"a":\n1}\n\n', 'other'],
    ['a string over two lines', 'data: {"a":"b\ndata: c"}\n\n', 'other'],
    ['a raw control character in a string', 'data: {"a":"\t"}\n\n', 'other'],
  ])('%s', (_, frame, kind) => {
    expect(read(frame)).toEqual({ ...NOTHING, kind });
  });

  test('invalid UTF-8 does not fail', () => {
    const frame = Buffer.concat([
      Buffer.from('data: {"model":"'),
      Buffer.from([0xff, 0xe5]),
      Buffer.from('"}\n\n'),
    ]);
    expect(readChunk(frame)).toMatchObject({ kind: 'json', modelSpan: { start: 15, end: 19 } });
  });
});

test('nothing outside the range is read', () => {
  const bytes = Buffer.from('event: error\ndata: {"model":"m","error":1}\r\ndata:  {}\n\ndata: [DONE]\n\n');
  for (let start = 0; start <= bytes.length; start++) {
    for (let end = start; end <= bytes.length; end++) {
      const { modelSpan, ...facts } = readChunk(bytes, start, end);
      const alone = readChunk(Buffer.from(bytes.subarray(start, end)));
      const shifted = alone.modelSpan && {
        start: alone.modelSpan.start + start,
        end: alone.modelSpan.end + start,
      };
      expect({ ...facts, modelSpan }).toEqual({ ...alone, modelSpan: shifted });
    }
  }
});

describe('errors', () => {
  test.each([
    ['{"error":{"message":"m"}}', true],
    ['{"error":"boom"}', true],
    ['{"error":true}', true],
    ['{"error":1}', true],
    ['{"error":-0.5}', true],
    ['{"error":[]}', true],
    ['{"error":{}}', true],
    ['{"\\u0065rror":{}}', true],
    ['{"choices":[],"error":{"code":400}}', true],
    ['{"error":null}', false],
    ['{"error":false}', false],
    ['{"error":""}', false],
    ['{"error":0}', false],
    ['{"error":-0.0e5}', false],
    ['{"choices":[{"error":{}}]}', true],
    ['{"choices":[{"error":null,"finish_reason":null}]}', false],
    ['{"choices":[{"delta":{"content":""},"finish_reason":"error"}]}', true],
    ['{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}', true],
    ['{"choices":[{"delta":{},"finish_reason":"abort"}]}', true],
    ['{"choices":[{"delta":{"content":"x"},"error":{"code":502},"finish_reason":"error"}]}', false],
    ['{"errors":{}}', false],
  ])('%s', (json, hasError) => {
    expect(read(`data: ${json}\n\n`)).toMatchObject({ kind: 'json', hasError });
  });

  test.each([
    ['event: error\ndata: {"message":"m"}\n\n', 'json', true],
    ['data: boom\nevent:error\n\n', 'other', true],
    ['event: error\r\n\r\n', 'comment', true],
    ['event: error\nevent: message\ndata: {}\n\n', 'json', false],
    ['event: errors\ndata: {}\n\n', 'json', false],
    ['event:  error\ndata: {}\n\n', 'json', false],
    [': event: error\ndata: {}\n\n', 'json', false],
  ])('the name of the event: %j', (frame, kind, hasError) => {
    expect(read(frame)).toMatchObject({ kind, hasError });
  });

  test('a chunk with an error keeps its other facts', () => {
    const frame =
      'data: {"id":"x","model":"m","error":{"code":"server_error"},"choices":[{"delta":{"content":""},"finish_reason":"error"}],"usage":{"prompt_tokens":3}}\n\n';
    expect(read(frame)).toMatchObject({
      hasError: true,
      model: '"m"',
      finish: 'error',
      usage: { prompt: 3 },
    });
  });
});

describe('the model', () => {
  test.each([
    ['data: {"model":"gpt-4o","choices":[]}\n\n', '"gpt-4o"'],
    ['data: {"choices":[{"model":"inner"}], "model" : "a\\u002fb" }\r\n\r\n', '"a\\u002fb"'],
    ['data:{"mod\\u0065l":"m"}\n\n', '"m"'],
    ['data: {"model":""}\n\n', '""'],
    ['data: {"model":null}\n\n', null],
    ['data: {"model":5}\n\n', null],
    ['data: {"Model":"m"}\n\n', null],
    ['data: {"model":"old","model":"new"}\n\n', '"new"'],
    [': ping\nevent: x\ndata: {"model":"m"}\n\n', '"m"'],
    ['data: {"a":1,\r\ndata:"x":[\rdata\ndata:  ],  "model":\ndata: "m"\n: c\ndata: }\n\n', '"m"'],
    ['\ufeffdata: {\ndata: "model":"é😀"}\n\n', '"é😀"'],
  ])('%j', (frame, model) => {
    expect(read(frame).model).toBe(model);
  });

  test('is found in a frame among others, and splicing it leaves the rest', () => {
    const frames = [
      'data: {"model":"a","x":1.0}\n\n',
      'data: {"y":[],\ndata: "model":"b"}\r\n\r\n',
      'data: [DONE]\n\n',
    ];
    const bytes = Buffer.from(frames.join(''));
    let start = 0;
    const edits = frames.flatMap((frame) => {
      const { modelSpan } = readChunk(bytes, start, start + Buffer.byteLength(frame));
      start += Buffer.byteLength(frame);
      return modelSpan === null ? [] : [{ span: modelSpan, bytes: jsonString('public/name') }];
    });
    expect(spliceSpans(bytes, edits).toString()).toBe(
      'data: {"model":"public/name","x":1.0}\n\ndata: {"y":[],\ndata: "model":"public/name"}\r\n\r\ndata: [DONE]\n\n',
    );
  });
});

describe('output', () => {
  test.each([
    ['content', delta('"content":"Hello"')],
    ['a space', delta('"content":" "')],
    ['content behind the role', delta('"role":"assistant","content":"x"')],
    ['tool calls', delta('"content":null,"tool_calls":[{"index":0,"function":{"arguments":""}}]')],
    ['a function call', delta('"function_call":{"name":"f"}')],
    ['a refusal', delta('"refusal":"no"')],
    ['reasoning', delta('"content":"","reasoning_content":"hm"')],
    ['reasoning by its other name', delta('"reasoning":"hm"')],
    ['audio', delta('"audio":{"id":"a"}')],
    ['a short array', delta('"content":[0]')],
    ['a short array in white space', delta('"content":[ 0]')],
    ['content parts', delta('"content":[{"type":"text"}]')],
    ['what nobody knows yet', delta('"thought":7')],
    ['text of a completion', choice('"text":"x"')],
    ['a message', choice('"message":{"role":"assistant","content":"x"}')],
    ['the second of two choices', 'data: {"choices":[{"delta":{}},{"delta":{"content":"x"}}]}\n\n'],
    ['content before nothing', delta('"content":"x","refusal":null')],
    ['with white space', 'data: { "choices" : [ { "delta" : { "content" : "x" } } ] }\n\n'],
    ['over several lines', 'data: {"choices":[\ndata: {"delta":\ndata: {"content":"x"}}]}\n\n'],
  ])('%s is output', (_, frame) => {
    expect(read(frame)).toMatchObject({ kind: 'json', hasOutput: true });
  });

  test.each([
    ['the role', delta('"role":"assistant"')],
    ['the role with empty content', delta('"role":"assistant","content":"","refusal":null')],
    ['an empty delta', delta('')],
    ['null', delta('"content":null,"tool_calls":null,"function_call":null')],
    ['empty containers', delta('"tool_calls":[ ],"audio":{\t}')],
    ['false', delta('"flag":false')],
    ['empty text', choice('"text":""')],
    ['no text', choice('"text":null')],
    ['a delta that is none', choice('"delta":null')],
    ['a delta that is a string', choice('"delta":"x"')],
    [
      'what is beside the delta',
      choice('"delta":{},"logprobs":{"content":[{"token":"x"}]},"content_filter_results":{"hate":{}}'),
    ],
    ['choices that are none', 'data: {"choices":"x"}\n\n'],
    ['a choice that is none', 'data: {"choices":["x",[{"delta":{"content":"x"}}]]}\n\n'],
    ['content elsewhere', 'data: {"delta":{"content":"x"},"content":"x"}\n\n'],
    ['a comment', ': x\n\n'],
    ['done', 'data: [DONE]\n\n'],
  ])('%s is no output', (_, frame) => {
    expect(read(frame).hasOutput).toBe(false);
  });
});

describe('the finish reason', () => {
  test.each([
    [choice('"delta":{},"finish_reason":"stop"'), 'stop'],
    [choice('"finish_reason":"tool_calls","delta":{}'), 'tool_calls'],
    [choice('"delta":{"finish_reason":"x"},"finish_reason":"content_\\u0066ilter"'), 'content_filter'],
    [choice('"text":"","finish_reason":"length"'), 'length'],
    ['data: {"choices":[{"finish_reason":"stop"},{"finish_reason":null}]}\n\n', 'stop'],
    [choice('"delta":{},"finish_reason":null'), null],
    [choice('"delta":{},"finish_reason":""'), null],
    [choice('"delta":{}'), null],
    ['data: {"choices":[],"finish_reason":"stop"}\n\n', null],
  ])('%s', (frame, finish) => {
    expect(read(frame).finish).toBe(finish);
  });
});

describe('usage', () => {
  const full =
    '{"prompt_tokens":11,"completion_tokens":18,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":7}}';
  const counted = { prompt: 11, completion: 18, total: 29, cached: 4, reasoning: 7 };
  const zero = { prompt: 0, completion: 0, total: 0, cached: 0, reasoning: 0 };

  test.each([
    ['in the extra chunk', `{"choices":[],"usage":${full}}`, counted, true],
    ['without choices', `{"usage":${full}}`, counted, true],
    ['with null for choices', `{"usage":${full},"choices":null}`, counted, true],
    ['with an empty array in white space', `{"usage":${full},"choices":[ ]}`, counted, true],
    [
      'beside the finish reason',
      `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":${full}}`,
      counted,
      false,
    ],
    ['beside an error', `{"choices":[],"usage":${full},"error":{"code":1}}`, counted, false],
    ['as Groq has it', `{"choices":[{"delta":{}}],"x_groq":{"id":"req","usage":${full}}}`, counted, false],
    ['from usage before Groq', `{"x_groq":{"usage":{"prompt_tokens":1}},"usage":${full}}`, counted, true],
    ['from Groq when usage is null', `{"usage":null,"x_groq":{"usage":${full}}}`, counted, true],
    ['of a choice', `{"choices":[{"delta":{},"finish_reason":"stop","usage":${full}}]}`, counted, false],
    [
      'of a choice without its own',
      `{"choices":[{"usage":${full}},{"usage":null}],"usage":null}`,
      counted,
      false,
    ],
    [
      'from usage before a choice',
      `{"choices":[{"usage":{"prompt_tokens":1}}],"usage":${full}}`,
      counted,
      false,
    ],
    [
      'in its other names',
      '{"usage":{"prompt_tokens":9,"prompt_cache_hit_tokens":8,"completion_tokens":2,"reasoning_tokens":1}}',
      { prompt: 9, completion: 2, total: 11, cached: 8, reasoning: 1 },
      true,
    ],
    [
      'of zero',
      '{"choices":[{"text":"x"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}',
      zero,
      false,
    ],
    ['that is empty', '{"choices":[],"usage":{}}', zero, true],
    [
      'of the wrong types',
      '{"choices":[],"usage":{"prompt_tokens":"3","completion_tokens":-1,"total_tokens":"8","prompt_tokens_details":null,"completion_tokens_details":[]}}',
      zero,
      true,
    ],
    ['with a hostile name', '{"choices":[],"usage":{"__proto__":{"prompt_tokens":5}}}', zero, true],
    [
      'written in floats',
      '{"usage":{"prompt_tokens":3.0,"completion_tokens":5e0}}',
      { ...zero, prompt: 3, completion: 5, total: 8 },
      true,
    ],
    ['last of several', `{"usage":{"prompt_tokens":1},"usage":${full}}`, counted, true],
  ])('%s', (_, json, usage, usageOnly) => {
    expect(read(`data: ${json}\n\n`)).toMatchObject({ kind: 'json', usage, usageOnly });
  });

  test.each([
    ['null', '{"choices":[],"usage":null}'],
    [
      "Azure's first chunk",
      '{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}',
    ],
    ['a number', '{"choices":[],"usage":5}'],
    ['an array', '{"choices":[],"usage":[1]}'],
    ['elsewhere', `{"choices":[{"delta":{"usage":{"prompt_tokens":1}}}],"x_groq":{"id":"x"}}`],
    ['with an x_groq that is none', '{"x_groq":"usage"}'],
    ['with an x_groq that counts no more', '{"x_groq":{"usage":{"prompt_tokens":1}},"x_groq":null}'],
  ])('none: %s', (_, json) => {
    expect(read(`data: ${json}\n\n`)).toMatchObject({ kind: 'json', usage: null, usageOnly: false });
  });
});

test('an invalid frame does not affect the next one', () => {
  read(
    'data: {"model":"m","error":{},"usage":{"prompt_tokens":1},"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]',
  );
  expect(read('data: {"a":[}\n\n')).toEqual({ ...NOTHING, kind: 'other' });
  expect(read('data: {}\n\n')).toEqual({ ...NOTHING, kind: 'json' });
});

describe('a whole completion', () => {
  const body = (members: string) => `{"id":"x","object":"chat.completion",${members}}`;

  test('has its facts', () => {
    const text = body(
      '"model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}',
    );
    const facts = readCompletion(Buffer.from(text));
    expect(facts).toEqual({
      valid: true,
      isError: false,
      hasChoices: true,
      hasFailed: false,
      modelSpan: { start: text.indexOf('"gpt'), end: text.indexOf(',"choices') },
      hasOutput: true,
      finish: 'stop',
      usage: { prompt: 19, completion: 10, total: 29, cached: 0, reasoning: 0 },
    });
  });

  test('may follow blank lines or a byte order mark, and span several lines', () => {
    for (const text of ['\n\n\n{"model":"m"}\n', '\ufeff{"model":"m"}', '{\n  "model": "m"\n}\r\n']) {
      const bytes = Buffer.from(text);
      const { valid, modelSpan } = readCompletion(bytes);
      expect(valid && modelSpan !== null && bytes.toString('utf8', modelSpan.start, modelSpan.end)).toBe(
        '"m"',
      );
    }
  });

  test.each([
    '',
    ' ',
    'null',
    '[]',
    '[{"error":{"code":400}}]',
    '"x"',
    '<html>',
    '{"a":1',
    '{"a":1}}',
    '{"a":1}\n{"a":1}',
    'data: {}\n\n',
  ])('is not: %j', (text) => {
    const nothing = {
      valid: false,
      isError: false,
      hasChoices: false,
      hasFailed: false,
      modelSpan: null,
      hasOutput: false,
      finish: null,
      usage: null,
    };
    expect(readCompletion(Buffer.from(text))).toEqual(nothing);
  });

  test.each([
    ['{"error":{"message":"m","code":402}}', true],
    ['{"error":"boom","choices":null}', true],
    ['{"error":{"code":1},"choices":[]}', true],
    ['{"error":null,"choices":[{}]}', false],
    ['{"error":{"code":1},"choices":[{"message":{"content":"x"}}]}', false],
    ['{"error":null}', false],
    ['{"message":"m"}', false],
  ])('is an error without choices: %s', (text, isError) => {
    expect(readCompletion(Buffer.from(text))).toMatchObject({ valid: true, isError });
  });

  test.each([
    ['{"choices":[{"message":{"content":""},"error":{"code":502},"finish_reason":"error"}]}', true],
    ['{"choices":[{"message":{"content":null},"finish_reason":"abort"}]}', true],
    ['{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}', false],
    ['{"choices":[{"finish_reason":"error"},{"message":{"content":"x"},"finish_reason":"stop"}]}', false],
  ])('has failed without output: %s', (text, hasFailed) => {
    expect(readCompletion(Buffer.from(text))).toMatchObject({ valid: true, hasFailed });
  });
});

describe('any bytes', () => {
  test('never throw', () => {
    fc.assert<unknown>(properties['readChunk takes any bytes'], { numRuns: 500 });
  });

  test('of a frame are read like a simple reader reads them', () => {
    fc.assert<unknown>(properties['readChunk agrees with JSON.parse'], { numRuns: 500 });
  });

  test('of a completion are read like JSON.parse reads them', () => {
    fc.assert<unknown>(properties['readCompletion agrees with JSON.parse'], { numRuns: 300 });
  });

  test('of a completion are read alike as they arrive', () => {
    fc.assert<unknown>(properties['an answer means the same read as it comes, however it is cut'], {
      numRuns: 500,
    });
  });
});
