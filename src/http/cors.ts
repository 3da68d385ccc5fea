// CORS (Fetch standard, 3.2): preflight responses and the headers of all other responses. Keys are sent in a header and never in
// cookies, so credentials are not allowed.

import { ALLOWED_METHODS } from './edge.ts';
import type { Exchange } from './exchange/exchange.ts';
import { answer } from './exchange/response-writer.ts';

/** Headers that SDKs send from browsers; `*` would not include authorization. */
const ALLOWED_HEADERS = [
  'authorization',
  'content-type',
  'accept',
  'user-agent',
  'api-key',
  'x-api-key',
  'x-requested-with',
  'x-request-id',
  'x-client-request-id',
  'idempotency-key',
  'anthropic-beta',
  'anthropic-dangerous-direct-browser-access',
  'anthropic-version',
  'openai-beta',
  'openai-organization',
  'openai-project',
  'traceparent',
  'tracestate',
  'x-stainless-arch',
  'x-stainless-async',
  'x-stainless-custom-poll-interval',
  'x-stainless-helper-method',
  'x-stainless-lang',
  'x-stainless-os',
  'x-stainless-package-version',
  'x-stainless-poll-helper',
  'x-stainless-read-timeout',
  'x-stainless-retry-count',
  'x-stainless-runtime',
  'x-stainless-runtime-version',
  'x-stainless-timeout',
];
const ALLOWED_SET = new Set(ALLOWED_HEADERS);
/** New SDK versions add such headers; the gateway ignores them. */
const SDK_HEADER = /^x-stainless-[a-z-]{1,40}$/;

/** Scripts can only read headers listed here; SDKs need them to time retries. */
const EXPOSED_HEADERS = [
  'x-request-id',
  'request-id',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
  'anthropic-ratelimit-requests-limit',
  'anthropic-ratelimit-requests-remaining',
  'anthropic-ratelimit-requests-reset',
  'anthropic-ratelimit-tokens-limit',
  'anthropic-ratelimit-tokens-remaining',
  'anthropic-ratelimit-tokens-reset',
  'openai-processing-ms',
  'openai-version',
].join(', ');

const MAX_AGE_S = 86_400;

export class Cors {
  readonly #origins: () => readonly string[];
  readonly #isForwarded: (header: string) => boolean;

  /**
   * @param origins exact origins, or `*` for all; none disables CORS. Read for every request.
   * @param isForwarded whether an upstream gets this header of a client. Default: none
   */
  constructor(origins: () => readonly string[], isForwarded: (header: string) => boolean = () => false) {
    this.#origins = origins;
    this.#isForwarded = isForwarded;
  }

  get enabled(): boolean {
    return this.#origins().length > 0;
  }

  /** Sets the CORS headers of all responses of this exchange. */
  apply({ request, headers }: Exchange): void {
    const origins = this.#origins();
    if (origins.length === 0) return;
    const all = origins.includes('*');
    // Also without an origin, so that a cache does not serve that response to a page.
    if (!all) headers['vary'] = 'origin';
    const { origin } = request.headers;
    if (origin === undefined || !(all || origins.includes(origin))) return;
    headers['access-control-allow-origin'] = all ? '*' : origin;
    headers['access-control-expose-headers'] = EXPOSED_HEADERS;
  }

  /** Answers OPTIONS. Needs no key, since browsers send none with a preflight. */
  answerOptions(exchange: Exchange, allow: string): void {
    const { headers } = exchange;
    if (headers['access-control-allow-origin'] !== undefined) {
      headers['access-control-allow-methods'] = ALLOWED_METHODS;
      headers['access-control-allow-headers'] = this.#allowed(
        exchange.request.headers['access-control-request-headers'],
      );
      headers['access-control-max-age'] = String(MAX_AGE_S);
      delete headers['access-control-expose-headers'];
    }
    answer(exchange, 204, { allow }, '');
  }

  /** The allowed ones of the requested names; all fixed names if none are requested. */
  #allowed(requested: string | string[] | undefined): string {
    if (typeof requested !== 'string') return ALLOWED_HEADERS.join(', ');
    const names = requested.split(',').map((name) => name.trim().toLowerCase());
    return names
      .filter((name) => ALLOWED_SET.has(name) || SDK_HEADER.test(name) || this.#isForwarded(name))
      .join(', ');
  }
}
