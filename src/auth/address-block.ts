// Normalizes a client address to the block by which failures and Free keys are counted.
import { isIP } from 'node:net';

/**
 * @param address as a socket or a trusted proxy reports it
 * @returns an IPv4 address unchanged, also when mapped into IPv6 (RFC 4291, 2.5.5.2); the /64 of an IPv6 address, the
 *   smallest block that one customer gets (RFC 6177); `unknown` for anything else
 */
export function addressBlock(address: string): string {
  const [plain = ''] = address.split('%');
  if (isIP(plain) === 4) return plain;
  if (isIP(plain) !== 6) return 'unknown';
  const groups = expand(plain);
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return groups
      .slice(6)
      .flatMap((group) => [group >> 8, group & 0xff])
      .join('.');
  }
  return `${groups
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(':')}::/64`;
}

/** Expands a valid IPv6 address to its eight groups. */
function expand(address: string): readonly number[] {
  // The URL parser turns a dotted decimal end into two groups.
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const numbers = (part: string) =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const first = numbers(head);
  if (tail === undefined) return first;
  const last = numbers(tail);
  return [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
}
