// The console as the admin listener sees it. What answers is loaded after the start, of which it would be a tenth.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ConsoleOptions, ConsoleServer } from './console-server.ts';

const loadServer = () => import('./console-server.ts');

export class AdminConsole {
  readonly #options: ConsoleOptions;
  #server: Promise<ConsoleServer> | undefined;

  constructor(options: ConsoleOptions) {
    this.#options = options;
  }

  /** Whether a path belongs to the console or to its API. */
  owns(path: string): boolean {
    return /^\/(?:console|api\/v1)(?:\/|$)/.test(path);
  }

  /** Loads what answers, before the first request does. */
  async load(): Promise<void> {
    await loadServer();
  }

  /** Answers a request whose path the console owns. Never rejects. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#server ??= loadServer().then((loaded) => new loaded.ConsoleServer(this.#options));
    let server: ConsoleServer;
    try {
      server = await this.#server;
    } catch (err) {
      // Node keeps a failed import. The files of a process that runs have been replaced.
      this.#options.logger.error({ err }, 'failed to load the console; restart the gateway');
      response.writeHead(500, { 'content-type': 'text/plain' }).end('failed\n');
      return;
    }
    await server.answer(request, response);
  }
}
