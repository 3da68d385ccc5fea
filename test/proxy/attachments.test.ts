// What attachments in base64 count as: neither their length as text, nor nothing; and what only looks like one counts as text.
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LargeScan } from '../../src/proxy/request/large-request.ts';
import { wants } from '../../src/proxy/request/request-members.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';

const MIB = 1024 * 1024;
const base64 = randomBytes(600_000).toString('base64');
const prose = 'The quick brown fox jumps over the lazy dog. '.repeat(9_000);
const png = `data:image/png;base64,${base64}`;

/** The estimate of a body, which is the same when it comes in pieces. */
function tokens(body: object | string): number {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const { inputTokens } = scanRequest(bytes);
  expect(inPieces(bytes, 40_009)).toBe(inputTokens);
  return inputTokens;
}

function inPieces(bytes: Buffer, step: number): number {
  const scan = new LargeScan(wants([]));
  for (let size = step; size < bytes.length; size += step) scan.advance(bytes, size);
  return scan.end(bytes).inputTokens;
}

const chat = (content: unknown) => ({ model: 'm', messages: [{ role: 'user', content }] });
const asText = (text: string) => tokens(chat(text)) / (Buffer.byteLength(JSON.stringify(text)) / 4);

describe('an attachment of 800 KB counts as some thousand tokens', () => {
  const inChat: [string, unknown][] = [
    ['image_url.url', { type: 'image_url', image_url: { url: png } }],
    ['image_url.url without data:', { type: 'image_url', image_url: { url: base64 } }],
    ['image_url', { type: 'image_url', image_url: png }],
    ['input_image', { type: 'input_image', image_url: png, detail: 'low' }],
    ['input_audio.data', { type: 'input_audio', input_audio: { data: base64, format: 'wav' } }],
    ['file.file_data', { type: 'file', file: { filename: 'a.pdf', file_data: base64 } }],
    [
      'file.file_data as a URL',
      { type: 'file', file: { file_data: `data:application/pdf;base64,${base64}` } },
    ],
    ['input_file', { type: 'input_file', filename: 'a.pdf', file_data: base64 }],
    ['video_url', { type: 'video_url', video_url: { url: `data:video/mp4;base64,${base64}` } }],
    ['source.data', { type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64 } }],
    ['what a tool calls it', { screenshot_base64: base64, inlineData: { mimeType: 'image/png' } }],
    ['a name of Vertex', { image: { bytesBase64Encoded: base64 } }],
    ['another spelling of a place', { type: 'file', file: { fileData: base64 } }],
    [
      'base64url',
      { type: 'image_url', image_url: { url: Buffer.from(base64, 'base64').toString('base64url') } },
    ],
    [
      'parameters',
      {
        type: 'image_url',
        image_url: { url: `data:image/svg+xml;charset=utf-8;base64,${base64}`.replace('svg+xml', 'webp') },
      },
    ],
    ['a PDF, known by its first bytes', { type: 'image_url', image_url: { url: `JVBERi0x${base64}` } }],
  ];
  const bodies: [string, object | string][] = [
    ...inChat.map(([name, part]): [string, object] => [
      name,
      chat([{ type: 'text', text: 'What is it?' }, part]),
    ]),
    ['a data URL as the text', chat(png)],
    [
      'image_generation_call.result',
      { model: 'm', input: [{ type: 'image_generation_call', id: 'ig', result: base64 }] },
    ],
    ['image and mask', { model: 'm', prompt: 'x', image: base64, mask: `data:image/png;base64,AAAA` }],
    ['images', { model: 'm', messages: [{ content: 'x', images: [base64] }] }],
    ['a tool result', chat(JSON.stringify({ status: 'ok', screenshot: png }))],
    [
      'a tool result with raw base64',
      chat(JSON.stringify([{ type: 'image', data: base64, mimeType: 'image/png' }])),
    ],
    [
      'an indented tool result',
      chat(`\n ${JSON.stringify({ a: [prose.slice(0, 5_000), base64] }, null, 2)}`),
    ],
    [
      'a result within a result',
      chat(JSON.stringify({ content: JSON.stringify([{ text: 'x', data: png }]) })),
    ],
    [
      'an output of Responses',
      { model: 'm', input: [{ type: 'function_call_output', output: JSON.stringify({ png }) }] },
    ],
    ['a slash with an escape', JSON.stringify(chat([{ image_url: { url: png } }])).replaceAll('/', '\\/')],
    ['a plus with an escape', JSON.stringify(chat([{ image_url: { url: png } }])).replaceAll('+', '\\u002B')],
    [
      'a result with escapes',
      chat(JSON.stringify({ png }).replaceAll('/', '\\/').replaceAll('+', '\\u002b')),
    ],
    ['lines of 76', chat([{ input_audio: { data: base64.replace(/.{76}/g, '$&\r\n') } }])],
    ['a result with lines of 64', chat(JSON.stringify({ data: base64.replace(/.{64}/g, '$&\n') }))],
  ];
  test.each(bodies)('%s', (_, body) => {
    const count = tokens(body);
    expect(count).toBeGreaterThan(1_000);
    expect(count).toBeLessThan(10_000);
  });

  test('and one of 32 KB as a thousand', () => {
    const small = base64.slice(0, 32_000);
    expect(tokens(chat([{ image_url: { url: `data:image/png;base64,${small}` } }]))).toBeLessThan(1_100);
    expect(
      tokens(chat([{ input_audio: { data: small } }, { input_audio: { data: small } }])),
    ).toBeGreaterThan(2_000);
  });
});

describe('an attachment counts as a share of its bytes', () => {
  test('so that a body of the largest size is no few tokens', () => {
    const huge = 'A'.repeat(31 * MIB);
    for (const url of [huge, `data:image/png;base64,${huge}`])
      expect(tokens(chat([{ image_url: { url } }]))).toBeGreaterThan(40_000);
    expect(tokens(chat(JSON.stringify({ huge })))).toBeGreaterThan(40_000);
    const many = Array.from({ length: 31 }, () => ({ image_url: { url: 'A'.repeat(MIB) } }));
    expect(tokens(chat(many))).toBeGreaterThan(40_000);
  });

  test('of which files have more, and texts count as the text that they are', () => {
    const of = (type: string) => tokens(chat([{ file_data: `data:${type};base64,${base64}` }]));
    expect(of('image/png')).toBeLessThan(1_400);
    for (const type of ['application/pdf', 'application/octet-stream', '', 'application\\/zip'])
      expect(of(type), type).toBeGreaterThan(6_000);
    for (const type of ['text/plain', 'TEXT/csv', 'application/json', 'text/plain;charset=utf-8'])
      expect(of(type), type).toBeGreaterThan(149_000);
  });
});

describe('text counts by its length', () => {
  const words = (between: string) => Array.from({ length: 60_000 }, (_, i) => `word${i}`).join(between);
  test.each([
    ['behind ;base64,', `see ;base64,${prose}`],
    ['behind a data URL', `data:image/png;base64,${prose}`],
    ['behind base64 in a data URL', `${png}. ${prose.repeat(3)}`],
    ['with a mark in every sentence', prose.replaceAll('.', ';base64,')],
    ['as a data URL that is not in base64', `data:text/plain,${base64}`],
    ['of letters alone', base64],
    ['with a data URL in its midst', `![image](${png})`],
    ['that is JSON', JSON.stringify(Array.from({ length: 20_000 }, (_, i) => ({ i, name: `name ${i}` })))],
    ['that is JSON, of a word in each line', JSON.stringify({ text: words('\n') })],
    ['of a word in each line', words('\n')],
  ])('%s', (_, text) => {
    expect(asText(text)).toBeGreaterThan(0.95);
  });

  test.each([
    ['prose', prose],
    ['a word in each line', words('\n')],
    ['words with escaped spaces', words('\\u0020')],
    ['base64 and then prose', `${base64.slice(0, 40_000)} ${prose}`],
    ['base64 in quotes', `"${base64}"`],
    ['other letters', 'é'.repeat(200_000)],
  ])('in the place of an attachment: %s', (_, data) => {
    const body = JSON.stringify(chat([{ input_audio: { data: '?' } }])).replace('?', () =>
      data.includes('\\u') ? data : JSON.stringify(data).slice(1, -1),
    );
    expect(tokens(body)).toBeGreaterThan((body.length / 4) * 0.95);
  });

  const words64 = 'what_is_the_capital_of_france_'.repeat(10_000);
  const schema = { type: 'object', properties: { data: { const: words64, default_url: words64 } } };
  const format = { type: 'json_schema', json_schema: { schema: { data: words64 } } };
  test.each([
    ['tools', { tools: [{ type: 'function', function: { name: 'f', parameters: schema } }] }],
    ['tools of Anthropic', { tools: [{ name: 'f', input_schema: { image: words64 } }] }],
    ['functions', { functions: [{ name: 'f', parameters: { file_data: words64 } }] }],
    ['response_format', { response_format: format }],
    ['text.format', { text: { format: { schema: { blob: words64 } } } }],
    ['tools with escapes', '{"model":"m","to\\u006fls":[{"data":"?"}]}'],
  ])('in a schema, by whatever name: %s', (_, members) => {
    const body =
      typeof members === 'string'
        ? members.replace('?', words64)
        : JSON.stringify({ ...chat('x'), ...members });
    expect(tokens(body)).toBeGreaterThan((body.length / 4) * 0.95);
  });

  test('in a member’s name', () => {
    expect(tokens({ model: 'm', messages: { [png]: 1 } })).toBeGreaterThan(base64.length / 4);
  });
});

describe('base64 within a text', () => {
  const textTokens = (content: unknown): number => {
    const body = Buffer.from(JSON.stringify(chat(content)));
    const scan = new LargeScan(wants([]));
    for (let size = 40_009; size < body.length; size += 40_009) scan.advance(body, size);
    const { textTokens: walked } = scan.end(body);
    expect(scanRequest(body).textTokens).toBe(walked);
    return walked + scanRequest(body).inputTokens;
  };

  test('counts as text where nothing is reported', () => {
    const words = 'what_is_the_capital_of_france_'.repeat(10_000);
    const text = JSON.stringify({ question: words });
    expect(tokens(chat(text))).toBeLessThan(2_000);
    expect(textTokens(text)).toBeGreaterThan(text.length / 4 - 1);
    const image = JSON.stringify([{ image: png }, { image: png }]);
    expect(textTokens(image)).toBeGreaterThan(image.length / 4 - 1);
  });

  test('counts as text where no attachment stands, too', () => {
    const url = `data:image/png;base64,${'what_is_the_capital_of_france_'.repeat(10_000)}`;
    expect(tokens(chat(url))).toBeLessThan(2_000);
    expect(textTokens(url)).toBeGreaterThan(url.length / 4 - 100);
    expect(textTokens([{ type: 'text', text: url }])).toBeGreaterThan(url.length / 4 - 100);
  });

  test('counts as an attachment in the place of one', () => {
    expect(textTokens([{ type: 'image_url', image_url: { url: png } }])).toBeLessThan(2_000);
    expect(textTokens(prose)).toBeLessThan(prose.length / 4 + 100);
  });
});

test('the same is found however a body is cut', () => {
  const long = fc.oneof(
    fc.constantFrom(4_000, 4_096, 5_000, 16_384, 20_000, 33_000).map((length) => base64.slice(0, length)),
    fc.constantFrom(4_100, 17_000).map((length) => base64.slice(0, length).replaceAll('/', '\\/')),
    fc.constantFrom(100, 5_000, 40_000).map((length) => prose.slice(0, length)),
    fc.constantFrom(
      '{',
      '[',
      '\\n',
      '\\"',
      '=',
      '==',
      ' ',
      'data:image/png;base64,',
      ';base64,',
      'é',
      '\\u002b',
      'JVBERi0',
    ),
  );
  const text = fc.array(long, { maxLength: 6 }).map((all) => all.join(''));
  const member = fc
    .tuple(fc.constantFrom('data', 'url', 'text', 'file_data', 'content'), text)
    .map(([name, value]) => `"${name}":"${value}"`);
  const body = fc.array(member, { maxLength: 4 }).map((all) => `{"model":"m","x":[{${all.join()}}]}`);
  fc.assert(
    fc.property(body, fc.constantFrom(1_000, 4_095, 16_384, 30_011), (written, step) => {
      const bytes = Buffer.from(written);
      expect(inPieces(bytes, step)).toBe(scanRequest(bytes).inputTokens);
    }),
    { numRuns: 150 },
  );
});
