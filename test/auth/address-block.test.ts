import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { addressBlock } from '../../src/auth/address-block.ts';

describe('the block of an address', () => {
  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:0201', '192.0.2.1'],
    ['0:0:0:0:0:ffff:192.0.2.1', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::9', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:db8:1:2::192.0.2.1', '2001:db8:1:2::/64'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    ['1::', '1:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
  ])('%s is %s', (address, block) => {
    expect(addressBlock(address)).toBe(block);
  });

  test.each(['', 'localhost', '1.2.3', '1.2.3.4.5', '999.1.1.1', ':::', '2001:db8::1::2', 'unix:/run/x'])(
    'text that is not an address counts as one block: %s',
    (text) => {
      expect(addressBlock(text)).toBe('unknown');
    },
  );

  test('is the same within a /64 and differs outside of it, in any notation', () => {
    const group = fc.integer({ min: 0, max: 0xffff });
    const eight = fc.array(group, { minLength: 8, maxLength: 8 });
    const write = (groups: readonly number[]) => groups.map((each) => each.toString(16)).join(':');
    fc.assert(
      fc.property(eight, eight, (one, two) => {
        fc.pre(one[0] !== 0);
        const sibling = [...one.slice(0, 4), ...two.slice(4)];
        expect(addressBlock(write(sibling).toUpperCase())).toBe(addressBlock(write(one)));
        const [first = 0, ...rest] = one;
        expect(addressBlock(write([first ^ 1, ...rest]))).not.toBe(addressBlock(write(one)));
        const compressed = new URL(`http://[${write(one)}]/`).hostname.slice(1, -1);
        expect(addressBlock(compressed)).toBe(addressBlock(write(one)));
      }),
    );
  });
});
