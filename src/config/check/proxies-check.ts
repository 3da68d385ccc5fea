// Warnings about `listen.trusted_proxies`: every host in these networks can claim any client address, and with it another
// client's limits and failures.
import { isIP } from 'node:net';
import { isLoopbackAddress } from '../schema/addresses.ts';
import { findNode, nodeText, type ReportFault, type YamlMapping } from '../source/yaml-tree.ts';

/** The largest networks that are plausible for load balancers alone. */
const FEWEST_BITS = { 4: 16, 6: 48 } as const;
/** Of the prefix in which IPv4 is written as IPv6 (`::ffff:10.0.0.0/104`). */
const MAPPED_BITS = 96;

export function checkTrustedProxies(tree: YamlMapping, warn: ReportFault): void {
  const list = findNode(tree, ['listen', 'trusted_proxies'])?.node;
  if (list?.kind !== 'list') return;
  for (const [index, item] of list.items.entries()) {
    const [address = '', bits] = (nodeText(item) ?? '').split('/');
    if (bits === undefined) continue;
    const message = faultOf(address, Number(bits));
    if (message !== undefined) warn(item.span.start, ['listen', 'trusted_proxies', index], message);
  }
}

/** @returns undefined for a network that is small enough, and for one that is not valid, which is a fault of its own */
function faultOf(written: string, writtenBits: number): string | undefined {
  const isMapped = /^::ffff:\d+(\.\d+){3}$/i.test(written);
  const family = isMapped ? 4 : isIP(written);
  const bits = isMapped ? writtenBits - MAPPED_BITS : writtenBits;
  if ((family !== 4 && family !== 6) || Number.isNaN(bits)) return undefined;
  if (bits <= 0) {
    return 'TRUSTS EVERYBODY: any client may claim any address, and so pass the limits of addresses; name the addresses of your proxies';
  }
  if (
    bits >= FEWEST_BITS[family] ||
    (family === 4 && bits >= 8 && isLoopbackAddress(written.replace(/^::ffff:/i, '')))
  )
    return undefined;
  return `is a wide network (wider than /${FEWEST_BITS[family]}): every machine in it may claim any client address; name the addresses of your proxies`;
}
