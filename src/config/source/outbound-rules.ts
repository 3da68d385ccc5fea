// Which proxy a connection to another host takes: `proxy` of the configuration, or HTTPS_PROXY, HTTP_PROXY and NO_PROXY, which mean
// what they mean to Go's httpproxy. How a connection is made is not its concern.
import { BlockList, isIP } from 'node:net';
import { isLoopbackHost, readProxy } from '../schema/addresses.ts';
import type { OutboundRules } from '../schema/outbound-schema.ts';
import { rejected, type ScalarResult } from '../schema/units.ts';

/** Link-local addresses, such as the metadata servers of clouds: a proxy has other hosts at them. */
const METADATA = new BlockList();
METADATA.addSubnet('169.254.0.0', 16, 'ipv4');
METADATA.addSubnet('fe80::', 10, 'ipv6');

/**
 * The rules of `proxy`.
 * @param proxy URL, or `none`; undefined: by the environment, of which lower-case names win
 * @returns a fault for a variable that names no HTTP proxy
 */
export function proxyRules(proxy: string | undefined, env: NodeJS.ProcessEnv): ScalarResult<OutboundRules> {
  if (proxy === 'none') return { ok: true, value: {} };
  const of = (name: string) => env[name.toLowerCase()]?.trim() || env[name]?.trim() || undefined;
  const found: Record<string, string> = {};
  for (const scheme of ['http', 'https'] as const) {
    const name = `${scheme.toUpperCase()}_PROXY`;
    const given = of(name);
    const url = given === undefined || given.includes('://') ? given : `http://${given}`;
    if (proxy === undefined && url !== undefined && !readProxy(url).ok) {
      return rejected(
        `the environment variable ${name} is not the URL of an HTTP proxy; \`proxy: none\` ignores it`,
      );
    }
    const chosen = proxy ?? url;
    if (chosen !== undefined) found[scheme] = chosen;
  }
  const except = of('NO_PROXY');
  if (Object.keys(found).length === 0) return { ok: true, value: {} };
  return { ok: true, value: { ...found, ...(except === undefined ? {} : { except }) } };
}

/** The proxy for a target; undefined when it is reached directly. */
export function proxyFor(rules: OutboundRules | undefined, url: URL): URL | undefined {
  const proxy = url.protocol === 'https:' ? rules?.https : rules?.http;
  if (rules === undefined || proxy === undefined) return undefined;
  const host = url.hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase();
  if (isIn(METADATA, host) || host === 'metadata.google.internal') return undefined;
  return rules.always === true || !isExcepted(rules.except ?? '', host, url) ? new URL(proxy) : undefined;
}

function isExcepted(except: string, host: string, url: URL): boolean {
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port;
  if (isLoopbackHost(host)) return true;
  return except.split(/[\s,]+/).some((entry) => entry !== '' && matches(entry.toLowerCase(), host, port));
}

/** @param host without brackets, in lower case */
function matches(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  const [, bracketed, named, wanted] = /^(?:\[(.*)\]|([^:]*))(?::(\d+))?$/.exec(entry) ?? [];
  // An IPv6 address without brackets has no port.
  const pattern = bracketed ?? named ?? entry;
  if (wanted !== undefined && wanted !== port) return false;
  const [address = '', bits] = pattern.split('/');
  const family = isIP(address);
  if (family !== 0) {
    const list = new BlockList();
    const most = family === 6 ? 128 : 32;
    const prefix = bits === undefined ? most : Number(bits || Number.NaN);
    if (!Number.isInteger(prefix) || prefix < 0 || prefix > most) return false;
    list.addSubnet(address, prefix, family === 6 ? 'ipv6' : 'ipv4');
    return isIn(list, host);
  }
  const suffix = pattern.replace(/^\*(?=\.)/, '').replace(/\.$/, '');
  // `.example.com` stands for the names below it, `example.com` for itself as well.
  return suffix.startsWith('.') ? host.endsWith(suffix) : host === suffix || host.endsWith(`.${suffix}`);
}

function isIn(list: BlockList, host: string): boolean {
  const family = isIP(host);
  return family !== 0 && list.check(host, family === 6 ? 'ipv6' : 'ipv4');
}
