// What the property tests feed to the byte scanners: JSON in every spelling, damaged JSON, SSE transcripts, cuts.
import fc from 'fast-check';
import { randomFrom } from '../helpers/random.ts';

/** How much a spelling may differ from `JSON.stringify`: how often a character is escaped, where white space stands. */
interface Spelling {
  readonly random: () => number;
  readonly escapes: number;
  readonly spaces: readonly string[];
}

const SHORT_ESCAPES = new Map([
  ['"', '\\"'],
  ['\\', '\\\\'],
  ['/', '\\/'],
  ['\b', '\\b'],
  ['\f', '\\f'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

function spellString(text: string, { random, escapes }: Spelling): string {
  let out = '"';
  for (let i = 0; i < text.length; i++) {
    const char = text.charAt(i);
    const code = text.charCodeAt(i);
    const must = code < 0x20 || char === '"' || char === '\\' || (code >= 0xd800 && code <= 0xdfff);
    if (!must && random() >= escapes) {
      out += char;
      continue;
    }
    const short = SHORT_ESCAPES.get(char);
    const hex = code.toString(16).padStart(4, '0');
    out += short !== undefined && random() < 0.5 ? short : `\\u${random() < 0.5 ? hex : hex.toUpperCase()}`;
  }
  return `${out}"`;
}

function spellNumber(value: number, { random }: Spelling): string {
  const plain = JSON.stringify(value);
  if (!Number.isInteger(value) || plain.includes('e') || random() < 0.7) return plain;
  return `${Object.is(value, -0) ? '-0' : plain}${['.0', 'e0', 'E+00', '.000e-0'][Math.floor(random() * 4)] ?? ''}`;
}

function spell(value: unknown, spelling: Spelling): string {
  const space = () =>
    spelling.random() < 0.2
      ? (spelling.spaces[Math.floor(spelling.random() * spelling.spaces.length)] ?? '')
      : '';
  const around = (text: string) => space() + text + space();
  if (typeof value === 'string') return spellString(value, spelling);
  if (typeof value === 'number') return spellNumber(value, spelling);
  if (Array.isArray(value)) {
    return value.length === 0
      ? `[${space()}]`
      : `[${value.map((item) => around(spell(item, spelling))).join(',')}]`;
  }
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(
      ([key, item]) => `${around(spellString(key, spelling))}:${around(spell(item, spelling))}`,
    );
    return members.length === 0 ? `{${space()}}` : `{${members.join(',')}}`;
  }
  return JSON.stringify(value);
}

const WHITE = [' ', '\t', '\n', '\r', '  ', '\r\n  '];
const WHITE_IN_LINE = [' ', '\t', '   '];

/** JSON texts of `value` in some spelling. */
export function spelled(value: fc.Arbitrary<unknown>, inLine = false): fc.Arbitrary<string> {
  return fc
    .tuple(value, fc.noShrink(fc.nat()), fc.constantFrom(0, 0, 0.1, 0.6))
    .map(([content, seed, escapes]) =>
      spell(content, { random: randomFrom(seed), escapes, spaces: inLine ? WHITE_IN_LINE : WHITE }),
    );
}

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.string({ maxLength: 12 }),
  fc.constantFrom('', 'Hello', '你好，世界', '😀', 'a\nb', '\\', '"', 'C:\\new', '\u2028', '\ud800'),
);
const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.constantFrom(0, -0, 1e300),
);
const key = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.constantFrom('model', 'Model', 'stream', '__proto__', 'role', ''),
);

/** Any JSON value, a few levels deep. */
export const jsonValue: fc.Arbitrary<unknown> = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.constantFrom(null, true, false),
    text,
    number,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(key, tie('value'), { maxKeys: 4 }),
  ),
})).value;

/** Many short values within containers; a few are wrong, so that most texts are valid up to there. */
export const shortTokens: fc.Arbitrary<string> = fc
  .array(
    mostly(
      fc
        .constantFrom(
          '1',
          '-20',
          '0',
          '1.5',
          'true',
          'false',
          'null',
          '"x"',
          '"a longer text"',
          '"\\n"',
          '[]',
        )
        .chain((value) =>
          fc.constantFrom(value, `[${value}]`, `{"k":${value},"longer":[${value}]}`, ` ${value}\n`),
        ),
      fc.constantFrom(
        '00',
        '-01',
        '-',
        '1.',
        '1e5',
        'falsy',
        'nul',
        '"',
        '}',
        '[',
        '{',
        '{"a":',
        '{"a" : 1}',
        '\0',
        '',
      ),
    ),
    { maxLength: 30 },
  )
  .map((values) => `{"x":[${values.join(',')}]}`);

/** Many values, with numbers and strings of every form. */
export const manyValues: fc.Arbitrary<string> = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: spelled(jsonValue) },
      {
        weight: 3,
        arbitrary: fc.constantFrom(
          ...[
            '-0',
            '0.5',
            '-1.25',
            '1e5',
            '-2E-07',
            '1.5e+3',
            '0e0',
            '12345678901234567890',
            'true',
            'false',
          ],
          ...['null', '{}', '[]', '[[{}]]', '{"k":{"k":[]}}', '{"a\\n":1}', '"\\u00e9\\"\\/"', '"]},:[{"'],
        ),
      },
      {
        weight: 1,
        arbitrary: fc
          .tuple(fc.constantFrom('x', 'é', '\\n', '\\u00e9', ' , '), fc.nat({ max: 5000 }))
          .map(([part, length]) => `"${part.repeat(Math.ceil(length / part.length))}"`),
      },
      { weight: 1, arbitrary: fc.constantFrom(' ', '\n\t').map((space) => `${space.repeat(70)}1${space}`) },
      { weight: 1, arbitrary: shortTokens },
    ),
    { minLength: 10, maxLength: 40 },
  )
  .chain((values) =>
    fc.constantFrom(',', ', ', ',\n  ').map((comma) => `{"x":[${values.join(comma)}],"y":{"z":1}}`),
  );

/** Texts of the words that JSON is made of, in any order: nearly all are wrong somewhere, each in another way. */
export const nearJson: fc.Arbitrary<string> = fc
  .array(
    fc.constantFrom(
      ...'{}[],:"\\0123456789-+.eE \n\t'.split(''),
      'true',
      'false',
      'null',
      '{"model":"x",',
      '"model":',
      '"stream_options":{',
      '"include_usage":true',
      '"a":1,',
      '"b":"c"',
      '\\u00e9',
      '\\ud83d\\ude00',
      '-0.5e+10',
      'é',
      '€',
      '😀',
      '\ufeff',
    ),
    { maxLength: 40 },
  )
  .map((words) => words.join(''));

function mostly<T>(usual: fc.Arbitrary<T>, odd: fc.Arbitrary<unknown> = jsonValue): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 8, arbitrary: usual }, { weight: 1, arbitrary: odd });
}

/** Objects with some of the given members and some others, in any order. */
function objectWith(members: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Record<string, unknown>> {
  return fc
    .tuple(
      fc.record(members, { requiredKeys: [] }),
      fc.dictionary(key, jsonValue, { maxKeys: 3 }),
      fc.noShrink(fc.nat()),
    )
    .map(([known, more, seed]) => {
      const random = randomFrom(seed);
      const entries = Object.entries({ ...more, ...known }).map((entry) => ({ entry, place: random() }));
      return Object.fromEntries(entries.sort((a, b) => a.place - b.place).map(({ entry }) => entry));
    });
}

/** Request bodies as objects: mostly sound, at times with a wrong type. */
export const requestValue: fc.Arbitrary<unknown> = fc.oneof(
  {
    weight: 9,
    arbitrary: objectWith({
      model: mostly(text),
      stream: mostly(fc.constantFrom(true, false, null)),
      stream_options: mostly(
        fc.oneof(
          fc.constant(null),
          objectWith({ include_usage: mostly(fc.constantFrom(true, false, null)) }),
        ),
      ),
      messages: fc.array(objectWith({ role: fc.constant('user'), content: text }), { maxLength: 3 }),
    }),
  },
  { weight: 1, arbitrary: jsonValue },
);

const count = fc.nat({ max: 100_000 });
const usage = mostly(
  objectWith({
    prompt_tokens: mostly(count),
    completion_tokens: mostly(count),
    total_tokens: mostly(count),
    prompt_tokens_details: mostly(objectWith({ cached_tokens: mostly(count) })),
    completion_tokens_details: mostly(objectWith({ reasoning_tokens: mostly(count) })),
    prompt_cache_hit_tokens: count,
    reasoning_tokens: count,
  }),
  fc.constant(null),
);
const delta = mostly(
  objectWith({
    role: fc.constant('assistant'),
    content: mostly(text),
    reasoning: text,
    tool_calls: fc.oneof(fc.constant([]), fc.array(jsonValue, { maxLength: 2 })),
    refusal: fc.constant(null),
    audio: fc.constant({}),
  }),
);
const choice = mostly(
  objectWith({
    index: fc.nat({ max: 3 }),
    delta,
    message: delta,
    text,
    finish_reason: mostly(fc.constantFrom(null, null, 'stop', 'length', 'error', '')),
    logprobs: fc.constant(null),
    usage,
  }),
);

/** Chunks of a stream, and completions. */
export const chunkValue: fc.Arbitrary<unknown> = fc.oneof(
  {
    weight: 9,
    arbitrary: objectWith({
      id: fc.constant('chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG'),
      model: mostly(text),
      choices: mostly(fc.array(choice, { maxLength: 2 }), fc.constant(null)),
      usage,
      error: fc.oneof(jsonValue, fc.constantFrom(null, 0, '', false)),
      x_groq: mostly(objectWith({ usage })),
      data: mostly(fc.array(jsonValue, { maxLength: 3 }), fc.constant(null)),
      duration: fc.oneof(fc.double({ min: 0, max: 1000, noNaN: true }), jsonValue),
    }),
  },
  { weight: 1, arbitrary: jsonValue },
);

const lineEnd = fc.constantFrom('\n', '\n', '\r\n', '\r');

/** A field with its value, with and without the one space behind the colon. */
function field(name: string, value: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(fc.constantFrom(': ', ': ', ':', ':  '), value)
    .map(([colon, content]) => name + colon + content);
}

const otherLine = fc.constantFrom(
  ': ping',
  ':',
  ': data: {"error":1}',
  'id: 7',
  'retry: 3000',
  'event',
  'datax: {}',
  'error: {"message":"m"}',
  'error',
  'data',
);
const event = field('event', fc.constantFrom('message', 'error', 'ping', ''));

/** The lines of one frame, each with its end, without the blank line. */
const frameLines: fc.Arbitrary<string> = fc.oneof(
  // One line of data, as nearly every frame has.
  {
    weight: 5,
    arbitrary: fc.tuple(field('data', spelled(chunkValue, true)), lineEnd).map(([line, end]) => line + end),
  },
  { weight: 1, arbitrary: lineEnd.map((end) => `data: [DONE]${end}`) },
  // Data over several lines, where white space stood between tokens.
  {
    weight: 2,
    arbitrary: fc.tuple(spelled(chunkValue), lineEnd).map(([json, end]) =>
      json
        .split(/\r\n|\r|\n/)
        .map((line) => `data: ${line}${end}`)
        .join(''),
    ),
  },
  // Anything between.
  {
    weight: 2,
    arbitrary: fc
      .array(
        fc.tuple(
          fc.oneof(
            otherLine,
            event,
            field('data', fc.oneof(spelled(chunkValue, true), fc.constantFrom('[DONE]', '', '{}'))),
          ),
          lineEnd,
        ),
        { maxLength: 4 },
      )
      .map((lines) => lines.map(([line, end]) => line + end).join('')),
  },
);

/** One complete frame. */
export const frameBytes: fc.Arbitrary<Buffer> = fc
  .tuple(fc.constantFrom('', '', '', '\ufeff'), frameLines, lineEnd)
  .map(([mark, lines, end]) => Buffer.from(mark + lines + end));

/** A stream: frames with all kinds of line ends, and at times an unfinished frame behind them. */
export const transcript: fc.Arbitrary<Buffer> = fc
  .tuple(
    fc.array(frameBytes, { maxLength: 8 }),
    fc.oneof(fc.constant(''), fc.constantFrom('data: {"choi', 'data: 你', ': p')),
  )
  .map(([frames, rest]) => Buffer.concat([...frames, Buffer.from(rest)]));

/** A place in something, as a fraction of its length. (Of doubles between 0 and 1, nearly all are next to 0.) */
const place = fc.nat({ max: 999_999 }).map((parts) => parts / 1_000_000);

/** The bytes that matter to the scanners, for damage that hits. */
const EDGE_BYTES = [
  ...Buffer.from('"\\{}[]:,0-+.eEtfn/u \t\n\r\0dadata[DONE]'),
  0x1f,
  0x7f,
  0x80,
  0xc5,
  0xbf,
  0xe5,
  0xef,
  0xff,
];

export interface Damage {
  readonly kind: 'set' | 'insert' | 'delete' | 'cut' | 'repeat';
  readonly at: number;
  readonly byte: number;
}

export const damage: fc.Arbitrary<Damage[]> = fc.array(
  fc.record({
    kind: fc.constantFrom('set', 'set', 'insert', 'insert', 'delete', 'delete', 'repeat', 'cut'),
    at: place,
    byte: fc.oneof(fc.constantFrom(...EDGE_BYTES), fc.nat({ max: 255 })),
  }),
  { minLength: 1, maxLength: 2 },
);

/** A copy of `bytes` with each damage done to it in turn. */
export function damaged(bytes: Buffer, damages: readonly Damage[]): Buffer {
  let result = Buffer.from(bytes);
  for (const { kind, at, byte } of damages) {
    const pos = Math.floor(at * result.length);
    const [head, tail] = [result.subarray(0, pos), result.subarray(pos)];
    if (kind === 'set') result = Buffer.concat([head, Buffer.from([byte]), tail.subarray(1)]);
    else if (kind === 'insert') result = Buffer.concat([head, Buffer.from([byte]), tail]);
    else if (kind === 'delete') result = Buffer.concat([head, tail.subarray(1)]);
    else if (kind === 'cut') result = Buffer.from(head);
    else result = Buffer.concat([head, tail.subarray(0, byte % 9), tail]);
  }
  return result;
}

/** Where a stream of bytes is cut: fractions of its length. */
export const cuts: fc.Arbitrary<number[]> = fc.array(place, {
  maxLength: 30,
});

/** `bytes` in pieces, each a copy in memory of its own. Empty pieces occur. */
export function pieces(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = places.map((place) => Math.round(place * bytes.length)).sort((a, b) => a - b);
  let start = 0;
  return [...ends, bytes.length].map((end) => {
    const piece = Buffer.from(bytes.subarray(start, end));
    start = end;
    return piece;
  });
}
