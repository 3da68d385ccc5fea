// From method and path to a handler, by an exact table: Fastify's router, and the answers where there is no handler.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type FastifyInstance, fastify } from 'fastify';
import { GatewayError, wrapError } from '../errors.ts';
import { answerError } from './answer.ts';
import { Exchange } from './exchange.ts';

export type Method = 'GET' | 'POST' | 'DELETE';
/** Answers the exchange; what it throws is a failure. */
export type Handler = (exchange: Exchange) => void | Promise<void>;

export class Router {
  readonly #app: FastifyInstance;
  /** Path → methods, to tell a wrong method from a wrong path. */
  readonly #methods = new Map<string, Method[]>();
  readonly #onFailure: (exchange: Exchange, error: unknown) => void;
  /** Paths that stand for everything below them. */
  readonly #mounts: string[] = [];
  #route: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;

  /**
   * @param server only closed with it; nothing of it is listened to here
   * @param onFailure answers for a handler that failed
   */
  constructor(server: Server, onFailure: (exchange: Exchange, error: unknown) => void) {
    this.#onFailure = onFailure;
    const app = fastify({
      serverFactory: (route) => {
        this.#route = route;
        return server;
      },
      rewriteUrl: (request) => this.pathOf(request.url ?? '/'),
      // The server has its own.
      clientErrorHandler: () => undefined,
      frameworkErrors: (error, request) =>
        answerError(Exchange.of(request.raw), wrapError(error, 'invalid_http')),
      return503OnClosing: false,
      exposeHeadRoutes: false,
      logger: false,
    });
    // Bodies are read by the handlers, as bytes, and so is what they are labelled as.
    app.addHttpMethod('POST', { hasBody: false, overrideExisting: true });
    app.addHttpMethod('DELETE', { hasBody: false, overrideExisting: true });
    app.setErrorHandler((error, request, reply) => {
      reply.hijack();
      onFailure(Exchange.of(request.raw), error);
    });
    app.setNotFoundHandler((request, reply) => {
      reply.hijack();
      this.refuse(Exchange.of(request.raw));
    });
    this.#app = app;
  }

  add(method: Method, path: string, handler: Handler): void {
    const methods = this.#methods.get(path);
    if (methods === undefined) this.#methods.set(path, [method]);
    else methods.push(method);
    this.#app.route({
      method,
      url: path,
      handler: async (request, reply) => {
        reply.hijack();
        const exchange = Exchange.of(request.raw);
        exchange.access.route = path;
        try {
          await handler(exchange);
        } catch (error) {
          this.#onFailure(exchange, error);
        }
      },
    });
  }

  /** As `add`, for the path and everything below it, with every method. The handler reads the target itself. */
  mount(path: string, handler: Handler): void {
    this.#mounts.push(path);
    for (const method of ['GET', 'POST', 'DELETE'] as const) this.add(method, path, handler);
  }

  async ready(): Promise<void> {
    await this.#app.ready();
  }

  async close(): Promise<void> {
    await this.#app.close();
  }

  handle(request: IncomingMessage, response: ServerResponse): void {
    this.#route?.(request, response);
  }

  /** The methods of the path that a target names; undefined if it is none of the gateway's. */
  methodsOf(target: string): readonly Method[] | undefined {
    return this.#methods.get(this.pathOf(target));
  }

  /**
   * The path to route on: without the query, never decoded. An encoded letter elsewhere is another path, which does not
   * exist, so that no two spellings reach one handler.
   */
  pathOf(url: string): string {
    const query = url.indexOf('?');
    const path = query === -1 ? url : url.slice(0, query);
    if (path.startsWith(MODEL_PATH) && path.length > MODEL_PATH.length) return `${MODEL_PATH}:id`;
    const response = RESPONSE.exec(path);
    if (response !== null) return `${RESPONSE_PATH}:id${response[1] ?? ''}`;
    if (path.includes('%')) return '/-/unknown';
    return this.#mounts.find((mount) => path.startsWith(`${mount}/`)) ?? path;
  }

  /** 405 where the path has other methods, 404 where it has none. */
  refuse(exchange: Exchange): void {
    const methods = this.methodsOf(exchange.target);
    if (methods === undefined) answerError(exchange, new GatewayError('unknown_url'));
    else {
      const allow = methods.join(', ');
      const refusal = new GatewayError('method_not_allowed', `This URL is for ${allow} requests.`);
      answerError(exchange, refusal, { allow });
    }
  }
}

/** Where a model's id stands in the path: it may hold `/`, `:` and percent-encoding, so it is not the router's to read. */
export const MODEL_PATH = '/v1/models/';

/** Where a stored response's id stands in the path, alone or before what is to be done with it. */
export const RESPONSE_PATH = '/v1/responses/';
/** Names that are no ids, because a path of their own has them. */
const RESPONSE = /^\/v1\/responses\/(?!(?:compact|input_tokens)$)[^/]+(\/cancel|\/input_items)?$/;
