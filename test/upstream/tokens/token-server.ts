// A token endpoint on a real socket: it issues `issued-token-1`, `issued-token-2`, … or answers as the test says.
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

interface TokenRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly form: URLSearchParams;
}

export interface TokenAnswer {
  readonly status?: number;
  readonly body: string | object;
}

export class TokenServer implements AsyncDisposable {
  readonly requests: TokenRequest[] = [];
  /** Answers; default: a new token that lives for an hour. `undefined` hangs. */
  answer: ((request: TokenRequest) => TokenAnswer | undefined) | undefined;
  /** Seconds that the tokens of the default answer live. */
  lifeSeconds: number | string = 3600;
  readonly #server: Server;
  readonly #scheme: string;

  private constructor(server: Server, scheme: string) {
    this.#server = server;
    this.#scheme = scheme;
  }

  /** @param tls key and certificate in PEM, for https */
  static async start(tls?: { readonly key: string; readonly cert: string }): Promise<TokenServer> {
    const listener: RequestListener = async (request, response) => {
      const form = new URLSearchParams(await text(request));
      const asked = { path: request.url ?? '', headers: request.headers, form };
      own.requests.push(asked);
      const answer = own.answer === undefined ? own.#issue() : own.answer(asked);
      if (answer === undefined) return;
      const { status = 200, body } = answer;
      const type = typeof body === 'string' ? 'text/html' : 'application/json';
      response.writeHead(status, { 'content-type': type, connection: 'close' });
      response.end(typeof body === 'string' ? body : JSON.stringify(body));
    };
    const server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener);
    const own = new TokenServer(server, tls === undefined ? 'http' : 'https');
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return own;
  }

  #issue(): TokenAnswer {
    const access_token = `issued-token-${this.requests.length}`;
    return { body: { access_token, token_type: 'Bearer', expires_in: this.lifeSeconds } };
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}`;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }
}
