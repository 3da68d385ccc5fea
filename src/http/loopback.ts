// Whether a request comes from a program on this machine. It fails closed: whatever speaks of another machine on the way, in any
// of the usual headers, makes the request a foreign one.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isLoopbackAddress, isLoopbackHost } from '../config/schema/addresses.ts';
import { trustedAddresses, withoutPort } from './client-address.ts';

/** Headers by which proxies and tunnels report where a request came from. `x-forwarded-for` is read, the others are not. */
const OTHER_REPORTS = new Set([
  'cf-connecting-ip',
  'client-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'forwarded',
  'true-client-ip',
  'via',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-forwarded-for',
  'x-real-ip',
]);

/** What a proxy says of the name and the scheme it was reached by; it is no report of an address. */
const SURROUNDINGS = /^x-forwarded-(host|port|proto|scheme|server|ssl|prefix)$/;

/**
 * @param networks `listen.trusted_proxies`
 * @returns whether a request was sent on this machine, to a name of this machine
 */
export function loopbackCheck(networks: readonly string[]): (request: IncomingMessage) => boolean {
  const isTrusted = trustedAddresses(networks);
  return ({ socket, headers }) => {
    const peer = socket.remoteAddress ?? '';
    return (
      isLoopbackAddress(peer) &&
      // A page elsewhere can have its own name lead to this machine (DNS rebinding).
      isLoopbackHost(hostOf(headers)) &&
      isReportedLocal(headers, isTrusted(peer))
    );
  };
}

function isReportedLocal(headers: IncomingHttpHeaders, isTrusted: boolean): boolean {
  const names = Object.keys(headers);
  if (names.some((name) => OTHER_REPORTS.has(name))) return false;
  const reports = names.filter((name) => name.startsWith('x-forwarded'));
  if (reports.length === 0) return true;
  const hops = [headers['x-forwarded-for'] ?? []].flat().join(',').split(',');
  return (
    isTrusted &&
    reports.every((name) => name === 'x-forwarded-for' || SURROUNDINGS.test(name)) &&
    hops.every((hop) => isLoopbackAddress(withoutPort(hop.trim())))
  );
}

/** Without the port and the brackets. */
function hostOf({ host = '' }: IncomingHttpHeaders): string {
  return /^\[([^\]]*)\](?::\d*)?$/.exec(host)?.[1] ?? host.replace(/:\d*$/, '');
}
