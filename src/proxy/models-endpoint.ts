// The `/v1/models` endpoints: the models that a key may use. route-table.ts resolves the names.
import type { Authenticator } from '../auth/authenticator.ts';
import { identify } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import { MODEL_PATH } from '../http/server.ts';
import type { Limiter } from '../limits/limiter.ts';
import type { ScopeResolver } from './reservation/scopes-of.ts';
import { setLimitHeaders } from './reservation/usage-reservation.ts';
import type { ConfigSnapshot } from './routes/config-snapshot.ts';

/** `created` must be an integer, and vendors' dates are unknown: a constant, equal on all replicas. 2024-01-01 UTC. */
const CREATED = 1_704_067_200;

/** OpenAI's model object. */
interface ModelObject {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
}

export class ModelsEndpoint {
  readonly #authenticator: Authenticator;
  readonly #snapshot: () => ConfigSnapshot;
  readonly #limiter: Pick<Limiter, 'peek'>;
  readonly #scopes: Pick<ScopeResolver, 'of'>;

  /** @param limits for the headers only: these calls are free */
  constructor(
    authenticator: Authenticator,
    snapshot: () => ConfigSnapshot,
    limits: { readonly limiter: Pick<Limiter, 'peek'>; readonly scopes: Pick<ScopeResolver, 'of'> },
  ) {
    this.#authenticator = authenticator;
    this.#snapshot = snapshot;
    this.#limiter = limits.limiter;
    this.#scopes = limits.scopes;
  }

  /** `GET /v1/models` */
  async list(exchange: Exchange): Promise<void> {
    const { routes, config } = this.#snapshot();
    const principal = await this.#identify(exchange, config);
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
    const { routes, config } = this.#snapshot();
    const principal = await this.#identify(exchange, config);
    const raw = exchange.target.slice(MODEL_PATH.length).split('?', 1)[0] ?? '';
    const decoded = decodeOnce(raw);
    // An id that contains a `%` is also found in its literal spelling.
    const names = routes.names(principal);
    const id = names.includes(decoded) || !names.includes(raw) ? decoded : raw;
    answerJson(exchange, 200, modelObject(routes.resolve(id, principal).model));
  }

  async #identify(exchange: Exchange, config: DynamicConfig): Promise<Principal> {
    const principal = await identify(this.#authenticator, exchange);
    await setLimitHeaders(this.#limiter, exchange, await this.#scopes.of(principal, config));
    return principal;
  }
}

function modelObject(id: string): ModelObject {
  return { id, object: 'model', created: CREATED, owned_by: 'tollgate' };
}

/** Percent-decoded once; unchanged where it is not an encoding. */
function decodeOnce(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
