import { describe, expect, test } from 'vitest';
import { addressBlock } from '../../src/auth/address-block.ts';
import { FailureLimit } from '../../src/auth/failure-limits.ts';

function limit(perMinute: number) {
  const state = { now: 5000, perMinute };
  const failures = new FailureLimit(
    () => state.perMinute,
    () => state.now,
    addressBlock,
  );
  const fail = (address: string, times: number) => {
    for (let index = 0; index < times; index += 1) failures.record(address);
  };
  return { state, failures, fail };
}

describe('the failure limit', () => {
  test('allows the configured failures per minute, then returns the wait until the next', () => {
    const { state, failures, fail } = limit(60);
    expect(failures.waitFor('192.0.2.1')).toBe(0);
    fail('192.0.2.1', 59);
    expect(failures.waitFor('192.0.2.1')).toBe(0);
    fail('192.0.2.1', 1);
    expect(failures.waitFor('192.0.2.1')).toBe(1000);
    state.now += 999;
    expect(failures.waitFor('192.0.2.1')).toBeGreaterThan(0);
    state.now += 1;
    expect(failures.waitFor('192.0.2.1')).toBe(0);
    fail('192.0.2.1', 1);
    expect(failures.waitFor('192.0.2.1')).toBe(1000);
  });

  test('does not lengthen the wait for failures beyond the limit', () => {
    const { state, failures, fail } = limit(10);
    fail('192.0.2.1', 10_000);
    expect(failures.waitFor('192.0.2.1')).toBe(6000);
    state.now += 60_000;
    expect(failures.waitFor('192.0.2.1')).toBe(0);
    expect(failures.size).toBe(0);
  });

  test('with a limit of one blocks for a minute after one failure', () => {
    const { state, failures, fail } = limit(1);
    fail('192.0.2.1', 1);
    expect(failures.waitFor('192.0.2.1')).toBe(59_999);
    state.now += 60_000;
    expect(failures.waitFor('192.0.2.1')).toBe(0);
  });

  test('counts an IPv6 /64 as one subject, a mapped address as IPv4, and others apart', () => {
    const { failures, fail } = limit(2);
    fail('2001:db8::1', 1);
    fail('2001:db8::ffff', 1);
    expect(failures.waitFor('2001:db8:0:0:9::9')).toBeGreaterThan(0);
    expect(failures.waitFor('2001:db8:0:1::1')).toBe(0);
    fail('::ffff:192.0.2.1', 2);
    expect(failures.waitFor('192.0.2.1')).toBeGreaterThan(0);
    expect(failures.waitFor('192.0.2.2')).toBe(0);
  });

  test('follows the configuration in force', () => {
    const { state, failures, fail } = limit(10);
    fail('192.0.2.1', 5);
    state.perMinute = 5;
    expect(failures.waitFor('192.0.2.1')).toBeGreaterThan(0);
    state.perMinute = 100;
    expect(failures.waitFor('192.0.2.1')).toBe(0);
  });

  test('keeps a bounded number of addresses', () => {
    const { failures, fail } = limit(1);
    for (let index = 0; index < 60_000; index += 1)
      fail(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`, 1);
    expect(failures.size).toBe(50_000);
    expect(failures.waitFor('10.0.234.95')).toBeGreaterThan(0);
  });
});
