// The headers of an answer of api.openai.com over HTTP/1.1, in its order, with ids and cookies of nobody. JSON comes in chunks, too.

const COOKIE =
  '; path=/; expires=Sun, 29-Nov-26 12:30:00 GMT; domain=.api.openai.com; HttpOnly; Secure; SameSite=None';

/** @param contentType of the body */
export function answerHeaders(contentType: string): readonly (readonly [name: string, value: string])[] {
  return [
    ['Date', 'Sun, 29 Nov 2026 12:00:00 GMT'],
    ['Content-Type', contentType],
    ['Transfer-Encoding', 'chunked'],
    ['Connection', 'keep-alive'],
    ['access-control-expose-headers', 'X-Request-ID'],
    ['openai-organization', 'org-not-an-organization0'],
    ['openai-processing-ms', '481'],
    ['openai-project', 'proj_not0a0project0000000'],
    ['openai-version', '2020-10-01'],
    ['x-envoy-upstream-service-time', '498'],
    ['x-ratelimit-limit-requests', '30000'],
    ['x-ratelimit-limit-tokens', '150000000'],
    ['x-ratelimit-remaining-requests', '29999'],
    ['x-ratelimit-remaining-tokens', '149999893'],
    ['x-ratelimit-reset-requests', '2ms'],
    ['x-ratelimit-reset-tokens', '0s'],
    ['x-request-id', 'req_00000000000000000000000000000000'],
    ['x-openai-proxy-wasm', 'v0.1'],
    ['cf-cache-status', 'DYNAMIC'],
    ['Set-Cookie', `__cf_bm=${'0'.repeat(43)}-1764417600-1.0.1.1-${'0'.repeat(86)}${COOKIE}`],
    ['Strict-Transport-Security', 'max-age=31536000; includeSubDomains; preload'],
    ['X-Content-Type-Options', 'nosniff'],
    ['Set-Cookie', `_cfuvid=${'0'.repeat(43)}-1764417600000-0.0.1.1-604800000${COOKIE}`],
    ['Server', 'cloudflare'],
    ['CF-RAY', '0000000000000000-FRA'],
    ['alt-svc', 'h3=":443"; ma=86400'],
  ];
}

export const JSON_TYPE = 'application/json';
export const STREAM_TYPE = 'text/event-stream; charset=utf-8';
