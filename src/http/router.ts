// From method and path to a handler, by an exact table, and the answers where there is no handler. Paths are compared as they
// were sent, so a map is all the routing there is.
import { GatewayError } from '../errors.ts';
import type { Exchange } from './exchange/exchange.ts';
import { answerError } from './exchange/response-writer.ts';
import { isHandshake } from './exchange/upgrade.ts';
import { unknownUrl } from './unknown-url.ts';

export type Method = 'GET' | 'POST' | 'DELETE';
/** Answers the exchange; what it throws is a failure. */
export type Handler = (exchange: Exchange) => void | Promise<void>;

export class Router {
  /** Path → method → handler. */
  readonly #routes = new Map<string, Map<string, Handler>>();
  readonly #onFailure: (exchange: Exchange, error: unknown) => void;
  /** Paths that stand for everything below them. */
  readonly #mounts: string[] = [];

  /** @param onFailure answers for a handler that failed */
  constructor(onFailure: (exchange: Exchange, error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  add(method: Method, path: string, handler: Handler): void {
    const handlers = this.#routes.get(path) ?? new Map<string, Handler>();
    this.#routes.set(path, handlers.set(method, handler));
  }

  /** As `add`, for the path and everything below it, with every method. The handler reads the target itself. */
  mount(path: string, handler: Handler): void {
    this.#mounts.push(`${path}/`);
    for (const method of ['GET', 'POST', 'DELETE'] as const) this.add(method, path, handler);
  }

  /** Hands the exchange to its handler, or refuses it. */
  handle(exchange: Exchange): void {
    const path = this.pathOf(exchange.target);
    const handler = this.#routes.get(path)?.get(exchange.method);
    if (handler === undefined) this.refuse(exchange);
    else {
      exchange.route = path;
      void this.#run(handler, exchange);
    }
  }

  async #run(handler: Handler, exchange: Exchange): Promise<void> {
    try {
      await handler(exchange);
    } catch (error) {
      this.#onFailure(exchange, error);
    }
  }

  /** The methods of the path that a target names; undefined if it is none of the gateway's. */
  methodsOf(target: string): readonly string[] | undefined {
    const handlers = this.#routes.get(this.pathOf(target));
    return (
      handlers && [...handlers.keys()].flatMap((method) => (method === 'GET' ? [method, 'HEAD'] : [method]))
    );
  }

  /**
   * The path to route on: without the query, never decoded. An encoded letter elsewhere is another path, which does not
   * exist, so that no two spellings reach one handler.
   */
  pathOf(url: string): string {
    const query = url.indexOf('?');
    const path = query === -1 ? url : url.slice(0, query);
    if (this.#routes.has(path)) return path;
    if (path.startsWith(MODEL_PATH) && path.length > MODEL_PATH.length) return `${MODEL_PATH}:id`;
    const response = path.startsWith(RESPONSE_PATH) ? RESPONSE.exec(path) : null;
    if (response !== null) return `${RESPONSE_PATH}:id${response[1] ?? ''}`;
    if (path.includes('%')) return '/-/unknown';
    return this.#mounts.find((mount) => path.startsWith(mount))?.slice(0, -1) ?? path;
  }

  /** 405 where the path has other methods, 404 where it has none. */
  refuse(exchange: Exchange): void {
    const methods = this.methodsOf(exchange.target);
    if (methods === undefined) answerError(exchange, this.#unknown(exchange));
    else if (isHandshake(exchange.request)) {
      // Clients that open a WebSocket first go on by HTTP after a 426, and repeat the handshake after any other status.
      answerError(exchange, new GatewayError('websocket_not_offered'), { upgrade: 'HTTP/1.1' });
    } else {
      const allow = methods.join(', ');
      const rejection = new GatewayError('method_not_allowed', `This URL is for ${allow} requests.`);
      answerError(exchange, rejection, { allow });
    }
  }

  #unknown({ target, request }: Exchange): GatewayError {
    const isKnown = (path: string) => this.#routes.has(this.pathOf(path));
    return unknownUrl(request.method ?? '', target.split('?', 1)[0] ?? '', isKnown, this.#routes.keys());
  }
}

/** Where a model's id stands in the path: it may hold `/`, `:` and percent-encoding, so it is not the router's to read. */
export const MODEL_PATH = '/v1/models/';

/** Where a stored response's id stands in the path, alone or before what is to be done with it. */
export const RESPONSE_PATH = '/v1/responses/';
/** Names that are no ids, because a path of their own has them. */
const RESPONSE = /^\/v1\/responses\/(?!(?:compact|input_tokens)$)[^/]+(\/cancel|\/input_items)?$/;
