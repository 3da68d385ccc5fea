// The fields of one upstream. In the file it has a `base_url` or a `builtin`; in the code these are two kinds.
import { z } from 'zod';
import { readBaseUrl } from './addresses.ts';
import {
  address,
  credential,
  duration,
  flag,
  hiddenText,
  integer,
  MAX_DURATION,
  mapping,
  name,
  natures,
  section,
  text,
} from './field-kinds.ts';
import { memberRules } from './member-rules.ts';
import { accepted, rejected } from './units.ts';

const wait = () => duration('1ms', MAX_DURATION);

/** Deadlines that a model and a target may set as well. The most specific value wins. */
const answerTimeouts = {
  headers: wait()
    .exactOptional()
    .describe(
      'From the request sent to the response headers; a JSON response has them when all of it is there. Default: bounded by `total` and `retry.deadline`.',
    ),
  first_token: wait()
    .exactOptional()
    .describe(
      'From the response headers of a stream to its first frame with output; without `headers`, also from the request sent to the headers of a stream. Default: no deadline of its own.',
    ),
};

const timeouts = section({
  connect: wait().prefault('3s').describe('For the connection, with name resolution and TLS.'),
  ...answerTimeouts,
  idle: wait()
    .prefault('10m')
    .describe('Between two reads of a response, of any bytes; and while it takes no more of an upload.'),
  total: wait().prefault('1h').describe('For the whole of one upstream request.'),
});

/** Those of a model or a target. */
export const ownTimeouts = section({
  ...answerTimeouts,
  idle: wait().exactOptional().describe('Between two reads of a response, of any bytes.'),
});

/** RFC 9110, 5.6.2. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Headers of the framing and of the connection, which are the gateway's own (RFC 9110, 7.6.1). */
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
  base_url: address(readBaseUrl, '^https?://')
    .exactOptional()
    .describe(
      'Root of an OpenAI-compatible API; `chat/completions`, `embeddings` and so on are appended to its path, a query is kept.',
    ),
  builtin: z
    .enum(['echo'])
    .exactOptional()
    .describe('A small model inside the process instead of a `base_url`, for trying and testing.'),
  api_key: credential().exactOptional().describe('Sent as `Authorization: Bearer …`.'),
  headers: mapping(headerName, credential())
    .prefault({})
    .describe(
      'Headers set on every request to this upstream, as given. Their values are treated as credentials.',
    ),
  query: mapping(parameterName, hiddenText())
    .prefault({})
    .describe('Query parameters set on every request to this upstream.'),
  timeouts: timeouts.prefault({}).describe('Deadlines of a request to this upstream.'),
  max_concurrency: integer(1, 100_000)
    .prefault('200')
    .describe('Requests that may be under way to this upstream at once, from this process.'),
  stream_usage: z
    .enum(['inject', 'off'])
    .prefault('inject')
    .describe(
      'May the gateway ask for usage in streams whose client did not? `off` for upstreams that refuse it.',
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
      'Ids of objects at this upstream that requests of every holder may refer to, though none of them made them: prompts, vector stores, files, containers. One that ends with `*` stands for all that begin so.',
    ),
  send_model: flag()
    .exactOptional()
    .describe(
      'Default `true`. `false` takes `model` out of the body, for an API whose URL names the model (an Azure deployment).',
    ),
  members: memberRules
    .exactOptional()
    .describe('Members of requests that this upstream must not get, for one that is a router itself.'),
  health: section({
    path: text((value) =>
      /^\/[!-~]*$/.test(value)
        ? accepted(value)
        : rejected('must be a path that begins with a slash, such as /health'),
    ).describe('Path, from the root of the host. Any 2xx is healthy.'),
    interval: duration('100ms', MAX_DURATION)
      .prefault('10s')
      .describe('Between two checks, give or take a fifth.'),
  })
    .exactOptional()
    .describe(
      'Asked with the credentials of this upstream. Two failures in a row rank its targets behind all healthy ones.',
    ),
})
  .register(natures, { extra: { oneOf: [{ required: ['base_url'] }, { required: ['builtin'] }] } })
  .transform(({ base_url, builtin, api_key, headers, query, ...common }) =>
    base_url === undefined
      ? { kind: 'builtin' as const, builtin: builtin ?? ('echo' as const), ...common }
      : {
          kind: 'http' as const,
          base_url,
          ...(api_key === undefined ? {} : { api_key }),
          headers,
          query,
          ...common,
        },
  );
