// The `/v1/models` endpoints: the models that a key may use. route-table.ts resolves the names.
import { identify } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import { MODEL_PATH } from '../http/router.ts';
import type { PipelineOptions } from './pipeline.ts';
import { type ReservationOptions, setLimitHeaders } from './reservation/usage-reservation.ts';

/** `created` must be an integer, and vendors' dates are unknown: a constant, equal on all replicas. 2024-01-01 UTC. */
const CREATED = 1_704_067_200;

interface ModelsEndpointOptions extends Pick<PipelineOptions, 'authenticator' | 'snapshot'> {
  /** For the headers only: these calls are free. */
  readonly metering: Pick<ReservationOptions, 'limiter' | 'scopes'>;
}

export class ModelsEndpoint {
  readonly #options: ModelsEndpointOptions;

  constructor(options: ModelsEndpointOptions) {
    this.#options = options;
  }

  /** `GET /v1/models` */
  async list(exchange: Exchange): Promise<void> {
    const { routes, config } = this.#options.snapshot();
    const principal = await this.#identify(exchange, config);
    if (exchange.isAnthropic) {
      // Its clients can only use the models of this endpoint.
      const ids = routes.names(principal, 'messages');
      answerJson(exchange, 200, pageOf(ids, new URLSearchParams(exchange.target.split('?', 2)[1])));
      return;
    }
    const patterns = routes.patterns(principal);
    answerJson(exchange, 200, {
      object: 'list',
      data: routes.names(principal).map(modelObject),
      // A pattern is no valid model id, so it is not in `data`.
      ...(patterns.length === 0 ? {} : { patterns }),
    });
  }

  /** `GET /v1/models/{id}`, with the id literal or percent-encoded. */
  async retrieve(exchange: Exchange): Promise<void> {
    const { routes, config } = this.#options.snapshot();
    const principal = await this.#identify(exchange, config);
    const raw = exchange.target.slice(MODEL_PATH.length).split('?', 1)[0] ?? '';
    const decoded = decodeOnce(raw);
    // An id that contains a `%` is also found in its literal spelling.
    const names = routes.names(principal);
    const id = names.includes(decoded) || !names.includes(raw) ? decoded : raw;
    const { model } = routes.resolve(id, principal);
    answerJson(exchange, 200, exchange.isAnthropic ? anthropicModel(model) : modelObject(model));
  }

  async #identify(exchange: Exchange, config: DynamicConfig): Promise<Principal> {
    const { authenticator, metering } = this.#options;
    const principal = await identify(authenticator, exchange);
    await setLimitHeaders(metering.limiter, exchange, await metering.scopes.of(principal, config));
    return principal;
  }
}

/** OpenAI's model object. */
function modelObject(id: string) {
  return { id, object: 'model', created: CREATED, owned_by: 'tollgate' };
}

/** Anthropic's. */
function anthropicModel(id: string) {
  return { type: 'model', id, display_name: id, created_at: new Date(CREATED * 1000).toISOString() };
}

/** One page of Anthropic's list: of at most `limit` models, behind `after_id` or before `before_id`. */
function pageOf(ids: readonly string[], query: URLSearchParams) {
  const after = ids.indexOf(query.get('after_id') ?? '') + 1;
  const before = ids.indexOf(query.get('before_id') ?? '');
  const rest = before === -1 ? ids.slice(after) : ids.slice(after, before);
  const limit = Math.max(1, Math.trunc(Number(query.get('limit') ?? rest.length)) || 1);
  const page = before === -1 ? rest.slice(0, limit) : rest.slice(-limit);
  return {
    data: page.map(anthropicModel),
    has_more: page.length < rest.length,
    first_id: page[0] ?? null,
    last_id: page.at(-1) ?? null,
  };
}

/** Percent-decoded once; unchanged where it is not an encoding. */
function decodeOnce(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
