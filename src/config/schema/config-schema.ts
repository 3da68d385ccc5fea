// Every field of config.yaml: name, kind, bounds, default, description. The types, the JSON Schema for editors and the
// reference in docs/configuration.md are all this file. What no single field can know is in reference-check.ts.
import { z } from 'zod';
import { eachLimit } from '../limit-table.ts';
import { readOrigin, readPublicUrl, readRedis, readStore } from './addresses.ts';
import { billing } from './billing-schema.ts';
import type { ConfigFault } from './config-fault.ts';
import { ENDPOINTS } from './endpoint-names.ts';
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
  name,
  section,
  size,
  text,
} from './field-kinds.ts';
import { adminSection, listenSection } from './listener-schema.ts';
import { memberRules } from './member-rules.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';
import { ownTimeouts, upstream, upstreamName } from './upstream-schema.ts';

export const TIERS = ['Free', 'Lite', 'Pro'] as const;
export type Tier = (typeof TIERS)[number];

/** What can be passed on without a model. */
export const PASSTHROUGH_PATHS = [
  '/v1/files',
  '/v1/uploads',
  '/v1/batches',
  '/v1/vector_stores',
  '/v1/conversations',
] as const;

const COUNT = Number.MAX_SAFE_INTEGER;

// --- read at start -----------------------------------------------------------------------------------------------

export const staticShape = {
  listen: listenSection.prefault({}).describe('The public listener.'),
  admin: adminSection
    .prefault({})
    .describe('The listener for metrics and probes. Keep it off the public network.'),
  store: address(readStore, '^(sqlite:|postgres(ql)?://)')
    .prefault('sqlite:./data/tollgate.db')
    .describe(
      'Where keys and usage are kept: sqlite:PATH, relative to the working directory, or a postgres:// URL.',
    ),
  redis: address(readRedis, '^rediss?(-sentinel|-cluster)?://')
    .exactOptional()
    .describe(
      'Redis shared by several replicas: redis://, redis-sentinel://HOST:PORT,…/MASTER or redis-cluster://HOST:PORT,…, with ' +
        'rediss for TLS. Leave it out for a single process.',
    ),
  secret: credential()
    .exactOptional()
    .describe(
      'Secret of the keyed hash that keys are stored under. Generated beside a SQLite store when left out.',
    ),
  usage: section({
    spool: text()
      .exactOptional()
      .describe(
        'Directory where use is kept until the store has it. Several processes may share it. Default: PATH.usage beside a SQLite store, else ./data/usage.',
      ),
  })
    .exactOptional()
    .describe('How use is recorded.'),
  workers: integerOr('auto', 1, 256)
    .prefault('1')
    .describe(
      'Processes that serve; `auto` is one for each processor that this process may use. More than one needs `redis`.',
    ),
};

// --- models --------------------------------------------------------------------------------------------------------

const target = section({
  upstream: text().describe('Name of an upstream.'),
  model: text().describe('The model there. In a pattern, `*` takes what the pattern matched.'),
  weight: decimal(0, 1_000_000)
    .prefault('1')
    .describe(
      'Share of the requests among the targets of one priority. 0 takes none while another has weight.',
    ),
  priority: integer(1, 1000)
    .prefault('1')
    .describe('1 is tried first; the next number when nothing is left of the one before.'),
  timeouts: ownTimeouts
    .exactOptional()
    .describe('Deadlines of requests to this target, instead of those of the model and the upstream.'),
});

const modelPrice = section({
  input: decimal(0, 1e9).describe('Per million tokens of input.'),
  cached_input: decimal(0, 1e9).exactOptional().describe('Per million tokens of input read from a cache.'),
  output: decimal(0, 1e9).describe('Per million tokens of output.'),
});

const endpoints = z
  .array(z.enum(ENDPOINTS))
  .min(1)
  .transform((listed) => ENDPOINTS.filter((each) => listed.includes(each)));

/** A public name is in URLs and logs: no controls, nothing invisible at its ends. */
const modelName = name(
  (key) => {
    if (key === '' || key.length > 256 || key.trim() !== key || /\p{C}/u.test(key)) {
      return 'is not a model name: use 1 to 256 visible characters';
    }
    return key.indexOf('*') === key.lastIndexOf('*') ? undefined : 'has more than one `*`';
  },
  (key, empty) => !empty || !key.includes(':'),
);

const model = section({
  targets: z.array(target).min(1).describe('Where requests for this model may go.'),
  tiers: z
    .array(z.enum(TIERS))
    .prefault([...TIERS])
    .transform((listed) => TIERS.filter((tier) => listed.includes(tier)))
    .describe('Tiers whose keys may use this model.'),
  endpoints: endpoints
    .prefault([...ENDPOINTS])
    .describe(
      'Where this model is offered; elsewhere it is answered with 404. Default: everywhere, and its upstream says what it cannot do.',
    ),
  balance: z
    .enum(['weighted', 'least_requests', 'latency'])
    .prefault('weighted')
    .describe(
      'Choice within one priority: by weight alone, or of two drawn by weight the less busy, or the sooner to answer.',
    ),
  hedge: section({
    after: durationOr('p95', '10ms', MAX_DURATION).describe(
      'Time without output of a stream after which a second target is asked as well. `p95`: the 95th percentile of what the first target took of late.',
    ),
  })
    .exactOptional()
    .describe(
      'Asks a second target where the first is slow to begin a stream; the first output wins. Both may be billed.',
    ),
  timeouts: ownTimeouts
    .exactOptional()
    .describe('Deadlines of requests for this model, instead of those of its upstreams.'),
  response_model: z
    .enum(['alias', 'upstream'])
    .prefault('alias')
    .describe('The model name in the response: the one that was asked for, or the one the upstream wrote.'),
  members: memberRules
    .exactOptional()
    .describe('Members of requests for this model, beside those of its upstreams.'),
  price: modelPrice.exactOptional().describe('What the tokens of this model cost, for reports.'),
});

// --- tiers ---------------------------------------------------------------------------------------------------------

const tier = section({
  ...eachLimit(({ about }) => integer(1, COUNT).exactOptional().describe(about)),
  endpoints: endpoints
    .exactOptional()
    .describe('What keys of this tier may call, of what each model offers. Default: all of it.'),
  price: section({
    amount: integer(0, COUNT).describe('In the smallest unit of the currency: 900 is 9.00.'),
    currency: text((value) =>
      /^[a-z]{3}$/.test(value)
        ? accepted(value)
        : rejected('must be a currency code in lower case, such as usd'),
    ).describe('ISO 4217 code in lower case.'),
    interval: z.enum(['month', 'year', 'once']).describe('How often it is paid.'),
  })
    .exactOptional()
    .describe('What the tier costs, as the pricing page shows it.'),
  stripe_price: text()
    .exactOptional()
    .describe('Price in Stripe that a checkout of this tier uses. Needs `billing`.'),
});

const TIER_DESCRIPTION = 'Limits and price of this tier. A limit that is left out is no limit.';

// --- pages -----------------------------------------------------------------------------------------------------------

function readBrandName(value: string): ScalarResult<string> {
  const isName = value.trim() !== '' && [...value].length <= 60 && !/\p{C}/u.test(value);
  return isName ? accepted(value) : rejected('must be a name of 1 to 60 visible characters');
}

/** It becomes a link on the pages, so nothing but mail and the web, and no user or password. */
function readContact(value: string): ScalarResult<string> {
  const isMail = /^[\w.+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(value);
  const isPage = /^https?:\/\/[^\s"'<>\\@]+$/.test(value) && URL.canParse(value);
  return isMail || isPage
    ? accepted(value)
    : rejected('must be a mail address, or the address of a page that begins with https:// or http://');
}

// --- read again on every reload --------------------------------------------------------------------------------------

export const dynamicShape = {
  public_url: address(readPublicUrl, '^https?://')
    .exactOptional()
    .describe('Where clients and browsers reach this gateway. Default: the address of `listen`.'),
  max_body: size('1KiB', '512MiB')
    .prefault('32MiB')
    .describe('Largest request body, also once decompressed.'),
  max_answer: section({
    frame: size('64KiB', '256MiB')
      .prefault('32MiB')
      .describe('Largest event of a stream, on every endpoint. One with an image in it is some megabytes.'),
    json: size('1MiB', '512MiB')
      .prefault('64MiB')
      .describe('Largest JSON answer, also once decompressed. It is held in memory until it is whole.'),
    embeddings: size('1MiB', '16GiB')
      .prefault('256MiB')
      .describe('Largest JSON answer of embeddings, which is relayed while it comes.'),
  })
    .prefault({})
    .describe('Bounds on what upstreams answer. A larger answer is not relayed, and not asked for again.'),
  upstreams: mapping(upstreamName, upstream).describe('Who answers, by a name of your choice.'),
  models: mapping(modelName, model).describe(
    'What clients may ask for, by public name. One `*` in a name makes it a pattern; exact names go first.',
  ),
  tiers: section({
    Free: tier.exactOptional().describe(TIER_DESCRIPTION),
    Lite: tier.exactOptional().describe(TIER_DESCRIPTION),
    Pro: tier.exactOptional().describe(TIER_DESCRIPTION),
  })
    .exactOptional()
    .describe('The tiers on offer. Without this section all three are, without limits.'),
  retry: section({
    attempts: integer(1, 10)
      .prefault('3')
      .describe(
        'Upstream requests for one client request, over all targets. 1 means no retry and no fallback.',
      ),
    budget: decimal(0, 1)
      .prefault('0.2')
      .describe(
        'Further upstream requests for each first one, over the whole process; three a second are always allowed.',
      ),
    deadline: duration('1ms', MAX_DURATION)
      .prefault('10m')
      .describe(
        'For the search of a target: all upstream requests of one client request together, waits included, until the client has the first bytes of a stream, or the head of a JSON answer has come.',
      ),
    after_send: flag()
      .prefault('false')
      .describe(
        'Ask another target, once, also where the upstream may have begun, and billed, the first request.',
      ),
  })
    .prefault({})
    .describe('When a request is tried again.'),
  stream: section({
    commit_after: duration('0s', MAX_DURATION)
      .prefault('5s')
      .describe('How long a stream may hold back its first bytes while another target could still be tried.'),
    keepalive: duration('100ms', MAX_DURATION)
      .prefault('15s')
      .describe('Silence after which a stream gets a comment line.'),
    write_stall: duration('100ms', MAX_DURATION)
      .prefault('60s')
      .describe('How long an answer may wait for a client that does not read.'),
  })
    .prefault({})
    .describe('How streams are relayed.'),
  realtime: section({
    idle: duration('1s', MAX_DURATION)
      .prefault('10m')
      .describe('Silence in both directions after which a session is ended; pings count as life.'),
    lifetime: duration('1s', MAX_DURATION).prefault('60m').describe('Longest life of a session.'),
  })
    .prefault({})
    .describe('Realtime sessions over WebSockets.'),
  passthrough: section({
    upstream: text().describe('Name of the upstream that keeps these objects.'),
    paths: z
      .array(z.enum(PASSTHROUGH_PATHS))
      .min(1)
      .describe('Which of them are offered, to keys of every tier.'),
    max_upload: size('1KiB', '16GiB')
      .prefault('512MiB')
      .describe('Largest file, or part of one, that is uploaded.'),
  })
    .exactOptional()
    .describe(
      'Passes on calls that name no model, and keeps for each holder what is its own. Without it these paths do not exist.',
    ),
  billing: billing
    .exactOptional()
    .describe('Payment for Lite and Pro. Without it, keys of these tiers are issued on the command line.'),
  free_keys: section({
    per_ip_per_day: integer(0, COUNT).prefault('3').describe('Free keys that one address may take in a day.'),
  })
    .prefault({})
    .describe('Limits on taking Free keys.'),
  auth: section({
    failures_per_minute: integer(1, COUNT)
      .prefault('60')
      .describe('Bad keys from one address (IPv6: one /64) in a minute before it is refused with 429.'),
  })
    .prefault({})
    .describe('Limits on bad keys.'),
  drain: section({
    delay: duration('0s', MAX_DURATION)
      .prefault('0s')
      .describe('After SIGTERM, how long new requests are still taken, so that a balancer can notice.'),
    timeout: duration('0s', MAX_DURATION)
      .prefault('30s')
      .describe('How long running requests may then take to end.'),
  })
    .prefault({})
    .describe('How the gateway stops.'),
  overload: section({
    event_loop_delay: durationOr('off', '10ms', '60s')
      .prefault('250ms')
      .describe(
        'When the event loop is late by more than this for most of a second, part of the new requests on /v1 get 503; `off` never.',
      ),
    heap: decimalOr('off', 0.01, 1)
      .prefault('0.85')
      .describe('Share of the heap limit of V8 above which all new requests on /v1 get 503; `off` never.'),
  })
    .prefault({})
    .describe('When new requests are turned away, so that those under way can end.'),
  cors: section({
    origins: z.array(text(readOrigin)).min(1).describe('Origins that browsers may call from, or `*`.'),
  })
    .exactOptional()
    .describe('Access from web pages. Without it, browsers are given none.'),
  branding: section({
    name: text(readBrandName).prefault('Tollgate').describe('Name on the pages, at most 60 characters.'),
    color: text((value) =>
      /^#[0-9a-fA-F]{6}$/.test(value)
        ? accepted(value)
        : rejected('must be a colour such as "#1a7f5a", in quotes'),
    )
      .exactOptional()
      .describe(
        'Main colour of the pages, `"#rrggbb"` in quotes. It is made darker or lighter where text could not be read.',
      ),
    contact: text(readContact)
      .exactOptional()
      .describe(
        'Whom people ask, for a key that cannot be taken on the pages for one: a mail address, or the address of a page.',
      ),
  })
    .exactOptional()
    .describe('How the pages for browsers look.'),
};

const staticConfig = z.strictObject(staticShape);
const dynamicConfig = z.strictObject(dynamicShape);
/** The whole file. */
export const fileSchema = section({ ...staticShape, ...dynamicShape });

/** What needs a restart. */
export type StaticConfig = z.output<typeof staticConfig>;
type Dynamic = z.output<typeof dynamicConfig>;
/** What reloads. Durations in milliseconds, sizes in bytes. */
export type DynamicConfig = Omit<Dynamic, 'public_url' | 'tiers'> & {
  /** Without a slash at the end. */
  readonly public_url: string;
  readonly tiers: Partial<Record<Tier, TierConfig>>;
};
export type BillingConfig = z.output<typeof billing>;
export type UpstreamConfig = Dynamic['upstreams'][string];
export type ModelConfig = Dynamic['models'][string];
export type TierConfig = z.output<typeof tier>;

/** A configuration that was found to be good. */
export interface Config {
  /** As it was named to the gateway. */
  readonly file: string;
  /** 12 hexadecimal digits over the meaning: comments, order of fields and defaults that are written out do not change it. */
  readonly hash: string;
  readonly static: StaticConfig;
  readonly dynamic: DynamicConfig;
  readonly warnings: readonly ConfigFault[];
}
