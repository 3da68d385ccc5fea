// What a body may mean: every id that stands in it is found, wherever and however it is written, and words are left alone.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { BatchInput, linesOf, requestOfLine } from '../../src/passthrough/batch-input.ts';
import { ReferenceFinder } from '../../src/proxy/objects/object-references.ts';
import { wants } from '../../src/proxy/request/request-members.ts';

const ID = `file-${'a1'.repeat(12)}`;

const found = (text: string, options = {}) => new ReferenceFinder(options).addJson(Buffer.from(text));

/** JSON whose strings may be written with escapes. */
function spelled(value: unknown, spell: (text: string) => string): string {
  if (typeof value === 'string') return `"${spell(value)}"`;
  if (Array.isArray(value)) return `[${value.map((each) => spelled(each, spell)).join(' , ')}]`;
  if (typeof value === 'object' && value !== null)
    return `{${Object.entries(value)
      .map(([key, each]) => `"${spell(key)}" : ${spelled(each, spell)}`)
      .join(',\n')}}`;
  return JSON.stringify(value);
}

const escaped = (text: string) =>
  [...text].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

describe('a body', () => {
  test('hides no id, at any depth, in any spelling', () => {
    const inside = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        fc.constant('$'),
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), tie('value'), { maxKeys: 3 }),
        fc.constantFrom(1, true, null, 'word', 'two words'),
      ),
    })).value;
    fc.assert(
      fc.property(inside, fc.boolean(), (value, isEscaped) => {
        const text = JSON.stringify(value);
        const holds = text.includes('"$"');
        const real: unknown = JSON.parse(text.replaceAll('"$"', JSON.stringify(ID)));
        const { certain, possible } = found(spelled(real, isEscaped ? escaped : (each) => each));
        expect(certain.has(ID) || possible.has(ID)).toBe(holds);
      }),
      { numRuns: 200 },
    );
  });

  test.each([
    ['{"file_id":"x"}', ['x']],
    ['{"a":{"file_ids":["x","y"]}}', ['x', 'y']],
    ['{"input_file_id":"x","vector_store_ids":["y"],"part_ids":["z"]}', ['x', 'y', 'z']],
    ['{"conversation":"x"}', ['x']],
    ['{"conversation":{"id":"x"}}', ['x']],
    ['{"file":{"id":"x"}}', ['x']],
    ['{"file_id":"x","file_id":"y"}', ['x', 'y']],
    ['{"a":"vs_0123456789abcdef"}', ['vs_0123456789abcdef']],
    ['{"a":"file-system","call_id":"c","id":"i","custom_id":"d","profile":"p","name":"file"}', []],
    ['{"metadata":{"file_id":"x"},"attributes":{"file_id":"y"}}', []],
    ['{"file_id":null,"file_ids":[]}', []],
    ['{"previous_response_id":"x","a":[{"type":"item_reference","id":"y"}]}', ['x', 'y']],
  ])('%s', (text, ids) => {
    expect([...found(text).certain]).toEqual(ids);
  });

  test('that is long is read in turns, and means the same', async () => {
    const filler = Array.from({ length: 3_000 }, (_, index) => ({ text: 'x'.repeat(index % 90), n: index }));
    const text = JSON.stringify({
      input: [filler, { file_id: 'x', more: filler }],
      metadata: { file_id: 'not this', of: filler },
      [`${'long_'.repeat(1000)}file_id`]: 'y',
      tools: [{ type: 'file_search', vector_store_ids: ['z', ID] }],
      last: { conversation: { id: 'c' } },
    });
    let turns = 0;
    let isOver = false;
    const tick = () => {
      turns += 1;
      if (!isOver) setImmediate(tick);
    };
    setImmediate(tick);
    const long = `${' '.repeat(20_000_000)}${text}`;
    const finder = await new ReferenceFinder().addLargeJson(Buffer.from(long));
    isOver = true;
    expect([...finder.certain]).toEqual(['x', 'y', 'z', ID, 'c']);
    expect([...finder.certain]).toEqual([...found(text).certain]);
    expect(turns).toBeGreaterThan(5);
    await expect(new ReferenceFinder().addLargeJson(Buffer.from(`${long}}`))).rejects.toThrow(
      /not valid JSON/,
    );
  });

  test('may name stored responses where somebody else sees to them', () => {
    const text = '{"previous_response_id":"resp_0123456789abcdef","file_id":"x"}';
    expect([...found(text, { takesStored: true }).certain]).toEqual(['x']);
  });

  test('that is no JSON, or names too much, is refused', () => {
    expect(() => found('{"a":}')).toThrow(/not valid JSON/);
    expect(() => found(JSON.stringify(Array.from({ length: 10_001 }, (_, index) => `word${index}`)))).toThrow(
      /too many/,
    );
  });
});

describe('the file of a batch', () => {
  test('is read line by line, wherever it is cut', async () => {
    const lines = Array.from({ length: 30 }, (_, index) =>
      JSON.stringify({ custom_id: String(index), body: { file_id: `f${index}` } }),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 5 }),
        fc.constantFrom('\n', '\r\n', '\n\n'),
        async (sizes, end) => {
          const seen: string[] = [];
          const input = new BatchInput(async ({ certain }) => void seen.push(...certain));
          const all = Buffer.from(lines.join(end));
          async function* pieces() {
            for (let at = 0, turn = 0; at < all.length; turn += 1) {
              const size = sizes[turn % sizes.length] ?? 1;
              yield all.subarray(at, at + size);
              at += size;
            }
          }
          for await (const line of linesOf(pieces())) await input.add(line);
          await input.end();
          expect(seen.sort()).toEqual(lines.map((_, index) => `f${index}`).sort());
        },
      ),
      { numRuns: 30 },
    );
  });

  /** @returns how often other work ran meanwhile */
  async function turnsDuring(work: Promise<unknown>): Promise<number> {
    let turns = 0;
    let next = setImmediate(function turn() {
      turns += 1;
      next = setImmediate(turn);
    });
    try {
      await work;
    } finally {
      clearImmediate(next);
    }
    return turns;
  }

  test('with a long line is read in slices, between which other work runs', async () => {
    const texts = Array.from({ length: 1_000_000 }, () => '"a"').join(',');
    const line = Buffer.from(`{"custom_id":"1","body":{"model":"m","file_id":"f","messages":[${texts}]}}`);
    const seen: string[] = [];
    const input = new BatchInput(async ({ certain }) => void seen.push(...certain));
    expect(await turnsDuring(input.add(line))).toBeGreaterThan(5);
    await input.end();
    expect(seen).toEqual(['f']);
    const request = requestOfLine(line, { wanted: wants([]) }, () => true);
    expect(await turnsDuring(request)).toBeGreaterThan(5);
    expect(await request).toMatchObject({ model: 'm' });
  });

  test('with too many references in a line says so', async () => {
    const ids = Array.from({ length: 20_000 }, (_, index) => `"file-${String(index).padStart(24, '0')}"`);
    const input = new BatchInput(async () => {});
    await expect(input.add(Buffer.from(`{"body":{"file_ids":[${ids}]}}`))).rejects.toMatchObject({
      code: 'invalid_value',
    });
  });
});
