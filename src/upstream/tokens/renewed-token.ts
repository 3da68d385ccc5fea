// The current access token of one upstream: renewed ahead of its expiry by one flight, kept until it expires when that fails.
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { singleFlight } from '../../single-flight.ts';
import { type AccessToken, TokenError, type TokenSource } from './token-source.ts';

/** Deadline of one fetch, in milliseconds. */
const FETCH_MS = 10_000;
/** A token is renewed after this share of its life, or this long before its end, whichever is earlier, but not before its half. */
const RENEW_SHARE = 0.8;
const RENEW_MARGIN_MS = 60_000;
/** Spreads the renewals of replicas: the time to a renewal is shortened by up to this share. */
const JITTER = 0.1;
/** A token counts as expired this long before it is: requests take time to arrive, and clocks differ. At most a tenth of its life. */
const SKEW_MS = 5_000;
/** Wait after a failed fetch, doubled each time. */
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 60_000;
/** Renewals that responses of the upstream force, at most one in this time: a wrong permission must not become a storm. */
const FORCED_INTERVAL_MS = 30_000;

interface RenewedTokenOptions {
  readonly source: TokenSource;
  /** A valid token to begin with. */
  readonly present?: AccessToken;
  /** A new token is in force. Must not throw. */
  readonly onToken: (token: AccessToken) => void;
  /** A fetch failed. @param isInForce whether a valid token remains */
  readonly onFailure: (error: Error, isInForce: boolean) => void;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: () => number;
}

export class RenewedToken {
  readonly #options: RenewedTokenOptions;
  #token: AccessToken | undefined;
  /** Until then requests use the token. */
  #validUntil = 0;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  /** The failure that requests without a token get until the next fetch. */
  #lastError: Error | undefined;
  #retryAt = 0;
  #forcedAt = Number.NEGATIVE_INFINITY;
  #isStopped = false;

  constructor(options: RenewedTokenOptions) {
    this.#options = options;
    if (options.present !== undefined) this.#accept(options.present);
  }

  /** The token in force, if one is valid. */
  get current(): AccessToken | undefined {
    return Date.now() < this.#validUntil ? this.#token : undefined;
  }

  /** Fetches the first token unless there is one, and renews it from then on. Idempotent. */
  start(): void {
    this.#isStopped = false;
    if (this.#timer !== undefined) return;
    if (this.#token === undefined) this.renew();
    else this.#schedule(this.#renewalIn(this.#token.expiresAt - Date.now()));
  }

  /** Fetches a token now; the present one stays in force meanwhile. */
  renew(): void {
    void this.#renew().catch(() => undefined);
  }

  /** Ends the renewals. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Waits for a valid token; returns at once if there is one.
   * @throws (rejects with) GatewayError upstream_auth_error when none can be fetched; at once while a failed fetch backs off
   */
  ready(): Promise<void> | undefined {
    if (Date.now() < this.#validUntil) return undefined;
    if (this.#renew.running() === undefined && this.#lastError !== undefined && Date.now() < this.#retryAt) {
      return Promise.reject(unavailable(this.#lastError));
    }
    return this.#renew().catch((error: unknown) => {
      if (this.current === undefined) throw unavailable(error);
    });
  }

  /**
   * The upstream rejected this token: fetches another one, at most once in 30 s.
   * @returns whether a different token is in force afterwards
   */
  async replace(rejected: string): Promise<boolean> {
    if (this.#token !== undefined && this.#token.value !== rejected) return true;
    if (this.#renew.running() === undefined) {
      if (Date.now() - this.#forcedAt < FORCED_INTERVAL_MS) return false;
      this.#forcedAt = Date.now();
    }
    await this.#renew().catch(() => undefined);
    return this.#token !== undefined && this.#token.value !== rejected;
  }

  readonly #renew = singleFlight(() => this.#fetch());

  async #fetch(): Promise<void> {
    const { source, onToken, onFailure } = this.#options;
    try {
      const token = await fetchInTime(source);
      this.#accept(token);
      this.#failures = 0;
      this.#lastError = undefined;
      this.#schedule(this.#renewalIn(token.expiresAt - Date.now()));
      onToken(token);
    } catch (error) {
      const wrapped = error instanceof Error ? error : new Error(String(error));
      const wait = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#failures);
      this.#failures += 1;
      this.#lastError = wrapped;
      this.#retryAt = Date.now() + wait;
      this.#schedule(wait);
      onFailure(wrapped, this.current !== undefined);
      throw wrapped;
    }
  }

  #accept(token: AccessToken): void {
    this.#token = token;
    this.#validUntil = token.expiresAt - Math.min(SKEW_MS, (token.expiresAt - Date.now()) / 10);
  }

  #renewalIn(life: number): number {
    const { random = Math.random } = this.#options;
    const due = Math.max(life / 2, Math.min(life * RENEW_SHARE, life - RENEW_MARGIN_MS));
    return due * (1 - JITTER * random());
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => this.renew(), ms);
    this.#timer.unref();
  }
}

/** @throws TokenError after 10 s, even if the source ignores the signal */
export async function fetchInTime(source: TokenSource): Promise<AccessToken> {
  const abort = new AbortController();
  try {
    return await withDeadline(
      source(abort.signal),
      FETCH_MS,
      () => new TokenError(`no token within ${FETCH_MS / 1000} s`),
    );
  } finally {
    abort.abort();
  }
}

function unavailable(cause: unknown): GatewayError {
  return new GatewayError(
    'upstream_auth_error',
    'The gateway has no valid credential for the upstream. The operator has to act.',
    { cause },
  );
}
