// Who sends a request to the console: a token, a name from an identity proxy, or a session; and whether a change comes from our page.
import type { IncomingMessage } from 'node:http';
import { isSameBytes, type KeySecret } from '../auth/hashing/hashing-secret.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import { clientAddress, trustedAddresses } from '../http/client-address.ts';
import { type OperatorSession, ROLES, type Role } from '../store/operator-record.ts';
import type { OperatorSessions } from './operator-sessions.ts';
import { isOperatorName, type OperatorTokens } from './operator-tokens.ts';

/** The operator behind a request. */
export interface Operator {
  readonly name: string;
  readonly role: Role;
  readonly via: 'token' | 'session' | 'sso';
  /** Forms and scripts send it with each change; null with a token, which no browser adds by itself. */
  readonly csrf: string | null;
  readonly session?: OperatorSession;
  /** `set-cookie` of the answer. */
  readonly setCookie?: string;
}

const BEARER = /^Bearer +(\S+) *$/i;
/** The field of a form, or the header, that has the CSRF token. */
export const CSRF_FIELD = 'csrf';
const CSRF_HEADER = 'x-csrf-token';

/** Whether a role includes another one. */
export function hasRole(role: Role, needed: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed);
}

/** @throws GatewayError `role_too_low` */
export function requireRole({ role }: Operator, needed: Operator['role']): void {
  if (hasRole(role, needed)) return;
  throw new GatewayError('role_too_low', `This needs the role ${needed}, and yours is ${role}.`);
}

interface IdentityParts {
  readonly admin: StaticConfig['admin'];
  readonly secret: KeySecret;
  readonly tokens: OperatorTokens;
  readonly sessions: OperatorSessions;
}

export class ConsoleIdentity {
  readonly #parts: IdentityParts;
  readonly #addressOf: (peer: string, forwardedFor: string | undefined) => string;
  readonly #isProxy: (address: string) => boolean;

  constructor(parts: IdentityParts) {
    const proxies = parts.admin.sso?.trusted_proxies ?? [];
    this.#parts = parts;
    this.#addressOf = clientAddress(proxies);
    this.#isProxy = trustedAddresses(proxies);
  }

  /** The address of the client, behind trusted proxies as well. */
  addressOf({ socket, headers }: IncomingMessage): string {
    return this.#addressOf(socket.remoteAddress ?? '', headers['x-forwarded-for']?.toString());
  }

  /** @throws GatewayError `operator_required`, `invalid_operator`, `too_many_sign_ins`, and those of the store */
  async operatorOf(request: IncomingMessage): Promise<Operator> {
    const { tokens, sessions, secret } = this.#parts;
    const { authorization } = request.headers;
    const address = this.addressOf(request);
    if (authorization !== undefined) {
      const token = BEARER.exec(authorization)?.[1];
      if (token === undefined) throw new GatewayError('operator_required');
      const { name, role } = await tokens.verify(token, address);
      return { name, role, via: 'token', csrf: null };
    }
    const proxied = this.#proxied(request);
    if (proxied !== undefined) return proxied;
    const cookie = cookieOf(request);
    const found = cookie === undefined ? undefined : await sessions.find(cookie, address);
    if (found === undefined) throw new GatewayError('operator_required');
    const { operator, session, replacement } = found;
    tokens.requireValid(operator);
    await tokens.used(operator);
    return {
      name: operator.name,
      role: operator.role,
      via: 'session',
      session,
      csrf: secret.csrfToken(`session ${session.id}`),
      ...(replacement !== undefined && { setCookie: sessionCookie(request, replacement) }),
    };
  }

  /**
   * Whether a change by a browser comes from our own page: its origin, and the CSRF token.
   * @param field the token of a form
   * @throws GatewayError `forged_request`
   */
  requireOwnPage(request: IncomingMessage, operator: Operator, field?: string): void {
    if (operator.csrf === null) return;
    requireSameSite(request);
    const given = Buffer.from(field ?? request.headers[CSRF_HEADER]?.toString() ?? '');
    const wanted = Buffer.from(operator.csrf);
    if (!isSameBytes(given, wanted)) throw new GatewayError('forged_request');
  }

  /** The operator that an identity proxy names. A header from anywhere else is ignored. */
  #proxied(request: IncomingMessage): Operator | undefined {
    const { sso } = this.#parts.admin;
    if (sso === undefined || !this.#isProxy(request.socket.remoteAddress ?? '')) return undefined;
    const given = request.headersDistinct[sso.header];
    if (given === undefined) return undefined;
    const [name = ''] = given;
    // Two headers: the proxy did not remove the one of the client.
    if (given.length > 1 || !isOperatorName(name)) throw new GatewayError('invalid_operator');
    const role = Object.entries(sso.roles).find(([each]) => each === name)?.[1] ?? sso.roles['*'];
    if (role === undefined)
      throw new GatewayError('role_too_low', 'The identity proxy names you, but `admin.sso.roles` does not.');
    return { name, role, via: 'sso', csrf: this.#parts.secret.csrfToken(`sso ${name}`) };
  }
}

/**
 * Browsers send where a form or a script comes from (Fetch, 3.2; Fetch Metadata). A program has no cookie that it did not mean to send.
 * @throws GatewayError `forged_request`
 */
export function requireSameSite({ headers }: IncomingMessage): void {
  const { origin, host, 'sec-fetch-site': site } = headers;
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    throw new GatewayError('forged_request');
  if (origin === undefined) return;
  // Only host and port: a proxy in front may have ended TLS.
  if (!URL.canParse(origin) || new URL(origin).host !== hostOf(host, origin))
    throw new GatewayError('forged_request');
}

/** The Host header in the form of the origin's host: without the default port of its scheme. */
function hostOf(host: string | undefined, origin: string): string | undefined {
  const url = `${new URL(origin).protocol}//${host ?? ''}`;
  return URL.canParse(url) ? new URL(url).host : undefined;
}

/** With `__Host-`, no other host of the domain can set it. Browsers accept that prefix only over TLS. */
function cookieName(request: IncomingMessage): string {
  return isSecure(request) ? '__Host-tollgate-console' : 'tollgate-console';
}

/** A client that claims TLS without having it harms itself: its browser drops the cookie. */
function isSecure({ socket, headers }: IncomingMessage): boolean {
  return 'encrypted' in socket || headers['x-forwarded-proto'] === 'https';
}

function cookieOf(request: IncomingMessage): string | undefined {
  const name = `${cookieName(request)}=`;
  const pairs = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim());
  return pairs.find((pair) => pair.startsWith(name))?.slice(name.length);
}

/** @param secret empty to remove the cookie */
export function sessionCookie(request: IncomingMessage, secret: string): string {
  const secure = isSecure(request) ? '; Secure' : '';
  const age = secret === '' ? '; Max-Age=0' : '';
  return `${cookieName(request)}=${secret}; Path=/; HttpOnly; SameSite=Lax${secure}${age}`;
}
