// Routes method and path to a handler by exact match, and answers requests without a route. Paths are compared undecoded. Only
// targets without a route are tried as those of other clients.
import { GatewayError } from '../errors.ts';
import { azureTarget } from './azure-target.ts';
import type { Cors } from './cors.ts';
import { ALLOWED_METHODS } from './edge.ts';
import type { Exchange } from './exchange/exchange.ts';
import { answerError } from './exchange/response-writer.ts';
import { isHandshake } from './exchange/upgrade.ts';
import { unknownUrl } from './unknown-url.ts';

export type Method = 'GET' | 'POST' | 'DELETE';
/** Answers the exchange; an error that it throws is passed to `onFailure`. */
export type Handler = (exchange: Exchange) => void | Promise<void>;

export class Router {
  /** Path → method → handler. */
  readonly #routes = new Map<string, Map<string, Handler>>();
  readonly #onFailure: (exchange: Exchange, error: unknown) => void;
  /** Paths that include everything below them. */
  readonly #mounts: string[] = [];
  #answerUnknown: (exchange: Exchange, error: GatewayError) => boolean = () => false;

  /** @param onFailure answers for a failed handler */
  constructor(onFailure: (exchange: Exchange, error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  add(method: Method, path: string, handler: Handler): void {
    const handlers = this.#routes.get(path) ?? new Map<string, Handler>();
    this.#routes.set(path, handlers.set(method, handler));
  }

  /** Like `add`, for the path and everything below it, with all methods. The handler parses the target. */
  mount(path: string, handler: Handler): void {
    this.#mounts.push(`${path}/`);
    for (const method of ['GET', 'POST', 'DELETE'] as const) this.add(method, path, handler);
  }

  /** @param answer answers an unknown path with a page for people, and returns whether it did */
  onUnknown(answer: (exchange: Exchange, error: GatewayError) => boolean): void {
    this.#answerUnknown = answer;
  }

  /** Passes the exchange to its handler, or rejects it. */
  handle(exchange: Exchange): void {
    const path = this.#ownPathOf(exchange.target);
    const handler = this.#routes.get(path)?.get(exchange.method);
    if (handler !== undefined) {
      exchange.route = path;
      void this.run(handler, exchange);
      return;
    }
    const azure = this.#routes.has(path) ? undefined : azureTarget(exchange.target);
    if (azure !== undefined && this.#routes.has(this.#ownPathOf(azure.target))) {
      exchange.target = azure.target;
      exchange.deployment = azure.deployment;
      this.handle(exchange);
    } else this.reject(exchange);
  }

  /** Runs a handler; an error that it throws is passed to `onFailure`. */
  async run(handler: Handler, exchange: Exchange): Promise<void> {
    try {
      await handler(exchange);
    } catch (error) {
      this.#onFailure(exchange, error);
    }
  }

  /** The methods of the target's path; undefined if the path has no route. */
  methodsOf(target: string): readonly string[] | undefined {
    const handlers = this.#routes.get(this.pathOf(target));
    return (
      handlers && [...handlers.keys()].flatMap((method) => (method === 'GET' ? [method, 'HEAD'] : [method]))
    );
  }

  /** The path to route on, of a target of this API or of Azure's. */
  pathOf(url: string): string {
    const path = this.#ownPathOf(url);
    const azure = this.#routes.has(path) ? undefined : azureTarget(url);
    return azure === undefined ? path : this.#ownPathOf(azure.target);
  }

  /** Without the query, not decoded. An encoded letter makes it another path, so that no two spellings reach one handler. */
  #ownPathOf(url: string): string {
    const query = url.indexOf('?');
    const path = query === -1 ? url : url.slice(0, query);
    if (this.#routes.has(path)) return path;
    if (path.startsWith(MODEL_PATH) && path.length > MODEL_PATH.length) return `${MODEL_PATH}:id`;
    const response = path.startsWith(RESPONSE_PATH) ? RESPONSE.exec(path) : null;
    if (response !== null) return `${RESPONSE_PATH}:id${response[1] ?? ''}`;
    if (path.includes('%')) return '/-/unknown';
    return this.#mounts.find((mount) => path.startsWith(mount))?.slice(0, -1) ?? path;
  }

  /** 405 if the path has other methods, else 404. */
  reject(exchange: Exchange): void {
    const methods = this.methodsOf(exchange.target);
    if (methods === undefined) {
      const error = this.#unknown(exchange);
      if (!this.#answerUnknown(exchange, error)) answerError(exchange, error);
    } else if (isHandshake(exchange.request)) {
      // WebSocket-first clients fall back to HTTP after a 426, and retry the handshake after other statuses.
      answerError(exchange, new GatewayError('websocket_not_offered'), { upgrade: 'HTTP/1.1' });
    } else {
      const allow = methods.join(', ');
      const rejection = new GatewayError('method_not_allowed', `This URL is for ${allow} requests.`);
      answerError(exchange, rejection, { allow });
    }
  }

  /** Rejects a request and closes its connection, because the framing of what follows cannot be trusted. */
  rejectFraming(exchange: Exchange, rejection: GatewayError): void {
    const headers: Record<string, string> = { connection: 'close' };
    if (rejection.code === 'method_not_allowed') {
      headers['allow'] = this.methodsOf(exchange.target)?.join(', ') ?? ALLOWED_METHODS;
    }
    answerError(exchange, rejection, headers);
  }

  /** Answers OPTIONS, which is of use to pages of other origins only. */
  answerOptions(exchange: Exchange, cors: Cors): void {
    const methods = this.methodsOf(exchange.target);
    const allowed = methods === undefined ? ALLOWED_METHODS : `${methods.join(', ')}, OPTIONS`;
    if (cors.enabled) cors.answerOptions(exchange, allowed);
    else this.reject(exchange);
  }

  #unknown({ target, request }: Exchange): GatewayError {
    const isKnown = (path: string) => this.#routes.has(this.pathOf(path));
    return unknownUrl(request.method ?? '', target.split('?', 1)[0] ?? '', isKnown, this.#routes.keys());
  }
}

/** Prefix of a model's path. The id may contain `/`, `:` and percent-encoding, so the router does not parse it. */
export const MODEL_PATH = '/v1/models/';

/** Prefix of a stored response's path; the id may be followed by an operation. */
export const RESPONSE_PATH = '/v1/responses/';
/** Excludes names that have routes of their own. */
const RESPONSE = /^\/v1\/responses\/(?!(?:compact|input_tokens)$)[^/]+(\/cancel|\/input_items)?$/;
