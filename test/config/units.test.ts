import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  dayStart,
  formatDuration,
  formatSize,
  readBoolean,
  readDecimal,
  readDuration,
  readInteger,
  readSize,
} from '../../src/config/schema/units.ts';

const value = (reading: { ok: boolean; value?: unknown }): unknown =>
  reading.ok ? reading.value : 'refused';

describe('days', () => {
  it.each([
    ['1970-01-01', 0],
    ['2024-02-29', Date.UTC(2024, 1, 29)],
    ['1969-12-31', -86_400_000],
    ['0000-01-01', Date.parse('0000-01-01T00:00:00Z')],
  ])('%s begins at %d', (text, at) => expect(dayStart(text)).toBe(at));

  it.each([
    '2023-02-29',
    '2030-02-30',
    '2030-04-31',
    '2030-13-01',
    '2030-1-01',
    '2030-01-01T00',
    ' 2030-01-01',
    '',
  ])('%j is none', (text) => expect(dayStart(text)).toBeUndefined());
});

describe('durations', () => {
  it.each([
    ['500ms', 500],
    ['3s', 3000],
    ['10m', 600_000],
    ['1h', 3_600_000],
    ['30d', 2_592_000_000],
    ['0s', 0],
  ])('%s is %d ms', (text, ms) => expect(value(readDuration(text))).toBe(ms));

  it.each(['3', '3 s', '1.5s', '-1s', '3S', '3sec', 's', '', '03s', '3s3', '3constructor', '1e3s', '0x1s'])(
    '%j is refused',
    (text) => expect(value(readDuration(text))).toBe('refused'),
  );

  it('are written back as they were meant', () => {
    expect([0, 500, 3000, 90_000, 600_000, 3_600_000, 86_400_000].map(formatDuration)).toEqual([
      '0s',
      '500ms',
      '3s',
      '90s',
      '10m',
      '1h',
      '1d',
    ]);
  });

  it('survive being written and read again', () => {
    fc.assert(
      fc.property(fc.nat(), (ms) => {
        expect(value(readDuration(formatDuration(ms)))).toBe(ms);
      }),
    );
  });
});

describe('sizes', () => {
  it.each([
    ['100B', 100],
    ['1KB', 1000],
    ['64KiB', 65_536],
    ['32MiB', 33_554_432],
    ['1GB', 1_000_000_000],
    ['2GiB', 2_147_483_648],
  ])('%s is %d bytes', (text, bytes) => expect(value(readSize(text))).toBe(bytes));

  it.each(['32', '32M', '32mib', '32 MiB', '1.5GB', '-1B', 'MiB'])('%j is refused', (text) =>
    expect(value(readSize(text))).toBe('refused'),
  );

  it('survive being written and read again', () => {
    fc.assert(
      fc.property(fc.nat(), (bytes) => {
        expect(value(readSize(formatSize(bytes)))).toBe(bytes);
      }),
    );
    expect(formatSize(33_554_432)).toBe('32MiB');
  });
});

describe('numbers and booleans', () => {
  it.each([
    ['0', 0],
    ['8080', 8080],
    ['-5', -5],
  ])('%s is a whole number', (text, number) => expect(value(readInteger(text))).toBe(number));

  it.each([
    '0x10',
    '1e3',
    '1_000',
    '007',
    '+5',
    '1.0',
    '',
    ' 1',
    '1 ',
    '0b1',
    '0o7',
    'Infinity',
    '9007199254740993',
    '١',
  ])('%j is no whole number', (text) => expect(value(readInteger(text))).toBe('refused'));

  it.each(['0x10', '1e3', '.5', '1.', '.inf', 'NaN', '1,5', '-'])('%j is no decimal', (text) =>
    expect(value(readDecimal(text))).toBe('refused'),
  );

  it('reads decimals', () =>
    expect(['0', '0.2', '-1.5', '3'].map((text) => value(readDecimal(text)))).toEqual([0, 0.2, -1.5, 3]));

  it('knows true and false and no other boolean', () => {
    expect(['true', 'false', 'True', 'yes', 'on', '1', ''].map((text) => value(readBoolean(text)))).toEqual([
      true,
      false,
      'refused',
      'refused',
      'refused',
      'refused',
      'refused',
    ]);
  });
});
