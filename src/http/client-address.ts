// Addresses: the one a request counts for (the peer's, or behind trusted proxies the one they report), and the one that a
// listener got.
import { BlockList, isIP, type Server } from 'node:net';
import { GatewayError } from '../errors.ts';

/**
 * @param networks addresses and CIDR ranges of proxies whose `x-forwarded-for` counts
 * @returns a function from the peer's address and the header to the client's address; an address it cannot read ends the
 *   search, and the last one that was read counts
 */
export function clientAddress(
  networks: readonly string[],
): (peer: string, forwardedFor: string | undefined) => string {
  const isTrusted = trustedAddresses(networks);
  return (peer, forwardedFor) => {
    const address = plain(peer);
    if (networks.length === 0 || forwardedFor === undefined || !isTrusted(address)) return address;
    // Each proxy appends the address it saw, so the list is believed from the right, as far as trust reaches.
    let client = address;
    for (const hop of forwardedFor.split(',').reverse()) {
      const candidate = plain(withoutPort(hop.trim()));
      if (isIP(candidate) === 0) break;
      client = candidate;
      if (!isTrusted(candidate)) break;
    }
    return client;
  };
}

/** @returns whether an address is in one of the networks */
export function trustedAddresses(networks: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList();
  for (const network of networks) {
    const [written = '', bits] = network.split('/');
    const address = plain(written);
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) trusted.addAddress(address, family);
    // A mapped range (`::ffff:10.0.0.0/104`) counts its bits from the start of the IPv6 address.
    else trusted.addSubnet(address, Number(bits) - (address === written ? 0 : 96), family);
  }
  return (written) => {
    const address = plain(written);
    const version = isIP(address);
    return version !== 0 && trusted.check(address, version === 6 ? 'ipv6' : 'ipv4');
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

/**
 * One spelling per address: IPv4 that a dual-stack socket reports as `::ffff:1.2.3.4` is `1.2.3.4`, and the zone of a
 * link-local one (`fe80::1%eth0`, RFC 4007) names an interface of this machine and not a client.
 */
function plain(address: string): string {
  const zone = address.indexOf('%');
  const bare = zone === -1 ? address : address.slice(0, zone);
  return /^::ffff:\d+\.\d+\.\d+\.\d+$/i.test(bare) ? bare.slice(7) : bare;
}

/** Some proxies append the port: `192.0.2.7:4711`, `[2001:db8::7]:4711`. */
export function withoutPort(hop: string): string {
  return /^\[([^\]]*)\](?::\d+)?$/.exec(hop)?.[1] ?? /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(hop)?.[1] ?? hop;
}
