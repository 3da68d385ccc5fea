// Client addresses (the peer's, or the one reported by trusted proxies) and the bound address of a listener.
import { BlockList, isIP, type Server } from 'node:net';
import { GatewayError } from '../errors.ts';

/**
 * @param networks addresses and CIDR ranges of proxies whose `x-forwarded-for` is trusted
 * @returns a function from peer address and header to client address; at an unparsable address, the last parsed one is used
 */
export function clientAddress(
  networks: readonly string[],
): (peer: string, forwardedFor: string | undefined) => string {
  const isTrusted = trustedAddresses(networks);
  return (peer, forwardedFor) => {
    const address = plain(peer);
    if (networks.length === 0 || forwardedFor === undefined || !isTrusted(address)) return address;
    // Each proxy appends the address it saw, so read from the right while the hops are trusted.
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

/** The address that a server listens on. */
export function boundAddress(server: Server): { host: string; port: number } {
  const address = server.address();
  if (address === null || typeof address === 'string') {
    throw new GatewayError('internal_error', undefined, { cause: 'not listening on TCP' });
  }
  return { host: address.address, port: address.port };
}

/**
 * Canonical form of an address: the IPv4 address of a mapped `::ffff:1.2.3.4` (dual-stack sockets), and no zone of a link-local
 * address (`fe80::1%eth0`, RFC 4007), which names an interface of this machine.
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
