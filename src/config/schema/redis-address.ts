// Parses Redis URLs: a single server, a master behind Sentinels, or a Cluster. Faults never quote the URL, which may hold a password.
import { isIP } from 'node:net';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** A host without brackets, and a port. */
export interface RedisNode {
  readonly host: string;
  readonly port: number;
}

/** What the servers ask for. */
interface Access {
  readonly tls: boolean;
  /** Decoded. Set only together with a password. */
  readonly username?: string;
  readonly password?: string;
}

interface Common extends Access {
  /** Not empty; for `single` exactly one. */
  readonly nodes: readonly RedisNode[];
}

/**
 * - `single`: the server itself.
 * - `sentinel`: `nodes` are Sentinels, which locate the master `name`. User, password and `tls` are the master's; `sentinel` has those of the Sentinels.
 * - `cluster`: `nodes` are the seed nodes, from which the client discovers the Cluster.
 */
export type RedisAddress =
  | (Common & { readonly kind: 'single'; readonly db: number })
  | (Common & {
      readonly kind: 'sentinel';
      readonly name: string;
      readonly db: number;
      readonly sentinel: Access;
    })
  | (Common & { readonly kind: 'cluster' });

const DEFAULT_PORT = { single: 6379, sentinel: 26_379, cluster: 6379 } as const;
const MAX_NODES = 64;

/** The URL parser drops or encodes white space and controls and turns `\` into `/`, so the URL would differ from what is written. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what this looks for
export const UNSAFE = /[\s\\\u0000-\u001f\u007f]/;
/** A name that a URL can have as its host, or an IPv4 address. */
export const HOST_NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/;
/** A slash or `#` in a password ends the host of a URL, and the rest of the password would be shown as a path. */
export const hasCutLogin = (url: string): boolean => /^[^/]*\/\/[^/?#]*[/#][^?]*@/.test(url);
export const CUT_LOGIN = 'must have a user and password that are percent-encoded: `/` is %2F, `#` is %23';

/** @param authority user, host and port of a URL @returns the fault of its port, to print after the field name */
export function portFault(authority: string): string | undefined {
  const [, port] = /^(?:.*@)?(?:\[[^\]]*\]|[^:[\]]+):([^:]+)$/.exec(authority) ?? [];
  const isPort = port === undefined || (/^\d*[1-9]\d*$/.test(port) && Number(port) <= 65_535);
  return isPort ? undefined : 'must have a port from 1 to 65535';
}

const FORM = /^(redis|rediss)(?:-(sentinel|cluster))?:\/\/([^/?#]*)(\/[^?#]*)?([?#].*)?$/i;

/**
 * Reads `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `redis-sentinel://[…@]HOST[:PORT],…/NAME[/DB]` and
 * `redis-cluster://[…@]HOST[:PORT],…`, each with `rediss` in place of `redis` for TLS. What differs for the Sentinels is in the query:
 * `sentinel_username`, `sentinel_password`, and `sentinel_tls`, whose default is that of the scheme.
 * @returns the address, or a fault to print after the field name
 */
export function readRedisAddress(text: string): ScalarResult<RedisAddress> {
  if (UNSAFE.test(text)) return rejected('must be a URL without white space or backslashes');
  if (hasCutLogin(text)) return rejected(CUT_LOGIN);
  const form = FORM.exec(text);
  if (form === null) {
    return rejected(
      'must be a URL that begins with redis:// or rediss:// (also redis-sentinel://, redis-cluster://) and names a host',
    );
  }
  const [, scheme = '', variant, authority = '', path = '', rest] = form;
  const lower = variant?.toLowerCase();
  const kind = lower === 'sentinel' || lower === 'cluster' ? lower : 'single';
  if (rest !== undefined && (kind !== 'sentinel' || rest.includes('#')))
    return rejected('must have neither a query nor a fragment; a query is for redis-sentinel://');
  const at = authority.lastIndexOf('@');
  const login = readLogin(at === -1 ? undefined : authority.slice(0, at));
  if (!login.ok) return login;
  const nodes = readNodes(authority.slice(at + 1), DEFAULT_PORT[kind]);
  if (!nodes.ok) return nodes;
  const common = { tls: scheme.toLowerCase() === 'rediss', nodes: nodes.value, ...login.value };
  if (kind === 'cluster') {
    return path === '' || path === '/' || path === '/0'
      ? accepted({ kind, ...common })
      : rejected('must have no path: a Cluster has no database numbers');
  }
  if (kind === 'single') {
    if (nodes.value.length > 1) {
      return rejected('must name one host; several are for redis-sentinel:// and redis-cluster://');
    }
    const db = readDatabase(path.slice(1));
    return db.ok ? accepted({ kind, ...common, db: db.value }) : db;
  }
  const [, name, number = ''] = /^\/([A-Za-z0-9._-]+)(?:\/([^/]*))?$/.exec(path) ?? [];
  if (name === undefined) return rejected('must name the master behind the Sentinels, such as /mymaster');
  const db = readDatabase(number);
  if (!db.ok) return db;
  const sentinel = readSentinelAccess(rest?.slice(1) ?? '', common.tls);
  return sentinel.ok ? accepted({ kind, ...common, name, db: db.value, sentinel: sentinel.value }) : sentinel;
}

const SENTINEL_FIELDS = ['sentinel_username', 'sentinel_password', 'sentinel_tls'];

function readSentinelAccess(query: string, tls: boolean): ScalarResult<Access> {
  const fields = new Map<string, string>();
  for (const pair of query === '' ? [] : query.split('&')) {
    const [, name = '', value = ''] = /^([^=]*)=(.+)$/.exec(pair) ?? [];
    if (!SENTINEL_FIELDS.includes(name) || fields.has(name)) {
      return rejected(
        `must have in its query each of ${SENTINEL_FIELDS.join(', ')} once at most, with a value`,
      );
    }
    const decoded = decode(value);
    if (!decoded.ok) return decoded;
    fields.set(name, decoded.value);
  }
  const [username, password, wanted = String(tls)] = SENTINEL_FIELDS.map((name) => fields.get(name));
  if (wanted !== 'true' && wanted !== 'false') return rejected('must have true or false as its sentinel_tls');
  if (username !== undefined && password === undefined)
    return rejected('must have a sentinel_password with its sentinel_username');
  return accepted({
    tls: wanted === 'true',
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
  });
}

/** `host:port`, with brackets where IPv6 needs them. */
export function hostPort(host: string, port: number | string): string {
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

/** `host:port` of the nodes, with commas: the part of the address that may be shown. */
export function redisHosts(address: RedisAddress): string {
  return address.nodes.map(({ host, port }) => hostPort(host, port)).join(',');
}

function readLogin(text: string | undefined): ScalarResult<{ username?: string; password?: string }> {
  if (text === undefined) return accepted({});
  const [, user, password] = /^([^:@]*):([^:@]+)$/.exec(text) ?? [];
  const fault =
    'must give the login as USER:PASSWORD@ or :PASSWORD@, with `:`, `@`, `/` in them as %3A, %40, %2F';
  if (user === undefined || password === undefined) return rejected(fault);
  const [username, secret] = [decode(user), decode(password)];
  if (!username.ok) return username;
  if (!secret.ok) return secret;
  return accepted({ ...(user === '' ? {} : { username: username.value }), password: secret.value });
}

function decode(text: string): ScalarResult<string> {
  try {
    return accepted(decodeURIComponent(text));
  } catch {
    return rejected('must have a login in which every `%` begins an escape such as %25');
  }
}

function readNodes(text: string, defaultPort: number): ScalarResult<readonly RedisNode[]> {
  const parts = text.split(',');
  if (parts.length > MAX_NODES) return rejected(`must name at most ${MAX_NODES} hosts`);
  const nodes: RedisNode[] = [];
  for (const part of parts) {
    const fault = portFault(part);
    if (fault !== undefined) return rejected(fault);
    const [, bracketed, name, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(\d+))?$/.exec(part) ?? [];
    const host = bracketed ?? name ?? '';
    const port = digits === undefined ? defaultPort : Number(digits);
    const isHost = bracketed === undefined ? HOST_NAME.test(host) : isIP(host) === 6 && !host.includes('%');
    if (!isHost) {
      return rejected('must name each host as HOST or HOST:PORT, IPv6 in brackets, several with commas');
    }
    nodes.push({ host, port });
  }
  return accepted(nodes);
}

function readDatabase(text: string): ScalarResult<number> {
  if (text === '') return accepted(0);
  return /^(0|[1-9]\d{0,4})$/.test(text)
    ? accepted(Number(text))
    : rejected('must have a database number, such as /0, or nothing at the end');
}
