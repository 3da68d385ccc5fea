// The fields of an upstream. A `base_url` or a `builtin` in the file selects one of two kinds in the code.
import { z } from 'zod';
import { readBaseUrl } from './addresses.ts';
import { upstreamAuth } from './auth-schema.ts';
import { bodyRules, memberRules, oneBody } from './body-rules.ts';
import { PROTOCOLS } from './endpoint-names.ts';
import {
  address,
  credential,
  duration,
  fieldMetadata,
  flag,
  hiddenText,
  integer,
  MAX_DURATION,
  mapping,
  name,
  optional,
  section,
  text,
  withDefault,
} from './field-kinds.ts';
import { proxy, tls } from './outbound-schema.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

const wait = () => duration('1ms', MAX_DURATION);

/** Deadlines that a model and a target may set as well. The most specific value wins. */
const answerTimeouts = {
  headers: optional(wait()).describe(
    'From the request sent to the response headers. JSON responses usually have headers only when complete. Default: bounded by `total` and `retry.deadline`.',
  ),
  first_token: optional(wait()).describe(
    'From the response headers of a stream to its first event with output; without `headers`, also from the request sent to the headers of a stream. Default: none.',
  ),
};

const timeouts = section({
  connect: withDefault(wait(), '3s').describe('Connection setup, including DNS, proxy and TLS.'),
  ...answerTimeouts,
  idle: withDefault(wait(), '10m').describe(
    'Between two reads of a response, of any bytes; also while the upstream does not accept more of an upload.',
  ),
  total: withDefault(wait(), '1h').describe('One upstream request as a whole.'),
});

/** Timeouts of a model or a target. */
export const ownTimeouts = section({
  ...answerTimeouts,
  idle: optional(wait()).describe('Between two reads of a response, of any bytes.'),
  total: optional(wait()).describe('One upstream request as a whole.'),
});

/** RFC 9110, 5.6.2. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Framing and hop-by-hop headers, which the gateway sets itself (RFC 9110, 7.6.1). */
const OWN_HEADERS = new Set(
  'connection content-length expect host keep-alive te trailer transfer-encoding upgrade'.split(' '),
);

const headerName = name(
  (key) => {
    if (!TOKEN.test(key)) return 'is not a valid header name';
    return OWN_HEADERS.has(key.toLowerCase()) ? 'is a header that the gateway sets itself' : undefined;
  },
  (key, empty) => !empty && TOKEN.test(key),
);

/** Further headers that clients must not set at an upstream: the gateway sets them, or they describe the client's connection. */
const OWN_OF_REQUESTS =
  /^(?:accept|accept-encoding|user-agent|x-request-id|http2-settings|(?:content|proxy|sec)-.*)$/;
/** Names of credentials, as vendors and proxies have them. */
const CREDENTIALS =
  /^(?:.*-)?(?:(?:api|access|auth|client|master|private|secret|shared|subscription|virtual)-?keys?|(?:auth|access|security|session|id)?-?tokens?|auth|authorization|authentication|bearer|cookie2?|credentials?|jwt|pass|passwd|password|secrets?|signature)$/;

/** Why a client's header is not forwarded; undefined where it may be. @param header in lower case */
export function forwardFault(header: string): string | undefined {
  if (OWN_HEADERS.has(header) || OWN_OF_REQUESTS.test(header))
    return 'is a header that the gateway sets itself';
  return CREDENTIALS.test(header)
    ? 'may hold a credential of the client, which is never forwarded; set it in `headers` of the upstream'
    : undefined;
}

function readForwarded(value: string): ScalarResult<string> {
  const header = value.toLowerCase();
  if (!/^[a-z0-9-]{1,64}\*?$/.test(header))
    return rejected(
      'must be a header name such as x-vendor-user, or its beginning and a `*`, such as x-vendor-*',
    );
  if (!header.endsWith('*')) {
    const fault = forwardFault(header);
    return fault === undefined ? accepted(header) : rejected(fault);
  }
  return /^(?!x-\*)[a-z0-9][a-z0-9-]*-\*$/.test(header)
    ? accepted(header)
    : rejected('is too wide: before the `*` it needs a word that ends with a hyphen, such as x-vendor-*');
}

/** `forward_headers` of an upstream or a target. */
export const forwardHeaders = z.array(text(readForwarded));

const parameterName = name(
  (key) => (/\s/.test(key) ? 'is not a parameter name' : undefined),
  (key, empty) => !empty && /^[A-Za-z0-9._-]{1,40}$/.test(key),
);

export const upstreamName = name(
  (key) =>
    /^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$/.test(key)
      ? undefined
      : 'is not a name: use up to 64 letters, digits and `._/-`, beginning with a letter or digit',
  (key, empty) => !empty || !key.includes(':'),
);

export const upstream = section({
  base_url: optional(address(readBaseUrl, '^https?://')).describe(
    'Root of the API; `chat/completions`, `embeddings` and so on (`messages`, with `protocol: anthropic`) are appended to its path; a query is kept.',
  ),
  builtin: optional(z.enum(['echo'])).describe(
    'A built-in test model inside the process, instead of a `base_url`.',
  ),
  enabled: optional(flag()).describe(
    'Default `true`. `false` takes the upstream out of service: no requests, health checks or token fetches. `tollgate upstreams drain` does so without a change of this file.',
  ),
  protocol: optional(z.enum(PROTOCOLS)).describe(
    'The API that it speaks. Default: `openai`. Models of an upstream with `anthropic` are offered on `/v1/messages` and on no other endpoint.',
  ),
  api_key: optional(credential()).describe(
    'Sent as `Authorization: Bearer …`; with `protocol: anthropic` as `x-api-key`.',
  ),
  auth: optional(upstreamAuth).describe(
    'Access tokens that the gateway fetches and renews, instead of an `api_key`. Exactly one kind.',
  ),
  headers: withDefault(mapping(headerName, credential()), {}).describe(
    'Headers set on every request to this upstream, as given. Their values are treated as credentials.',
  ),
  forward_headers: optional(forwardHeaders).describe(
    'Headers of clients that are forwarded to this upstream, by name; a `*` at the end stands for any rest. Never credentials.',
  ),
  query: withDefault(mapping(parameterName, hiddenText()), {}).describe(
    'Query parameters set on every request to this upstream.',
  ),
  proxy: optional(proxy).describe(
    'HTTP proxy for everything that goes to this upstream, or `none`. It wins over `NO_PROXY`. Default: the global `proxy`.',
  ),
  tls: optional(tls).describe('TLS to this upstream. A field that is left out is that of the global `tls`.'),
  timeouts: withDefault(timeouts, {}).describe('Deadlines of a request to this upstream.'),
  max_concurrency: withDefault(integer(1, 100_000), '200').describe(
    'Bulkhead: maximum requests in flight to this upstream, per process.',
  ),
  stream_usage: withDefault(z.enum(['inject', 'off']), 'inject').describe(
    'Whether to request usage in streams when the client did not. Use `off` for upstreams that reject it.',
  ),
  shared_objects: z
    .array(
      text((value) =>
        /^[\w.:-]{0,200}\*?$/.test(value) && value !== ''
          ? accepted(value)
          : rejected('must be an id such as pmpt_123, or its beginning and a `*`'),
      ),
    )
    .exactOptional()
    .describe(
      'Ids of objects at this upstream that all holders may use: prompts, vector stores, files, containers. An id that ends with `*` is a prefix.',
    ),
  websocket: optional(flag()).describe(
    'Default `false`. `true` for an API whose `/responses` takes WebSockets: `GET /v1/responses` is then offered for its models.',
  ),
  send_model: optional(flag()).describe(
    'Default `true`. `false` removes `model` from the body, for an API whose URL names the model (an Azure deployment).',
  ),
  body: optional(bodyRules).describe('Changes of request bodies for this upstream.'),
  members: optional(memberRules).describe('Deprecated: use `body`.'),
  health: section({
    path: text((value) =>
      /^\/[!-~]*$/.test(value)
        ? accepted(value)
        : rejected('must be a path that begins with a slash, such as /health'),
    ).describe('Path from the root of the host. Any 2xx is healthy.'),
    interval: withDefault(duration('100ms', MAX_DURATION), '10s').describe(
      'Interval between two checks, with 20% jitter.',
    ),
  })
    .exactOptional()
    .describe(
      'Health checks, sent with the credentials of this upstream. After two consecutive failures its targets rank behind all healthy ones.',
    ),
})
  .register(fieldMetadata, { extra: { oneOf: [{ required: ['base_url'] }, { required: ['builtin'] }] } })
  .transform(({ base_url, builtin, protocol, members, body, ...rest }) => {
    const spoken = protocol === 'anthropic' ? { protocol } : {};
    const all = { ...rest, ...spoken, ...oneBody(members, body) };
    if (base_url !== undefined) return { kind: 'http' as const, base_url, ...all };
    const { api_key, auth, headers, forward_headers, query, proxy: _proxy, tls: _tls, ...common } = all;
    return { kind: 'builtin' as const, builtin: builtin ?? ('echo' as const), ...common };
  });

/** The header with the `api_key`, bare for Anthropic's API, or with a token that is fetched. */
export function credentialHeader({ protocol, auth }: { protocol?: string; auth?: unknown }) {
  return protocol === 'anthropic' && auth === undefined ? 'x-api-key' : 'authorization';
}
