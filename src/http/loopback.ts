// Detects requests from a program on this machine. Fails closed: any header that reports another machine makes the request foreign.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isLoopbackAddress, isLoopbackHost } from '../config/schema/addresses.ts';
import { trustedAddresses, withoutPort } from './client-address.ts';

/** Headers in which proxies and tunnels report the origin. Only `x-forwarded-for` is parsed. */
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

/** Proxy headers about name and scheme, which report no address. */
const SURROUNDINGS = /^x-forwarded-(host|port|proto|scheme|server|ssl|prefix)$/;

/**
 * @param networks `listen.trusted_proxies`
 * @returns whether a request was sent from this machine to a name of this machine
 */
export function loopbackCheck(networks: readonly string[]): (request: IncomingMessage) => boolean {
  const isTrusted = trustedAddresses(networks);
  return ({ socket, headers }) => {
    const peer = socket.remoteAddress ?? '';
    return (
      isLoopbackAddress(peer) &&
      // DNS rebinding: a foreign page can point its own name at this machine.
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

/** The host without port and brackets. */
function hostOf({ host = '' }: IncomingHttpHeaders): string {
  return /^\[([^\]]*)\](?::\d*)?$/.exec(host)?.[1] ?? host.replace(/:\d*$/, '');
}
