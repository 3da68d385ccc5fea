// The schema of config.yaml: name, kind, bounds, default and description of each field. It generates the types, the JSON Schema for
// editors and the reference in docs/configuration.md. Cross-field checks are in reference-check.ts.
import { z } from 'zod';
import type { ConfigFault } from '../config-fault.ts';
import type { ListedPrices } from '../prices.ts';
import { readOrigin, readPublicUrl, readRedis, readStore, STORE_PATTERN } from './addresses.ts';
import { billing, branding, budgetWebhook } from './billing-schema.ts';
import { PASSTHROUGH_PATHS } from './endpoint-names.ts';
import {
  address,
  credential,
  decimal,
  decimalOr,
  duration,
  durationOr,
  flag,
  integer,
  integerOr,
  MAX_DURATION,
  mapping,
  optional,
  section,
  size,
  text,
  withDefault,
} from './field-kinds.ts';
import {
  adminSection,
  type ListenersConfig,
  listenSection,
  type ServerCertificate,
} from './listener-schema.ts';
import { eachTier, model, TIERS, type Tier, tier } from './model-schema.ts';
import { type OutboundRules, proxy, tls } from './outbound-schema.ts';
import { currency, modelName, priceFiles, usage } from './price-schema.ts';
import { upstream, upstreamName } from './upstream-schema.ts';

export { TIERS, type Tier };

const COUNT = Number.MAX_SAFE_INTEGER;

// --- read at start -----------------------------------------------------------------------------------------------

export const staticShape = {
  listen: withDefault(listenSection, {}).describe('The public listener.'),
  admin: withDefault(adminSection, {}).describe(
    'The listener for metrics and probes. Keep it off the public network.',
  ),
  store: withDefault(address(readStore, STORE_PATTERN), 'sqlite:./data/tollgate.db').describe(
    'Storage of keys, usage and orders: sqlite:PATH, relative to the working directory, or a postgres:// URL.',
  ),
  redis: optional(address(readRedis, '^rediss?(-sentinel|-cluster)?://')).describe(
    'Redis shared by several replicas: redis://, redis-sentinel://HOST:PORT,…/MASTER[?sentinel_password=…] or redis-cluster://HOST:PORT,…, with ' +
      'rediss for TLS. Leave it out for a single process.',
  ),
  secret: optional(credential()).describe(
    'Secret of the keyed hash of stored keys. Default: generated next to a SQLite store.',
  ),
  usage: optional(usage).describe('Recording of usage.'),
  workers: withDefault(integerOr('auto', 1, 256), '1').describe(
    'Number of serving processes; `auto` is one per available CPU. More than one needs `redis`.',
  ),
};

// --- read again on every reload --------------------------------------------------------------------------------------

export const dynamicShape = {
  public_url: optional(address(readPublicUrl, '^https?://')).describe(
    'URL at which clients and browsers reach this gateway. Default: the address of `listen`.',
  ),
  max_body: withDefault(size('1KiB', '512MiB'), '32MiB').describe(
    'Maximum request body, before and after decompression.',
  ),
  max_answer: section({
    frame: withDefault(size('64KiB', '256MiB'), '32MiB').describe(
      'Maximum stream event, on all endpoints. An event with an image has several megabytes.',
    ),
    json: withDefault(size('1MiB', '512MiB'), '64MiB').describe(
      'Maximum JSON response, before and after decompression. It is buffered in memory until complete.',
    ),
    embeddings: withDefault(size('1MiB', '16GiB'), '256MiB').describe(
      'Maximum JSON response of embeddings, which is relayed without buffering.',
    ),
  })
    .prefault({})
    .describe('Size limits of upstream responses. A larger response is neither relayed nor retried.'),
  currency: optional(currency).describe(
    'Currency of all prices of models and of budgets: a code of ISO 4217, such as EUR.',
  ),
  prices: optional(priceFiles).describe(
    'File with a list of prices by upstream and model, or several files, for targets without a `price` of their own or their model. Relative to this file.',
  ),
  budgets: section({
    unpriced: withDefault(z.enum(['allow', 'refuse']), 'allow').describe(
      'Requests of a holder with a budget for a model without a price: `allow`, or `refuse` with 403 `model_unpriced`.',
    ),
    webhook: optional(budgetWebhook).describe(
      'Receives a message when a soft threshold or the end of a budget is reached.',
    ),
  })
    .prefault({})
    .describe('Rules for budgets.'),
  proxy: optional(proxy).describe(
    'HTTP proxy for all connections to others but stores and Redis, or `none`. Default: `HTTPS_PROXY` and `HTTP_PROXY` of the environment. `NO_PROXY` has the exceptions.',
  ),
  tls: optional(tls).describe(
    'TLS to upstreams, proxies, token endpoints, Stripe and collectors. `server_name` is for upstreams only.',
  ),
  upstreams: mapping(upstreamName, upstream).describe('The upstreams, by a name of your choice.'),
  models: mapping(modelName, model).describe(
    'The models that clients may request, by public name. A `*` in a name makes it a pattern; exact names take precedence.',
  ),
  tiers: optional(section(eachTier(tier))).describe(
    'The offered tiers. Without this section all three are offered, without limits.',
  ),
  retry: section({
    attempts: withDefault(integer(1, 10), '3').describe(
      'Maximum upstream requests per client request, over all targets. 1 means no retries and no fallback.',
    ),
    budget: withDefault(decimal(0, 1), '0.2').describe(
      'Retry budget: ratio of further upstream requests to first ones, over the whole process; three a second are always allowed.',
    ),
    deadline: withDefault(duration('1ms', MAX_DURATION), '10m').describe(
      'Deadline of all upstream requests of one client request together, waits included, until the client has the first bytes of a stream, or the head of a JSON response has arrived.',
    ),
    after_send: withDefault(flag(), 'false').describe(
      'Whether to try another target once even if the upstream may have started, and billed, the first request.',
    ),
  })
    .prefault({})
    .describe('Retries and fallback.'),
  stream: section({
    commit_after: withDefault(duration('0s', MAX_DURATION), '5s').describe(
      'How long the first bytes of a stream may be held back while another target can still be tried.',
    ),
    keepalive: withDefault(duration('100ms', MAX_DURATION), '15s').describe(
      'Silence after which the gateway sends a comment line on a stream.',
    ),
    write_stall: withDefault(duration('100ms', MAX_DURATION), '60s').describe(
      'How long a response may wait for a client that does not read (backpressure).',
    ),
  })
    .prefault({})
    .describe('Relay of streams.'),
  realtime: section({
    idle: withDefault(duration('1s', MAX_DURATION), '10m').describe(
      'Silence in both directions after which a session is closed; pings count as activity.',
    ),
    lifetime: withDefault(duration('1s', MAX_DURATION), '60m').describe('Maximum duration of a session.'),
  })
    .prefault({})
    .describe('Realtime sessions over WebSockets.'),
  passthrough: section({
    upstream: text().describe('Name of the upstream that stores these objects.'),
    paths: z.array(z.enum(PASSTHROUGH_PATHS)).min(1).describe('The offered paths, for keys of all tiers.'),
    max_upload: withDefault(size('1KiB', '16GiB'), '512MiB').describe(
      'Maximum size of an uploaded file or part.',
    ),
    batch_discount: withDefault(integer(0, 100), '50').describe(
      'Percent by which the tokens of batches are cheaper than their prices.',
    ),
    batch_poll: withDefault(duration('1s', '1h'), '1m').describe(
      'How long after its creation a batch is first looked at for its usage. The pause doubles, up to 15 times as long.',
    ),
  })
    .exactOptional()
    .describe(
      'Passes calls without a model through to one upstream, and isolates the objects of each holder. Without it these paths do not exist.',
    ),
  billing: optional(billing).describe(
    'Payment for Lite and Pro. Without it, keys of these tiers are issued on the command line.',
  ),
  free_keys: section({
    per_ip_per_day: withDefault(integer(0, COUNT), '3').describe(
      'Maximum Free keys per client address and day.',
    ),
  })
    .prefault({})
    .describe('Limits on issuing Free keys.'),
  auth: section({
    failures_per_minute: withDefault(integer(1, COUNT), '60').describe(
      'Invalid keys per client address (IPv6: per /64) and minute before its requests get a 429.',
    ),
    max_rotation_overlap: withDefault(duration('0s', MAX_DURATION), '0s').describe(
      'How long a rotated key may stay valid, with `overlap` in the request of its holder or of support. `0s`: it ends at once.',
    ),
  })
    .prefault({})
    .describe('Rules for keys and for failed authentication.'),
  drain: section({
    delay: withDefault(duration('0s', MAX_DURATION), '0s').describe(
      'How long new requests are still accepted after SIGTERM, so that a load balancer can notice.',
    ),
    timeout: withDefault(duration('0s', MAX_DURATION), '30s').describe(
      'How long requests in flight may then take to finish.',
    ),
  })
    .prefault({})
    .describe('Graceful shutdown.'),
  overload: section({
    event_loop_delay: withDefault(durationOr('off', '10ms', '60s'), '250ms').describe(
      'Event loop delay above which, when it lasts for most of a second, a share of new requests on /v1 gets a 503; `off` disables it.',
    ),
    heap: withDefault(decimalOr('off', 0.01, 1), '0.85').describe(
      'Share of the V8 heap limit above which all new requests on /v1 get a 503; `off` disables it.',
    ),
  })
    .prefault({})
    .describe('Load shedding: when new requests are rejected to protect those in flight.'),
  cors: section({
    origins: z.array(text(readOrigin)).min(1).describe('Origins whose pages may call the gateway, or `*`.'),
  })
    .exactOptional()
    .describe('CORS: access from web pages. Without it, browsers get none.'),
  branding: optional(branding).describe('Branding of the pages for browsers.'),
};

const staticConfig = z.strictObject(staticShape);
const dynamicConfig = z.strictObject(dynamicShape);
/** The whole file. */
export const fileSchema = section({ ...staticShape, ...dynamicShape });

type Static = z.output<typeof staticConfig>;
/** The part that needs a restart. */
export type StaticConfig = Omit<Static, keyof ListenersConfig> & ListenersConfig;
type Dynamic = z.output<typeof dynamicConfig>;
/** The part that reloads. Durations in milliseconds, sizes in bytes. */
export type DynamicConfig = Omit<
  Dynamic,
  'public_url' | 'tiers' | 'proxy' | 'tls' | 'upstreams' | 'prices'
> & {
  /** Without a trailing slash. */
  readonly public_url: string;
  readonly tiers: Partial<Record<Tier, TierConfig>>;
  readonly upstreams: Record<string, UpstreamConfig>;
  /** The lists of prices, for targets without a price. Undefined without a list. */
  readonly prices?: ListedPrices;
  /** For connections that belong to no upstream. Undefined: all are direct. */
  readonly outbound?: OutboundRules;
  /** With `listen.tls`, and with `admin.tls`. */
  readonly certificate?: ServerCertificate;
  readonly admin_certificate?: ServerCertificate;
};
type ParsedUpstream = Dynamic['upstreams'][string];
type HttpUpstream = Extract<ParsedUpstream, { kind: 'http' }>;
export type BillingConfig = z.output<typeof billing>;
/** `tls` is complete: with the fields of the global one. */
export type UpstreamConfig =
  | Exclude<ParsedUpstream, { kind: 'http' }>
  | (Omit<HttpUpstream, 'proxy'> & { readonly outbound?: OutboundRules });
export type UpstreamAuth = NonNullable<HttpUpstream['auth']>;
export type ModelConfig = Dynamic['models'][string];
export type TierConfig = z.output<typeof tier>;

/** A valid configuration. */
export interface Config {
  /** The file name as given to the gateway. */
  readonly file: string;
  /** 12 hexadecimal digits over the meaning: comments, field order and explicit defaults do not change it. */
  readonly hash: string;
  readonly static: StaticConfig;
  readonly dynamic: DynamicConfig;
  /** The files of `${file:PATH}`, as written. */
  readonly files: readonly string[];
  readonly warnings: readonly ConfigFault[];
}
