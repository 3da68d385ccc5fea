// Warns about wide networks in `listen.trusted_proxies`: every host in them can claim any client address, and so use another
// client's limits and failure count.
import { isIP } from 'node:net';
import { isLoopbackAddress } from '../schema/addresses.ts';
import type { ConfigField } from './config-field.ts';

/** Prefix lengths of the largest networks that are plausible for load balancers. */
const MIN_BITS = { 4: 16, 6: 48 } as const;
/** Length of the prefix of IPv4-mapped IPv6 addresses (`::ffff:10.0.0.0/104`). */
const MAPPED_BITS = 96;

export function checkTrustedProxies(file: ConfigField): void {
  for (const item of file.at('listen', 'trusted_proxies').items) {
    const [address = '', bits] = (item.text ?? '').split('/');
    const message = bits === undefined ? undefined : faultOf(address, Number(bits));
    if (message !== undefined) item.warn(message);
  }
}

/** @returns undefined for a small network, and for an invalid one, which is reported elsewhere */
function faultOf(written: string, writtenBits: number): string | undefined {
  const isMapped = /^::ffff:\d+(\.\d+){3}$/i.test(written);
  const family = isMapped ? 4 : isIP(written);
  const bits = isMapped ? writtenBits - MAPPED_BITS : writtenBits;
  if ((family !== 4 && family !== 6) || Number.isNaN(bits)) return undefined;
  if (bits <= 0) {
    return 'TRUSTS EVERYBODY: any client may claim any address, and so pass the limits of addresses; name the addresses of your proxies';
  }
  if (
    bits >= MIN_BITS[family] ||
    (family === 4 && bits >= 8 && isLoopbackAddress(written.replace(/^::ffff:/i, '')))
  )
    return undefined;
  return `is a wide network (wider than /${MIN_BITS[family]}): every machine in it may claim any client address; name the addresses of your proxies`;
}
