// The credential of one upstream: its headers, the token that is fetched for it, and whether a text quotes it.
import type { UpstreamAuth, UpstreamConfig } from '../config/schema/config-schema.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { Credentials } from './credentials.ts';
import { createTokenSource } from './tokens/create-source.ts';
import { RenewedToken } from './tokens/renewed-token.ts';
import type { TokenSource } from './tokens/token-source.ts';

interface UpstreamCredentialOptions {
  readonly upstream: string;
  readonly config: UpstreamConfig;
  readonly metrics: Pick<Metrics, 'upstreamTokens'>;
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
  #lastToken: string | undefined;
  #quotes: Credentials;
  #isStarted = false;

  constructor(options: UpstreamCredentialOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#quotes = new Credentials([options.config]);
    this.#token = this.#createToken();
  }

  /** Header name in lower case → value. */
  get headers(): Readonly<Record<string, string>> {
    const config = this.#config;
    if (config.kind === 'builtin') return {};
    const headers: Record<string, string> = {};
    const bearer = config.auth === undefined ? config.api_key : this.#lastToken;
    if (bearer !== undefined) headers['authorization'] = `Bearer ${bearer}`;
    for (const [field, value] of Object.entries(config.headers)) headers[field.toLowerCase()] = value;
    return headers;
  }

  /** The fetched token that requests use now; undefined for a credential of the configuration. */
  get token(): string | undefined {
    return this.#token === undefined ? undefined : this.#lastToken;
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

  /** Takes the credentials of another configuration of the same upstream. */
  replace(config: UpstreamConfig): void {
    const before = this.#config;
    this.#config = config;
    if (!isSameAuth(before, config)) {
      this.#token?.stop();
      this.#lastToken = undefined;
      this.#token = this.#createToken();
      if (this.#isStarted) this.#token?.start();
    }
    // Responses to requests with the previous credential may still quote that.
    this.#quotes = new Credentials([config, before], this.#lastToken === undefined ? [] : [this.#lastToken]);
    this.#options.onChange();
  }

  start(): void {
    this.#isStarted = true;
    this.#token?.start();
  }

  stop(): void {
    this.#isStarted = false;
    this.#token?.stop();
    this.#options.metrics.upstreamTokens.remove(this.#options.upstream);
  }

  #createToken(): RenewedToken | undefined {
    const { upstream, metrics, onChange, onFailure, createSource = createTokenSource } = this.#options;
    const config = this.#config;
    if (config.kind === 'builtin' || config.auth === undefined) return undefined;
    metrics.upstreamTokens.add(upstream);
    return new RenewedToken({
      source: createSource(config.auth),
      onToken: ({ value, expiresAt }) => {
        metrics.upstreamTokens.onFetched(upstream, expiresAt);
        const tokens = this.#lastToken === undefined ? [value] : [value, this.#lastToken];
        this.#lastToken = value;
        this.#quotes = new Credentials([config], tokens);
        onChange();
      },
      onFailure: (error, isInForce) => {
        metrics.upstreamTokens.onFailed(upstream);
        onFailure(error, isInForce);
      },
    });
  }
}

function isSameAuth(one: UpstreamConfig, other: UpstreamConfig): boolean {
  const authOf = (config: UpstreamConfig) => (config.kind === 'http' ? config.auth : undefined);
  return JSON.stringify(authOf(one)) === JSON.stringify(authOf(other));
}
