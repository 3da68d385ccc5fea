// Which web pages may call the gateway from a browser (Fetch standard, 3.2): the answer to preflights, and the headers on
// all other answers. Keys are sent in a header and never as cookies, so no credentials are allowed.

import { ALLOWED_METHODS } from './edge.ts';
import type { Exchange } from './exchange/exchange.ts';
import { answer } from './exchange/response-writer.ts';

/** What SDKs send from browsers; `*` would not cover authorization. */
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
/** New versions of the SDKs bring new ones of these; they mean nothing to the gateway. */
const SDK_HEADER = /^x-stainless-[a-z-]{1,40}$/;

/** Invisible to a page unless named, and then an SDK waits blindly. */
const EXPOSED_HEADERS = [
  'x-request-id',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
  'openai-processing-ms',
  'openai-version',
].join(', ');

const MAX_AGE_S = 86_400;

export class Cors {
  readonly #origins: () => readonly string[];

  /** @param origins exact origins, or `*` for all; none means that browsers are given no access. Asked for every request. */
  constructor(origins: () => readonly string[]) {
    this.#origins = origins;
  }

  get enabled(): boolean {
    return this.#origins().length > 0;
  }

  /** Sets the headers that every answer of this exchange carries for the page that asks. */
  apply({ request, headers }: Exchange): void {
    const origins = this.#origins();
    if (origins.length === 0) return;
    const all = origins.includes('*');
    // Also on answers to nobody's page: a cache must not give them to one.
    if (!all) headers['vary'] = 'origin';
    const { origin } = request.headers;
    if (origin === undefined || !(all || origins.includes(origin))) return;
    headers['access-control-allow-origin'] = all ? '*' : origin;
    headers['access-control-expose-headers'] = EXPOSED_HEADERS;
  }

  /** Answers OPTIONS: what may be asked, to whom it may be told. Needs no key, since a browser sends none here. */
  answerOptions(exchange: Exchange, allow: string): void {
    const { headers } = exchange;
    if (headers['access-control-allow-origin'] !== undefined) {
      headers['access-control-allow-methods'] = ALLOWED_METHODS;
      headers['access-control-allow-headers'] = allowed(
        exchange.request.headers['access-control-request-headers'],
      );
      headers['access-control-max-age'] = String(MAX_AGE_S);
      delete headers['access-control-expose-headers'];
    }
    answer(exchange, 204, { allow }, '');
  }
}

/** Those of the names asked for that may be sent, or all that may be. */
function allowed(asked: string | string[] | undefined): string {
  if (typeof asked !== 'string') return ALLOWED_HEADERS.join(', ');
  const names = asked.split(',').map((name) => name.trim().toLowerCase());
  return names.filter((name) => ALLOWED_SET.has(name) || SDK_HEADER.test(name)).join(', ');
}
