import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { jsonString, scanRequest, spliceSpans } from '../../src/proxy/request/request-scan.ts';
import { properties } from '../fuzz/properties.ts';

function refusal(body: string | Buffer): GatewayError {
  try {
    scanRequest(Buffer.from(body));
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error('the body was taken');
}

/** Code, param and status of the refusal. */
function refused(body: string | Buffer): [string, string | null, number] {
  const { code, param, status } = refusal(body);
  return [code, param, status];
}

function scan(text: string) {
  const body = Buffer.from(text);
  const result = scanRequest(body);
  const at = (span: { start: number; end: number } | null) =>
    span === null ? null : body.toString('utf8', span.start, span.end);
  return {
    ...result,
    modelText: at(result.modelSpan),
    optionsText: at(result.streamOptions),
    usageText: at(result.includeUsageSpan),
  };
}

describe('what the scan finds', () => {
  test('model, stream and options with their places, wherever they stand', () => {
    const text =
      '{"messages":[{"model":"inner","stream":true}], "stream" : true ,\n"model" : "a/b:c" , "stream_options":{"include_usage":true}}';
    expect(scan(text)).toMatchObject({
      model: 'a/b:c',
      modelText: '"a/b:c"',
      stream: true,
      optionsText: '{"include_usage":true}',
      includeUsage: true,
      usageText: 'true',
      insertAt: text.length - 1,
    });
  });

  test('a body with the model alone', () => {
    expect(scan('{"model":"m"}')).toMatchObject({
      model: 'm',
      stream: false,
      streamOptions: null,
      includeUsage: false,
      includeUsageSpan: null,
      insertAt: 12,
    });
  });

  test.each([
    ['false', false],
    ['null', false],
    ['true', true],
  ])('stream %s', (value, stream) => {
    expect(scan(`{"model":"m","stream":${value}}`).stream).toBe(stream);
  });

  test.each([
    ['null', false, null],
    ['{}', false, null],
    ['{ "include_usage" : false }', false, 'false'],
    ['{"include_usage":null}', false, 'null'],
    ['{"include_obfuscation":false,"include_usage":true}', true, 'true'],
    ['{"include_usage":true,"continuous_usage_stats":true}', true, 'true'],
    ['{"include\\u005fusage":true}', true, 'true'],
    ['{"nested":{"include_usage":true}}', false, null],
  ])('stream_options %s', (options, includeUsage, usageText) => {
    expect(scan(`{"model":"m","stream_options":${options}}`)).toMatchObject({
      optionsText: options,
      includeUsage,
      usageText,
    });
  });

  test('a model is decoded and its token is spanned as it is spelled', () => {
    expect(scan('{"model":"gpt\\u002d4\\/\\u006fé😀"}')).toMatchObject({
      model: 'gpt-4/oé😀',
      modelText: '"gpt\\u002d4\\/\\u006fé😀"',
    });
    expect(scan('{"mod\\u0065l":"m"}').model).toBe('m');
    expect(scan('{"model":"__proto__"}').model).toBe('__proto__');
    expect(scan('{"model":" "}').model).toBe(' ');
    expect(scan('{"model":"\\ud800"}').model).toBe('\ud800');
  });

  test('white space around the object belongs to no span', () => {
    const { insertAt, modelSpan } = scan('\n {"model": "m" \r\n} \n');
    expect([insertAt, modelSpan]).toEqual([18, { start: 12, end: 15 }]);
  });

  test('what else is in the body is of no concern, as long as it is JSON', () => {
    const more =
      '"__proto__":{"model":1},"constructor":0,"":[],"10":1,"2":2,"seed":9223372036854775807,"temperature":1.0,"x":{"stream":"yes"},"messages":"none"';
    expect(scan(`{${more},"model":"m"}`).model).toBe('m');
  });
});

describe('what is refused', () => {
  test('an empty body, and it is said', () => {
    expect(refused('')).toEqual(['invalid_json', null, 400]);
    expect(refusal('').message).toBe('The request body is empty.');
    expect(refusal(' \n').message).toContain('it ends too early, at byte 2');
  });

  test('a byte order mark, and it is named', () => {
    expect(refused('\ufeff{"model":"m"}')).toEqual(['invalid_json', null, 400]);
    expect(refusal('\ufeff{"model":"m"}').message).toContain('byte order mark');
    expect(refusal('\ufeff{"model":"m"}').message).toContain('byte 0');
    expect(refused(Buffer.from('{"model":"m"}', 'utf16le'))).toEqual(['invalid_json', null, 400]);
    // Other characters begin with the same byte.
    expect(refusal('\uff5b}').message).toContain('unexpected byte, at byte 0');
  });

  test.each([
    ['a stray continuation byte', [0x80], 0],
    ['a lone lead byte', [0xe5, 0x8c], 0],
    ['an overlong form', [0xc0, 0xaf], 0],
    ['a surrogate', [0xed, 0xa0, 0x80], 0],
    ['beyond U+10FFFF', [0xf4, 0x90, 0x80, 0x80], 0],
    ['0xFF', [0xff], 0],
    ['a continuation byte too many', [0xc3, 0xa9, 0x80], 2],
  ])('what is not UTF-8, at its byte: %s', (_, bytes, at) => {
    for (const before of ['', 'é', 'x'.repeat(70_001), '你'.repeat(400_001)]) {
      const head = Buffer.from(`{"model":"m","x":"${before}`);
      const body = Buffer.concat([head, Buffer.from(bytes), Buffer.from('"}')]);
      expect(refused(body)).toEqual(['invalid_json', null, 400]);
      expect(refusal(body).message).toBe(
        `The request body is not valid JSON: it is not UTF-8, at byte ${head.length + at}.`,
      );
    }
  });

  test.each([
    ['{', 1],
    ['{"model":"m"', 12],
    ['{"model":"m"}}', 13],
    ['{"model":"m"} x', 14],
    ['{"model":"m",}', 13],
    ['{"model":"m" "stream":true}', 13],
    ['{"model":m}', 9],
    ['{"model":"m","x":"a\nb"}', 19],
    ['{"model":"m","x":01}', 18],
    ['not json', 1],
    ['"\\x"', 2],
    ['data: {}', 0],
    ['['.repeat(100_000), 1000],
    [`{"model":"m","x":${'{"y":'.repeat(100_000)}`, 17 + 5 * 999],
  ])('what is not JSON, with the byte: %.30s', (body, at) => {
    expect(refused(body)).toEqual(['invalid_json', null, 400]);
    expect(refusal(body).message).toMatch(new RegExp(`, at byte ${at}\\.$`));
  });

  test.each(['null', '[]', '"x"', '1', 'true', ' [{"model":"m"}] '])('JSON that is no object: %s', (body) => {
    expect(refused(body)).toEqual(['invalid_body', null, 400]);
  });

  test('a name that is longer than any model’s, of which nobody looks at more than its length', () => {
    const named = (length: number) => `{"model":"${'a'.repeat(length)}"}`;
    expect(scanRequest(Buffer.from(named(65_534))).model).toHaveLength(65_534);
    expect(refusal(named(65_535))).toMatchObject({ code: 'invalid_value', param: 'model' });
    expect(refusal(named(20_000_000))).toMatchObject({ code: 'invalid_value', param: 'model' });
  });

  test.each([
    ['{}', 'missing_required_parameter', 'model'],
    ['{"models":"m","Messages":[]}', 'missing_required_parameter', 'model'],
    // An upstream that folds case would read it.
    ['{"Model":"m"}', 'invalid_value', 'model'],
    ['{"messages":[{"model":"m"}]}', 'missing_required_parameter', 'model'],
    ['{"model":null}', 'missing_required_parameter', 'model'],
    ['{"model":5}', 'invalid_type', 'model'],
    ['{"model":true}', 'invalid_type', 'model'],
    ['{"model":["m"]}', 'invalid_type', 'model'],
    ['{"model":{"id":"m"}}', 'invalid_type', 'model'],
    ['{"model":""}', 'invalid_value', 'model'],
    ['{"model":"m","stream":"true"}', 'invalid_type', 'stream'],
    ['{"model":"m","stream":1}', 'invalid_type', 'stream'],
    ['{"model":"m","stream":{}}', 'invalid_type', 'stream'],
    ['{"model":"m","stream_options":true}', 'invalid_type', 'stream_options'],
    ['{"model":"m","stream_options":"x"}', 'invalid_type', 'stream_options'],
    ['{"model":"m","stream_options":[]}', 'invalid_type', 'stream_options'],
    [
      '{"model":"m","stream_options":{"include_usage":"true"}}',
      'invalid_type',
      'stream_options.include_usage',
    ],
    ['{"model":"m","stream_options":{"include_usage":1}}', 'invalid_type', 'stream_options.include_usage'],
  ])('a field that cannot be acted on: %s', (body, code, param) => {
    expect(refused(body)).toEqual([code, param, 400]);
    expect(refusal(body).message).toContain(`'${param}'`);
  });

  test.each([
    ['{"model":"a","messages":[],"model":"b"}', 'model'],
    ['{"model":"a","model":"a"}', 'model'],
    ['{"model":"a","mod\\u0065l":"b"}', 'model'],
    ['{"m\\u006fdel":"a","mod\\u0065l":"b"}', 'model'],
    ['{"model":null,"model":"b"}', 'model'],
    ['{"model":"a","Model":"b"}', 'model'],
    ['{"MODEL":"a","model":"b"}', 'model'],
    ['{"model":"a","stream":true,"stream":false}', 'stream'],
    ['{"model":"a","stream":null,"s\\u0074ream":true}', 'stream'],
    ['{"model":"a","stream":true,"\u017ftream":false}', 'stream'],
    ['{"model":"a","stream_options":null,"stream_options":{}}', 'stream_options'],
    ['{"model":"a","stream_options":{},"Stream_Options":{}}', 'stream_options'],
    [
      '{"model":"a","stream_options":{"include_usage":false,"include_usage":true}}',
      'stream_options.include_usage',
    ],
  ])('a field that upstream and gateway could read differently: %s', (body, param) => {
    expect(refused(body)).toEqual(['duplicate_parameter', param, 400]);
  });

  test('a fault of syntax is told before one of meaning, wherever it stands', () => {
    expect(refused('{"model":5,"x":}')[0]).toBe('invalid_json');
    expect(refused('{"model":"a","model":"b"')[0]).toBe('invalid_json');
    expect(refused('[1,]')[0]).toBe('invalid_json');
  });

  test('the same key twice elsewhere is left to the upstream', () => {
    expect(scan('{"model":"m","seed":1,"seed":2,"messages":[{"model":"a","model":"b"}]}').model).toBe('m');
  });

  test('no message quotes the body', () => {
    const secret = 'sk-secret';
    for (const body of [
      `{"model":"${secret}`,
      `{"${secret}":x}`,
      `{"model":{"${secret}":1}}`,
      `"${secret}"`,
      `{"model":"m","${secret}\n":1}`,
      `{"stream":"${secret}"}`,
    ]) {
      const error = refusal(body);
      expect(`${error.message} ${error.param} ${error.stack} ${String(error.cause)}`).not.toContain(secret);
    }
  });
});

describe('splicing', () => {
  const body = Buffer.from('0123456789');
  const edit = (start: number, end: number, text: string) => ({
    span: { start, end },
    bytes: Buffer.from(text),
  });

  test.each([
    ['nothing', [], '0123456789'],
    ['a longer text', [edit(2, 4, 'abcdef')], '01abcdef456789'],
    ['a shorter text', [edit(2, 8, 'x')], '01x89'],
    ['nothing in place of something', [edit(0, 10, '')], ''],
    ['the ends', [edit(0, 1, 'A'), edit(9, 10, 'Z')], 'A12345678Z'],
    ['insertions', [edit(0, 0, '<'), edit(10, 10, '>'), edit(5, 5, '|')], '<01234|56789>'],
    ['several in any order', [edit(8, 9, 'c'), edit(1, 2, 'a'), edit(4, 6, 'b')], '0a23b67c9'],
    ['neighbours', [edit(2, 4, 'a'), edit(4, 6, 'b')], '01ab6789'],
    [
      'insertions at one place, in the order given',
      [edit(3, 3, 'a'), edit(3, 3, 'b'), edit(3, 4, 'c')],
      '012abc456789',
    ],
    ['an insertion named after what it stands before', [edit(3, 4, 'c'), edit(3, 3, 'a')], '012ac456789'],
  ])('%s', (_, edits, expected) => {
    expect(spliceSpans(body, edits).toString()).toBe(expected);
    expect(body.toString()).toBe('0123456789');
  });

  test.each([
    ['overlap', [edit(2, 5, 'a'), edit(4, 6, 'b')]],
    ['an end before its start', [edit(5, 2, 'a')]],
    ['an end behind the body', [edit(9, 11, 'a')]],
    ['a start before the body', [edit(-1, 2, 'a')]],
    ['one in another', [edit(1, 9, 'a'), edit(3, 4, 'b')]],
  ])('%s is a fault of the gateway', (_, edits) => {
    expect(() => spliceSpans(body, edits)).toThrow(expect.objectContaining({ code: 'internal_error' }));
  });

  test('a model and a new member go into a body that stays the same in every other byte', () => {
    const text = '{ "seed":9223372036854775807, "model" :"m", "x":{"10":1,"2":-0,"y":1.0,"z":1e3} }';
    const request = Buffer.from(text);
    const { modelSpan, insertAt } = scanRequest(request);
    if (modelSpan === null) throw new Error('a request without a model');
    const spliced = spliceSpans(request, [
      { span: modelSpan, bytes: jsonString('vendor/"long" name') },
      {
        span: { start: insertAt, end: insertAt },
        bytes: Buffer.from(',"stream_options":{"include_usage":true}'),
      },
    ]);
    expect(spliced.toString()).toBe(
      '{ "seed":9223372036854775807, "model" :"vendor/\\"long\\" name", "x":{"10":1,"2":-0,"y":1.0,"z":1e3} ,"stream_options":{"include_usage":true}}',
    );
  });
});

test('a JSON string token says the text and is UTF-8', () => {
  for (const text of ['', 'a', '"\\\n\0', 'é😀\u2028', '\ud800']) {
    const token = jsonString(text);
    expect(JSON.parse(token.toString())).toBe(text);
  }
});

describe('any body', () => {
  test('is read as JSON.parse reads it', () => {
    fc.assert<unknown>(properties['scanRequest agrees with JSON.parse'], { numRuns: 500 });
  });

  test('keeps every byte outside the spans when it is spliced', () => {
    fc.assert<unknown>(properties['splicing changes the spans and nothing else'], { numRuns: 300 });
  });

  test('a request that comes in pieces is found to be what it is as a whole', () => {
    fc.assert<unknown>(properties['a request that comes in pieces is found to be what it is as a whole'], {
      numRuns: 500,
    });
  });
});
