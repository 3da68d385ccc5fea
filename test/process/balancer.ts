// A minimal load balancer: it sends each request to a process whose `/readyz` was last ok, over kept connections, and forwards
// the answer. It answers 502 when it cannot, and never retries.
import { once } from 'node:events';
import http from 'node:http';

interface Member {
  readonly url: URL;
  readonly adminUrl: string;
  readonly agent: http.Agent;
  isReady: boolean;
}

const POLL_MS = 50;

export class Balancer implements AsyncDisposable {
  readonly #members = new Set<Member>();
  readonly #server = http.createServer((request, response) => this.#pass(request, response));
  readonly #poll = setInterval(() => void this.#look(), POLL_MS);
  #turn = 0;
  #url = '';

  static async start(): Promise<Balancer> {
    const balancer = new Balancer();
    balancer.#server.listen(0, '127.0.0.1');
    await once(balancer.#server, 'listening');
    const address = balancer.#server.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
    balancer.#url = `http://127.0.0.1:${address.port}`;
    return balancer;
  }

  get url(): string {
    return this.#url;
  }

  /** Processes that get requests now. */
  get ready(): number {
    return [...this.#members].filter(({ isReady }) => isReady).length;
  }

  /** @returns takes it out again */
  add(url: string, adminUrl: string): () => void {
    const agent = new http.Agent({ keepAlive: true });
    const member: Member = { url: new URL(url), adminUrl, agent, isReady: false };
    this.#members.add(member);
    return () => {
      this.#members.delete(member);
      agent.destroy();
    };
  }

  async #look(): Promise<void> {
    for (const member of this.#members) {
      member.isReady = await fetch(`${member.adminUrl}/readyz`).then(
        async (response) => {
          await response.arrayBuffer();
          return response.ok;
        },
        () => false,
      );
    }
  }

  #pass(request: http.IncomingMessage, response: http.ServerResponse): void {
    const ready = [...this.#members].filter(({ isReady }) => isReady);
    const member = ready[this.#turn++ % Math.max(1, ready.length)];
    const fail = (error: Error) => {
      if (response.headersSent) response.destroy();
      else response.writeHead(502).end(`the balancer: ${error.message}`);
    };
    if (member === undefined) {
      fail(new Error('no process is ready'));
      return;
    }
    const { url, agent } = member;
    const { connection: _, ...headers } = request.headers;
    const { method, url: path } = request;
    const onward = http.request(
      { host: url.hostname, port: url.port, method, path, headers, agent },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.on('error', fail).pipe(response);
      },
    );
    onward.on('error', fail);
    request.pipe(onward);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#poll);
    for (const { agent } of this.#members) agent.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
