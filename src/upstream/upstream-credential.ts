// The credential of one upstream: its headers, the token that is fetched for it, and whether a text quotes it.
import { isDeepStrictEqual } from 'node:util';
import { isSameIdentity } from '../config/schema/auth-schema.ts';
import type { UpstreamAuth, UpstreamConfig } from '../config/schema/config-schema.ts';
import { credentialHeader } from '../config/schema/upstream-schema.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { CredentialQuotes } from './credential-quotes.ts';
import type { Outbound } from './outbound/outbound.ts';
import type { UpstreamState } from './state/upstream-state.ts';
import { createTokenSource } from './tokens/create-source.ts';
import { RenewedToken } from './tokens/renewed-token.ts';
import type { AccessToken, TokenSource } from './tokens/token-source.ts';

interface UpstreamCredentialOptions {
  readonly upstream: string;
  readonly config: UpstreamConfig;
  readonly metrics: Pick<Metrics, 'upstreamTokens'>;
  /** For the requests of token sources. Default: direct connections. */
  readonly outbound?: Outbound;
  /** The headers have changed. */
  readonly onChange: () => void;
  /** No new token could be fetched. @param isInForce whether the previous one is still valid */
  readonly onFailure: (error: Error, isInForce: boolean) => void;
  /** Default: the source of the configured kind. */
  readonly createSource?: (auth: UpstreamAuth) => TokenSource;
}

export class UpstreamCredential {
  readonly #options: UpstreamCredentialOptions;
  #config: UpstreamConfig;
  #token: RenewedToken | undefined;
  /** The token that requests use, and the one before it. */
  #bearer: string | undefined;
  #bearerBefore: string | undefined;
  #previous: UpstreamConfig | undefined;
  #quotes: CredentialQuotes;
  #isStarted = false;
  /** When the configuration with this credential was applied. */
  #since = new Date();

  constructor(options: UpstreamCredentialOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#quotes = new CredentialQuotes([options.config]);
    this.#token = this.#createToken();
  }

  /** Header name in lower case → value. */
  get headers(): Readonly<Record<string, string>> {
    const config = this.#config;
    if (config.kind === 'builtin') return {};
    const headers: Record<string, string> = {};
    const bearer = config.auth === undefined ? config.api_key : this.#bearer;
    if (bearer !== undefined) {
      const name = credentialHeader(config);
      headers[name] = name === 'authorization' ? `Bearer ${bearer}` : bearer;
    }
    for (const [field, value] of Object.entries(config.headers)) headers[field.toLowerCase()] = value;
    return headers;
  }

  /** Its kind and age, for reports. */
  get age(): UpstreamState['credential'] {
    const config = this.#config;
    if (config.kind === 'http' && config.auth !== undefined) {
      const { fetchedAt, expiresAt } = this.#token?.current ?? {};
      return { kind: 'fetched', since: timeOf(fetchedAt), expires_at: timeOf(expiresAt) };
    }
    const isGiven =
      config.kind === 'http' && (config.api_key !== undefined || Object.keys(config.headers).length > 0);
    return isGiven
      ? { kind: 'configured', since: this.#since.toISOString(), expires_at: null }
      : { kind: 'none', since: null, expires_at: null };
  }

  /** The fetched token that requests use now; undefined for a credential of the configuration. */
  get token(): string | undefined {
    return this.#token === undefined ? undefined : this.#bearer;
  }

  /**
   * Waits for a valid token; undefined when there is nothing to wait for.
   * @throws (rejects with) GatewayError upstream_auth_error
   */
  ready(): Promise<void> | undefined {
    return this.#token?.ready();
  }

  /** The upstream rejected this token. @returns whether another one is in force */
  async replaceToken(rejected: string): Promise<boolean> {
    return (await this.#token?.replace(rejected)) ?? false;
  }

  /** Whether a text quotes a present or previous credential. */
  areQuotedIn(text: string): boolean {
    return this.#quotes.areQuotedIn(text);
  }

  /** Takes the credentials of another configuration of the same upstream. A token stays in force if its identity does. */
  replace(config: UpstreamConfig): void {
    const before = this.#config;
    this.#config = config;
    this.#since = new Date();
    const [auth, authBefore] = [authOf(config), authOf(before)];
    if (!isDeepStrictEqual(auth, authBefore)) {
      this.#token?.stop();
      const present = isSame(auth, authBefore) ? this.#token?.current : undefined;
      this.#token = this.#createToken(present);
      if (present === undefined) this.#bearer = undefined;
      if (this.#isStarted) {
        this.#showToken();
        this.#token?.start();
        // The proof of the identity has changed, and the previous one may be about to end.
        if (present !== undefined) this.#token?.renew();
      }
    }
    this.#previous = before;
    this.#collectQuotes();
    this.#options.onChange();
  }

  /** Takes over the valid token of another object for the same upstream. Call it before `start`. */
  inherit(other: UpstreamCredential): void {
    const present = other.#token?.current;
    if (present === undefined || !isSame(authOf(this.#config), authOf(other.#config))) return;
    this.#token = this.#createToken(present);
    this.#bearer = present.value;
    this.#collectQuotes();
    this.#options.onChange();
  }

  start(): void {
    this.#isStarted = true;
    this.#showToken();
    this.#token?.start();
  }

  stop(): void {
    this.#isStarted = false;
    this.#token?.stop();
    this.#options.metrics.upstreamTokens.remove(this.#options.upstream);
  }

  #createToken(present?: AccessToken): RenewedToken | undefined {
    const { upstream, metrics, onChange, onFailure, outbound, createSource } = this.#options;
    const auth = authOf(this.#config);
    if (auth === undefined) return undefined;
    metrics.upstreamTokens.add(upstream);
    const created: RenewedToken = new RenewedToken({
      source: createSource?.(auth) ?? createTokenSource(auth, outbound),
      ...(present === undefined ? {} : { present }),
      onToken: ({ value }) => {
        metrics.upstreamTokens.onFetched(upstream);
        // A fetch of a source that was replaced meanwhile.
        if (this.#token !== created) return;
        this.#bearerBefore = this.#bearer;
        this.#bearer = value;
        if (this.#isStarted) this.#showToken();
        this.#collectQuotes();
        onChange();
      },
      onFailure: (error, isInForce) => {
        metrics.upstreamTokens.onFailed(upstream);
        if (this.#token === created) onFailure(error, isInForce);
      },
    });
    return created;
  }

  /** Responses to requests with the previous configuration or token may still quote these. */
  #collectQuotes(): void {
    const configs = this.#previous === undefined ? [this.#config] : [this.#config, this.#previous];
    const tokens = [this.#bearer, this.#bearerBefore].filter((token) => token !== undefined);
    this.#quotes = new CredentialQuotes(configs, tokens);
  }

  #showToken(): void {
    const { upstream, metrics } = this.#options;
    const token = this.#token?.current;
    if (token === undefined) metrics.upstreamTokens.remove(upstream);
    else metrics.upstreamTokens.show(upstream, token);
  }
}

/**
 * Whether two configurations of an upstream differ in credentials at most: key, `auth`, headers and query, certificates and their
 * keys, user and password of a proxy.
 */
export function hasSameMeaning(one: UpstreamConfig, other: UpstreamConfig): boolean {
  return isDeepStrictEqual(withoutCredentials(one), withoutCredentials(other));
}

function withoutCredentials(config: UpstreamConfig): object {
  if (config.kind === 'builtin') return config;
  const { api_key: _, auth: __, headers, query, tls, outbound, ...rest } = config;
  const { http, https, tls: common, ...exceptions } = outbound ?? {};
  return {
    ...rest,
    headers: Object.keys(headers),
    query: Object.keys(query),
    tls: [tls, common].map((each) => [each?.server_name, Object.keys(each ?? {})]),
    outbound: [exceptions, ...[http, https].map((proxy) => proxy && new URL(proxy).origin)],
  };
}

function timeOf(ms: number | undefined): string | null {
  return ms === undefined || !Number.isFinite(ms) ? null : new Date(ms).toISOString();
}

function authOf(config: UpstreamConfig): UpstreamAuth | undefined {
  return config.kind === 'http' ? config.auth : undefined;
}

function isSame(one: UpstreamAuth | undefined, other: UpstreamAuth | undefined): boolean {
  return one !== undefined && other !== undefined && isSameIdentity(one, other);
}
