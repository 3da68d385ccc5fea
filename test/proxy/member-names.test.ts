// Spellings of member names: what some reader takes for a name that the gateway reads is either read or refused, alike in
// small and in large bodies; what stands where the gateway reads nothing is left alone.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { batchOrderOf } from '../../src/passthrough/batch-input.ts';
import { LargeScan } from '../../src/proxy/request/large-request.ts';
import { type Wanted, wants } from '../../src/proxy/request/request-members.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';
import { foldName, MemberNames } from '../../src/wire/json/json-bytes.ts';

const CHAT = wants([]);
const RESPONSES = wants(['max_output_tokens', 'previous_response_id', 'store', 'background']);
/** Each is a spelling for some reader: Go's encoding/json and its v2, protobuf, Java's and .NET's, cJSON. */
const spell: Record<string, (name: string) => string> = {
  'upper case': (name) => name.toUpperCase(),
  'one capital': (name) => `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`,
  camelCase: (name) => `${name}_x`.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()).slice(0, -1),
  hyphens: (name) => (name.includes('_') ? name.replaceAll('_', '-') : `-${name}`),
  'an underscore more': (name) => `${name}_`,
  'many underscores': (name) => `${name.slice(0, 1)}${'_'.repeat(900)}${name.slice(1)}`,
  'escapes and case': (name) =>
    [...name.toUpperCase()].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
  'a text behind U+0000': (name) => `${name}\\u0000abc`,
};
const foreign: Record<string, string> = {
  'a long s': '\u017f',
  'a Kelvin sign': '\u212a',
  'a dotted capital I': '\u0130',
  'a dotless i': '\u0131',
};
const folds: Record<string, string> = { '\u017f': 's', '\u212a': 'k', '\u0130': 'i', '\u0131': 'i' };

function outcomeOf(body: string, wanted: Wanted): object {
  const bytes = Buffer.from(body);
  const small = attempt(() => scanRequest(bytes, wanted));
  const scan = new LargeScan(wanted);
  for (let size = 7; size < bytes.length; size += 7) scan.advance(bytes, size);
  expect(attempt(() => scan.end(bytes))).toEqual(small);
  return small;
}

function attempt(read: () => object): object {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    return { code: error.code, param: error.param, message: error.message };
  }
}

describe('another spelling of a known name', () => {
  const read: [string, string, string, Wanted][] = [
    ['model', '"other"', 'model', CHAT],
    ['stream', 'true', 'stream', CHAT],
    ['stream_options', '{"include_usage":true}', 'stream_options', CHAT],
    ['max_tokens', '9', 'max_tokens', CHAT],
    ['max_completion_tokens', '9', 'max_completion_tokens', CHAT],
    ['n', '9', 'n', CHAT],
    ...RESPONSES.members.map((name): [string, string, string, Wanted] => [name, 'null', name, RESPONSES]),
    ['encoding_format', '"base64"', 'encoding_format', wants(['encoding_format'])],
    ['stream_format', '"sse"', 'stream_format', wants(['input', 'stream_format'])],
    ['input', '"x"', 'input', wants(['input', 'stream_format'])],
  ];
  const spellings = [
    ...Object.values(spell),
    ...Object.values(foreign).map(
      (letter) => (name: string) => name.replace(new RegExp(folds[letter] ?? ''), letter),
    ),
  ];
  test.each(read)('%s', (name, value, param, wanted) => {
    for (const spelling of spellings) {
      const other = spelling(name);
      if (other === name) continue;
      const first = name === 'model' ? '' : '"model":"m",';
      const alone = outcomeOf(`{${first}"${other}":${value}}`, wanted);
      expect(alone, other.slice(0, 80)).toMatchObject({ code: 'invalid_value', param });
      expect(alone).toHaveProperty('message', expect.stringContaining(`'${param}'`));
      for (const both of [
        `"${other}":${value},"${name}":${value}`,
        `"${name}":${value},"${other}":${value}`,
      ]) {
        const beside = outcomeOf(`{${first}${both}}`, wanted);
        expect(beside, both.slice(0, 80)).toMatchObject({ code: 'duplicate_parameter', param });
      }
    }
  });

  test('an option of streams', () => {
    const param = 'stream_options.include_usage';
    for (const spelling of [...spellings, (name: string) => name.replace('s', '\\u017f')]) {
      const other = spelling('include_usage');
      if (other === 'include_usage') continue;
      const options = (members: string) => outcomeOf(`{"model":"m","stream_options":{${members}}}`, CHAT);
      expect(options(`"x":[],"${other}":false`)).toMatchObject({ code: 'invalid_value', param });
      for (const both of [`"${other}":false,"include_usage":true`, `"include_usage":true,"${other}":false`])
        expect(options(both)).toMatchObject({ code: 'duplicate_parameter', param });
    }
  });

  test('a long key with ignored characters beyond its compared beginning', () => {
    for (const name of ['model', 'n', 'max_tokens'])
      for (const at of [0, 1, name.length]) {
        const key = `${name.slice(0, at)}${'_-'.repeat(5000)}${name.slice(at)}`;
        expect(outcomeOf(`{"model":"m","${key}":1}`, CHAT)).toHaveProperty('message');
      }
    const other = `"model${'x'.repeat(5000)}":1,"${'k'.repeat(70_000)}":1`;
    expect(outcomeOf(`{"model":"m",${other}}`, CHAT)).toMatchObject({ model: 'm' });
  });

  test('a number that is counted, given twice', () => {
    for (const name of ['n', 'max_tokens', 'max_completion_tokens']) {
      const outcome = outcomeOf(`{"model":"m","${name}":1,"${name}":2}`, CHAT);
      expect(outcome).toMatchObject({ code: 'duplicate_parameter', param: name });
    }
  });
});

describe('the input file of a batch', () => {
  const file = (members: string) =>
    batchOrderOf(Buffer.from(`{"endpoint":"/v1/chat/completions",${members}}`)).inputFile;

  test('is read if it is spelled exactly', () => {
    expect(file('"input_file_id":"file-a"')).toBe('file-a');
    expect(file('"input_file\\u005fid":"file-a","metadata":{"input_file_id":"x"}')).toBe('file-a');
  });

  test.each([
    ['"metadata":{"input_file_id":"file-a"}', 'missing_required_parameter', 'input_file_id'],
    ['"input_file_id":5', 'missing_required_parameter', 'input_file_id'],
    ['"input_blob":"https://example.com/a"', 'invalid_value', 'input_blob'],
    ['"input_file_id":"file-a","inputBlob":"https://example.com/a"', 'invalid_value', 'input_blob'],
    [
      '"input_file_id":"file-a","output_folder":{"url":"https://example.com"}',
      'invalid_value',
      'output_folder',
    ],
  ])('is not elsewhere, nor is the output: %s', (members, code, param) => {
    expect(() => file(members)).toThrow(expect.objectContaining({ code, param }));
  });

  test.each([
    ['"Input_File_Id":"file-b"', 'invalid_value'],
    ['"inputFileId":"file-b"', 'invalid_value'],
    ['"\u0131nput_file_id":"file-b"', 'invalid_value'],
    ['"input_file_id":"file-a","input_file_id":"file-b"', 'duplicate_parameter'],
    ['"INPUT_FILE_ID":"file-b","input_file_id":"file-a"', 'duplicate_parameter'],
  ])('%s is rejected', (members, code) => {
    expect(() => file(members)).toThrow(expect.objectContaining({ code, param: 'input_file_id' }));
  });
});

test('other names, and names in other places, are accepted', () => {
  const names = ['Model', 'MAX_TOKENS', 'N', 'include-usage', 'streamOptions', '_model', 'n\\u0000'];
  const members = names.map((name) => `"${name}":1`).join();
  const inner = `{${members},"x":{${members}}}`;
  const schema = `{"type":"function","function":{"parameters":{"properties":${inner}}}}`;
  const other =
    '"models":1,"mode":1,"streams":1,"max_token":1,"nn":1,"m":1,"":1,"_":1,"m\\u00f6del":1,"\u2126":1,"\u0141":1';
  const body = `{"model":"m","messages":[${inner}],"metadata":${inner},"tools":[${schema}],${other},"store":1,"Store":2}`;
  expect(outcomeOf(body, CHAT)).toMatchObject({ model: 'm', maxTokens: null, choices: 1 });
});

describe('the folded form', () => {
  const character = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...'modelMODELstk_-iIK0') },
    { weight: 1, arbitrary: fc.constantFrom(...Object.values(foreign), '\0', '"', '\\', '\n', '\ud800') },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }) },
  );
  const name = fc.array(character, { maxLength: 12 }).map((all) => all.join(''));

  test('of bytes equals that of the text, with any escapes', () => {
    const names = ['model', 'max_tokens', 'stream', 'include_usage', 'k', 'id', 'n'];
    const find = new MemberNames(names);
    const likely = fc
      .tuple(fc.constantFrom(...names), fc.array(fc.tuple(fc.nat({ max: 12 }), name), { maxLength: 2 }))
      .map(([text, more]) =>
        more.reduce((all, [at, added]) => all.slice(0, at) + added + all.slice(at), text),
      )
      .map((text) =>
        text.replace(/[smodelk]/g, (each) => (text.length % 2 === 0 ? each : each.toUpperCase())),
      );
    fc.assert(
      fc.property(fc.oneof(name, likely), fc.infiniteStream(fc.boolean()), (text, escapes) => {
        const key = Buffer.from(`x${escaped(text, escapes)}x`);
        const expected = names.find((each) => foldName(each) === foldName(text));
        expect(find.find(key, 1, key.length - 1)).toBe(expected);
      }),
      { numRuns: 2000 },
    );
  });

  test('folds exactly what readers fold', () => {
    for (const each of ['Max-Tokens', 'maxTokens', 'MAX_TOKENS', 'max_to\u212aen\u017f', 'max_tokens\0x'])
      expect(foldName(each)).toBe('maxtokens');
    expect(foldName('F\u0130LE_\u0131D')).toBe('fileid');
    for (const each of ['max tokens', 'm\u00e4x_tokens', 'max.tokens', 'max_tokens2'])
      expect(foldName(each)).not.toBe('maxtokens');
  });
});

function escaped(text: string, escapes: Iterable<boolean>): string {
  let result = '';
  const next = escapes[Symbol.iterator]();
  for (const each of text.split('')) {
    const code = each.charCodeAt(0);
    const plain = code >= 0x20 && each !== '"' && each !== '\\' && (code < 0xd800 || code > 0xdfff);
    const isEscaped = next.next().value === true;
    if (plain && !isEscaped) result += each;
    else if (isEscaped || code < 0x20 || code >= 0x7f) result += `\\u${code.toString(16).padStart(4, '0')}`;
    else result += `\\${each}`;
  }
  return result;
}
