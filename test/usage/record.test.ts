import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type UsageRow, usageSums } from '../../src/store/usage-record.ts';
import {
  isAmong,
  outboxColumns,
  readLine,
  readRow,
  splitRow,
  writeLine,
  writeRow,
} from '../../src/usage/outbox/outbox-row.ts';
import { exactAmount, exactPublicSums, publicSums } from '../../src/usage/records/public-sums.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import { UsageTotals } from '../../src/usage/records/usage-totals.ts';
import { dayOf, daysBefore, hourOf } from '../../src/usage/records/utc-hours.ts';
import { AT, record } from './samples.ts';

describe('a record', () => {
  test('counts the request, its tokens and its times', () => {
    expect(rowsOf(record())).toEqual([
      {
        hour: '2030-01-02T03',
        holderId: 'holder-1',
        prefix: '0123abcd',
        model: 'gpt',
        upstream: 'openai',
        teamId: '',
        tier: 'Lite',
        target: 'gpt-1',
        endpoint: 'chat',
        sums: {
          requests: 1,
          failed: 0,
          estimated: 0,
          priced: 1,
          attempts: 1,
          prompt: 100,
          completion: 10,
          cached: 40,
          reasoning: 3,
          cost: 7000,
          duration_ms: 1234,
          ttft_ms: 56,
          ttft_count: 1,
        },
      },
    ]);
  });

  test('counts tokens of an earlier attempt for its upstream, and the request once', () => {
    const usage = { prompt: 5, completion: 2, cached: 0, reasoning: 0 };
    const rows = rowsOf(
      record({ attempts: 2, extra: [{ upstream: 'azure', target: 'gpt-2', usage, costNanos: 3 }] }),
    );
    expect(
      rows.map(({ upstream, sums }) => [upstream, sums.requests, sums.attempts, sums.prompt, sums.cost]),
    ).toEqual([
      ['openai', 1, 2, 100, 7000],
      ['azure', 0, 0, 5, 3],
    ]);
  });

  test('of a running request has only tokens', () => {
    const [row, ...more] = rowsOf(record({ isPart: true, extra: [] }));
    expect(more).toEqual([]);
    expect(row?.sums).toMatchObject({ requests: 0, attempts: 0, priced: 0, duration_ms: 0, ttft_count: 0 });
    expect(row?.sums).toMatchObject({ prompt: 100, completion: 10, cached: 40, reasoning: 3, cost: 7000 });
  });

  test.each([
    ['ok', 0],
    ['client_closed', 0],
    ['upstream_timeout', 1],
    ['stream_incomplete', 1],
  ])('that ended with %s counts as failed %d times', (outcome, failed) => {
    expect(rowsOf(record({ outcome }))[0]?.sums.failed).toBe(failed);
  });

  test('without usage has no tokens, and is neither estimated nor priced', () => {
    const [row] = rowsOf(
      record({ usage: undefined, isEstimated: true, costNanos: undefined, ttftMs: undefined }),
    );
    expect(row?.sums).toEqual({
      ...usageSums(() => 0),
      requests: 1,
      attempts: 1,
      duration_ms: 1234,
    });
    expect(rowsOf(record({ isEstimated: true }))[0]?.sums.estimated).toBe(1);
  });

  test('with impossible numbers is bounded', () => {
    const usage = { prompt: 1e300, completion: -5, cached: Number.NaN, reasoning: 7 };
    const [row] = rowsOf(record({ usage, durationMs: Number.POSITIVE_INFINITY, at: Number.NaN }));
    expect(row?.sums).toMatchObject({
      prompt: 1e9,
      completion: 0,
      cached: 0,
      reasoning: 0,
      duration_ms: 1e9,
    });
    const more = { prompt: 10, completion: 5, cached: 50, reasoning: 50 };
    expect(rowsOf(record({ usage: more }))[0]?.sums).toMatchObject({ cached: 10, reasoning: 5 });
  });

  test('has texts of bounded length', () => {
    const long = 'x'.repeat(300);
    const texts = { holderId: long, prefix: long, model: long, upstream: long, teamId: long, target: long };
    const [row] = rowsOf(record({ ...texts, endpoint: long }));
    const { hour: _hour, tier: _tier, sums: _sums, ...kept } = row ?? expect.fail();
    expect(Object.fromEntries(Object.entries(kept).map(([name, text]) => [name, text.length]))).toEqual({
      holderId: 64,
      prefix: 16,
      model: 256,
      upstream: 128,
      teamId: 64,
      target: 256,
      endpoint: 64,
    });
    expect(rowsOf(record({ teamId: 'team-1' }))[0]?.teamId).toBe('team-1');
  });

  test('with texts that databases reject is made valid', () => {
    const [row] = rowsOf(record({ model: `a\0b\ud800c\n${'x'.repeat(500)}` }));
    expect(row?.model.slice(0, 6)).toBe('a\ufffdb\ufffdc\ufffd');
    expect(row?.model).toHaveLength(256);
    expect(rowsOf(record({ model: 'v/😀' }))[0]?.model).toBe('v/😀');
  });
});

describe('sums as reports show them', () => {
  const sums = { requests: 3, ttft_count: 2, duration_ms: 10, ttft_ms: 5, cost: 1_500_000_000, priced: 1 };
  const all = (changed: Partial<typeof sums> = {}) => ({ ...usageSums(() => 0), ...sums, ...changed });
  const exact = (changed: Partial<typeof sums> = {}) => {
    const numbers = all(changed);
    return usageSums((name) => BigInt(numbers[name]));
  };

  test('have averages in whole milliseconds, and the cost in units', () => {
    const about = { requests: 3, cost: 1.5, average_duration_ms: 3, average_ttft_ms: 3 };
    expect(publicSums(all())).toMatchObject(about);
    expect(exactPublicSums(exact())).toMatchObject({
      requests: 3n,
      cost: '1.500000000',
      average_duration_ms: 3n,
      average_ttft_ms: 3n,
    });
  });

  test('have no average of nothing, and no cost without a price', () => {
    const nothing = { requests: 0, ttft_count: 0, priced: 0, cost: 0 };
    const none = { cost: null, average_duration_ms: null, average_ttft_ms: null };
    expect(publicSums(all(nothing))).toMatchObject(none);
    expect(exactPublicSums(exact(nothing))).toMatchObject(none);
  });

  test.each([
    ['a request with a price', { priced: 1, cost: 0 }, 0],
    ['an earlier attempt with a cost', { priced: 0, cost: 1 }, 1e-9],
  ])('have the cost of %s', (_what, changed, cost) => {
    expect(publicSums(all(changed)).cost).toBe(cost);
    expect(Number(exactPublicSums(exact(changed)).cost)).toBe(cost);
  });

  test.each([
    [0n, '0.000000000'],
    [1n, '0.000000001'],
    [999_999_999n, '0.999999999'],
    [1_000_000_000n, '1.000000000'],
    [12_345_678_901_234_567_890n, '12345678901.234567890'],
  ])('write %s billionths as %s', (billionths, text) => {
    expect(exactAmount(billionths)).toBe(text);
  });
});

test.each([
  [{ kind: 'holder', id: 'a' }, { holderId: 'a' }, { holderId: 'b' }],
  [{ kind: 'holders', ids: new Set(['a', 'b']) }, { holderId: 'b' }, { holderId: 'c' }],
  [{ kind: 'team', id: 't' }, { teamId: 't' }, { teamId: '' }],
  [{ kind: 'prefixes', holderId: 'a', prefixes: ['1', '2'] }, { prefix: '2' }, { prefix: '3' }],
  [
    { kind: 'prefixes', holderId: 'a', prefixes: ['1', '2'] },
    { prefix: '2' },
    { prefix: '2', holderId: 'b' },
  ],
  [{ kind: 'model', holderId: 'a', model: 'gpt' }, { model: 'gpt' }, { model: 'gpt', holderId: 'b' }],
  [{ kind: 'model', holderId: 'a', model: 'gpt' }, { model: 'gpt' }, { model: 'other' }],
] as const)('of %o is a pending row with %o, and none with %o', (filter, own, other) => {
  const [key = expect.fail()] = rowsOf(record({ holderId: 'a' }));
  expect([isAmong(filter, { ...key, ...own }), isAmong(filter, { ...key, ...other })]).toEqual([true, false]);
});

describe('hours', () => {
  test.each([
    ['2030-01-31T23:59:59.999Z', '2030-01-31T23'],
    ['2030-02-01T00:00:00.000Z', '2030-02-01T00'],
    // Clocks go forward and back in Europe; UTC has one hour of each.
    ['2030-03-31T02:30:00+01:00', '2030-03-31T01'],
    ['2030-10-27T02:30:00+02:00', '2030-10-27T00'],
    ['2030-10-27T02:30:00+01:00', '2030-10-27T01'],
    ['2032-02-29T12:00:00Z', '2032-02-29T12'],
  ])('%s is in %s', (time, hour) => {
    expect(hourOf(Date.parse(time))).toBe(hour);
    expect(dayOf(Date.parse(time))).toBe(hour.slice(0, 10));
  });

  test('a time out of range has the nearest hour', () => {
    expect([hourOf(-1), hourOf(1e300)]).toEqual(['1970-01-01T00', '9999-12-31T23']);
  });

  test('days are counted back over the end of a month', () => {
    expect(dayOf(daysBefore(Date.parse('2030-03-01T00:00:00Z'), 29))).toBe('2030-01-31');
  });
});

describe('a row as text', () => {
  const text = () => rowsOf(record()).map(writeRow)[0] ?? '';
  const arbitrary = fc.record({
    model: fc.string({ unit: 'binary', maxLength: 300 }),
    upstream: fc.string({ maxLength: 200 }),
    holderId: fc.string({ maxLength: 80 }),
    at: fc.integer({ min: 0, max: AT * 2 }),
    durationMs: fc.nat(),
  });

  test('reads back as what was written, also from a line', () => {
    fc.assert(
      fc.property(arbitrary, (change) => {
        for (const row of rowsOf(record(change))) {
          expect(readRow(writeRow(row))).toEqual(row);
          const line = writeLine(writeRow(row));
          expect(line.indexOf('\n')).toBe(line.length - 1);
          expect(readLine(line).map(readRow)).toEqual([row]);
          expect(splitRow(writeRow(row))).toEqual(outboxColumns(row));
        }
      }),
    );
  });

  test('is invalid if it is truncated anywhere', () => {
    for (let length = 0; length < text().length; length += 1)
      expect(readRow(text().slice(0, length))).toBeUndefined();
    const line = writeLine(text());
    for (let length = 0; length < line.length - 1; length += 1)
      expect(readLine(line.slice(0, length)).map(readRow)).toEqual([undefined]);
  });

  test.each([
    ['no JSON', 'x'],
    ['null', 'null'],
    ['no array', '{}'],
    ['too few numbers', '["2030-01-02T03","h","p","m","u",1]'],
    ['too many numbers', text().replace(/]$/, ',1]')],
    ['a negative number', text().replace('1234', '-1')],
    ['a fraction', text().replace('1234', '1.5')],
    ['too large a number', text().replace('1234', '1e16')],
    ['no hour', text().replace('2030-01-02T03', '2030-01-02')],
    ['a number as a name', text().replace('"gpt"', '1')],
    ['a control character', text().replace('gpt', 'g\\u0000')],
  ])('with %s is not valid', (_name, wrong) => {
    expect(readRow(wrong)).toBeUndefined();
  });
});

test('totals are the sums of their rows by key, whatever the order', () => {
  const models = fc.constantFrom('a', 'b', 'a\u2028');
  fc.assert(
    fc.property(fc.array(fc.tuple(models, fc.nat(1000)), { maxLength: 50 }), (added) => {
      const totals = new UsageTotals();
      for (const [model, prompt] of added) {
        totals.addAll(rowsOf(record({ model, usage: { prompt, completion: 0, cached: 0, reasoning: 0 } })));
      }
      expect(totals.requests).toBe(added.length);
      for (const { model, sums } of totals.rows()) {
        const own = added.filter(([name]) => name === model);
        expect(sums.requests).toBe(own.length);
        expect(sums.prompt).toBe(own.reduce((sum, [, prompt]) => sum + prompt, 0));
      }
    }),
  );
});

test('later additions change neither the rows that were read nor those that were added', () => {
  const totals = new UsageTotals();
  const rows = rowsOf(record());
  const requests = (some: readonly UsageRow[]) => some.map(({ sums }) => sums.requests);
  const read = [rows, rows, rows].map((some) => {
    totals.addAll(some);
    return [...totals.rows()];
  });
  expect(read.map(requests)).toEqual([[1], [2], [3]]);
  expect(requests(rows)).toEqual([1]);
});
