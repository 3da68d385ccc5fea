// Readers for addresses: URLs of upstreams, store and Redis, hosts, networks, origins. They check the syntax only.
import { BlockList, isIP } from 'node:net';
import {
  CUT_LOGIN,
  HOST_NAME,
  hasCutLogin,
  hostPort,
  portFault,
  readRedisAddress,
  UNSAFE,
} from './redis-address.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** Where keys, usage and orders are stored: a file with `path`, or a server with `url`. */
export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly path: string }
  | { readonly kind: 'postgres'; readonly url: string };

/** @returns what to say of a URL that cannot be parsed because of its port */
function urlPortFault(text: string): string | undefined {
  return portFault(/^[^/]*\/\/([^/?#]*)/.exec(text)?.[1] ?? '');
}

function readUrl(text: string, schemes: readonly string[]): ScalarResult<URL> {
  const expected = schemes.map((scheme) => `${scheme}://`).join(' or ');
  if (UNSAFE.test(text)) return rejected('must be a URL without white space or backslashes');
  const scheme = /^([a-z][a-z0-9+.-]*):\/\/[^/?#]/i.exec(text)?.[1]?.toLowerCase();
  const form = `must be a URL that begins with ${expected} and names a host`;
  if (scheme === undefined || !schemes.includes(scheme)) return rejected(form);
  if (!URL.canParse(text)) return rejected(urlPortFault(text) ?? form);
  return accepted(new URL(text));
}

/** A web address without user, password and fragment. @param instead where credentials belong */
export function readWebUrl(text: string, instead = ''): ScalarResult<URL> {
  const reading = readUrl(text, ['http', 'https']);
  if (!reading.ok) return reading;
  if (reading.value.username !== '' || reading.value.password !== '' || /^[^/]*\/\/[^/?#]*@/.test(text)) {
    return rejected(`must not hold a user or password${instead}`);
  }
  return text.includes('#') ? rejected('must not have a fragment (`#…`)') : reading;
}

/** The root of an upstream's API, kept as written. A query is allowed. */
export function readBaseUrl(text: string): ScalarResult<string> {
  const reading = readWebUrl(text, '; put credentials into `api_key` or `headers`');
  if (!reading.ok) return reading;
  return /\/chat\/completions\/?$/.test(reading.value.pathname)
    ? rejected('must be the root of the API: `chat/completions` is appended by the gateway')
    : accepted(text);
}

/** `none`, or the URL of an HTTP proxy, with or without user and password and a slash at the end. */
export function readProxy(text: string): ScalarResult<string> {
  if (text === 'none') return accepted(text);
  const reading = readUrl(text, ['http', 'https']);
  if (!reading.ok)
    return reading.fault.startsWith('must be') ? rejected(`${reading.fault}, or \`none\``) : reading;
  const { pathname, search, hash, username, password } = reading.value;
  if (pathname !== '/' || search !== '' || hash !== '') {
    return rejected('must end after the host and port of the proxy');
  }
  try {
    // RFC 7617, 2: the first colon ends the user.
    return [username, password].map(decodeURIComponent)[0]?.includes(':')
      ? rejected('must not have a colon in its user')
      : accepted(text);
  } catch {
    return rejected('must have a user and password that are percent-encoded');
  }
}

/** The public URL of the gateway, without a trailing slash. */
export function readPublicUrl(text: string): ScalarResult<string> {
  const reading = readWebUrl(text);
  if (!reading.ok) return reading;
  return text.includes('?') ? rejected('must not have a query') : accepted(text.replace(/\/+$/, ''));
}

function readSqlite(text: string): ScalarResult<StoreAddress> {
  const path = text.slice('sqlite:'.length);
  // `sqlite://data/x.db` is ambiguous: a relative path or a host.
  return path === '' || path.startsWith('//') || path.includes('\0')
    ? rejected('must name a file after `sqlite:`, such as sqlite:./data/tollgate.db')
    : accepted({ kind: 'sqlite', path });
}

function readPostgres(text: string): ScalarResult<StoreAddress> {
  if (hasCutLogin(text)) return rejected(CUT_LOGIN);
  const reading = readUrl(text, ['postgres', 'postgresql']);
  return reading.ok ? accepted({ kind: 'postgres', url: text }) : reading;
}

/** The kinds of stores, by the start of their addresses. `store/open.ts` opens them. */
const STORES = [
  { start: 'sqlite:', form: 'sqlite:PATH', read: readSqlite },
  { start: 'postgres(ql)?://', form: 'a postgres:// URL', read: readPostgres },
] as const;

export const STORE_NAMES = { sqlite: 'SQLite', postgres: 'Postgres' } as const;
export const STORE_PATTERN = `^(${STORES.map(({ start }) => start).join('|')})`;

export function readStore(text: string): ScalarResult<StoreAddress> {
  const store = STORES.find(({ start }) => new RegExp(`^${start}`).test(text));
  return store?.read(text) ?? rejected(`must be ${STORES.map(({ form }) => form).join(' or ')}`);
}

/** Any form of `readRedisAddress`, kept as written. */
export function readRedis(text: string): ScalarResult<string> {
  const reading = readRedisAddress(text);
  return reading.ok ? accepted(text) : reading;
}

/** What a listener binds to: a name or an address, IPv6 without brackets. */
export function readHost(text: string): ScalarResult<string> {
  return isIP(text) !== 0 || HOST_NAME.test(text)
    ? accepted(text)
    : rejected('must be a host name or an IP address, without port and brackets');
}

/** An address, or a network in CIDR form (RFC 4632). */
export function readNetwork(text: string): ScalarResult<string> {
  const [, host = '', bits] = /^([^/]+)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
  const family = isIP(host);
  const largest = family === 4 ? 32 : 128;
  return family !== 0 && !host.includes('%') && (bits === undefined || Number(bits) <= largest)
    ? accepted(text)
    : rejected('must be an IP address or a network such as 10.0.0.0/8');
}

/** `*`, or an origin as a browser sends it (RFC 6454): scheme, host and port only. */
export function readOrigin(text: string): ScalarResult<string> {
  if (text === '*') return accepted(text);
  const form = 'must be an origin such as https://app.example.com, without a path, or *';
  if (!URL.canParse(text)) return rejected(urlPortFault(text) ?? form);
  return new URL(text).origin === text ? accepted(text) : rejected(form);
}

/** True for a URL whose traffic does not leave the machine. */
export function isLoopback(url: URL): boolean {
  return isLoopbackHost(url.hostname.replace(/^\[|\]$/g, ''));
}

/** True for a loopback name or address (IPv6 without brackets). RFC 6761, 6.3: names under `localhost` too. */
export function isLoopbackHost(host: string): boolean {
  return /^(.+\.)?localhost\.?$/i.test(host) || isLoopbackAddress(host);
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** True for 127.0.0.0/8 and ::1 in any spelling: mapped to IPv6 (`::ffff:127.0.0.1`), and with a zone (`::1%lo`). */
export function isLoopbackAddress(address: string): boolean {
  const [bare = ''] = address.split('%');
  const version = isIP(bare);
  return version !== 0 && LOOPBACK.check(bare, version === 6 ? 'ipv6' : 'ipv4');
}

/** `http://host:port`, or https with TLS; with brackets where IPv6 needs them. */
export function httpUrl(host: string, port: number, isTls = false): string {
  return `${isTls ? 'https' : 'http'}://${hostPort(host, port)}`;
}
