// Addresses: the one a request counts for (the peer's, or behind trusted proxies the one they report), and the one that a
// listener got.
import { BlockList, isIP, type Server } from 'node:net';
import { GatewayError } from '../errors.ts';

/**
 * @param networks addresses and CIDR ranges of proxies whose `x-forwarded-for` counts
 * @returns a function from the peer's address and the header to the client's address
 */
export function clientAddress(
  networks: readonly string[],
): (peer: string, forwardedFor: string | undefined) => string {
  const trusted = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(bits), family);
  }
  const isTrusted = (address: string) => trusted.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');

  return (peer, forwardedFor) => {
    const address = plain(peer);
    if (networks.length === 0 || forwardedFor === undefined || !isTrusted(address)) return address;
    // Each proxy appends the address it saw, so the list is believed from the right, as far as trust reaches.
    let client = address;
    for (const hop of forwardedFor.split(',').reverse()) {
      const candidate = plain(hop.trim());
      if (isIP(candidate) === 0) break;
      client = candidate;
      if (!isTrusted(candidate)) break;
    }
    return client;
  };
}

/** Where a server listens, after it has begun to. */
export function boundAddress(server: Server): { host: string; port: number } {
  const address = server.address();
  if (address === null || typeof address === 'string') {
    throw new GatewayError('internal_error', undefined, { cause: 'not listening on TCP' });
  }
  return { host: address.address, port: address.port };
}

/** IPv4 addresses that a dual-stack socket reports as `::ffff:1.2.3.4` are one and the same as `1.2.3.4`. */
function plain(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address;
}
