// A scripted upstream on raw sockets: it answers with exactly the bytes that a test wants, whole or broken, and
// records what it was asked. How one connection is read is in upstream-connection.ts, what a script can do in
// conversation.ts, the OpenAI shapes in completions.ts.
import { createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import type { Bytes, Script } from './conversation.ts';
import { standardAnswer } from './conversation.ts';
import { type RecordedRequest, UpstreamConnection } from './upstream-connection.ts';
import { PATIENCE, until, within } from './wait.ts';

export * from './completions.ts';
export * from './conversation.ts';
export type { RecordedRequest, SocketEnd, UpstreamConnection } from './upstream-connection.ts';

export interface HostileUpstreamOptions {
  /** Answers every request for which `next()` queued nothing. Default: `standardAnswer`. */
  readonly script?: Script;
  /** Called for every connection before it is read: reset it, greet it, count it. */
  readonly onConnection?: (connection: UpstreamConnection) => void;
  /** PEM key and certificate (certificate.ts makes them): speak TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Take and keep bytes, understand none, answer nothing. */
  readonly mute?: boolean;
  /** Default false: a request that breaks HTTP/1.1 makes `request()` and `close()` fail. */
  readonly allowViolations?: boolean;
}

export class HostileUpstream implements AsyncDisposable {
  /** In order of arrival of their heads. */
  readonly requests: RecordedRequest[] = [];
  /** Every connection that was ever accepted. */
  readonly sockets: UpstreamConnection[] = [];
  /** How requests broke HTTP/1.1. */
  readonly violations: string[] = [];
  /** The most requests that were being answered at one time. */
  peakAnswering = 0;
  readonly #options: HostileUpstreamOptions;
  readonly #queue: Script[] = [];
  readonly #scriptErrors: unknown[] = [];
  #script: Script;
  #server: Server | undefined;
  #port = 0;
  #answering = 0;

  private constructor(options: HostileUpstreamOptions) {
    this.#options = options;
    this.#script = options.script ?? standardAnswer;
  }

  /** Listens on a free port of 127.0.0.1. */
  static async start(options: HostileUpstreamOptions | Script = {}): Promise<HostileUpstream> {
    const upstream = new HostileUpstream(isScript(options) ? { script: options } : options);
    await upstream.up();
    return upstream;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `${this.#options.tls === undefined ? 'http' : 'https'}://127.0.0.1:${this.#port}`;
  }

  /** The API root to write in a configuration. */
  get baseUrl(): string {
    return `${this.url}/v1`;
  }

  /** Connections accepted so far. */
  get connections(): number {
    return this.sockets.length;
  }

  get openSockets(): number {
    return this.sockets.filter((socket) => socket.open).length;
  }

  /** Requests whose script is running now. */
  get answering(): number {
    return this.#answering;
  }

  /** From now on the answer where nothing is queued. */
  always(script: Script): void {
    this.#script = script;
  }

  /** Answers to the next requests, one each, in order. */
  next(...scripts: Script[]): void {
    this.#queue.push(...scripts);
  }

  /** The request with this number, from 0, complete with its body. Waits for it at most `ms` milliseconds. */
  async request(index: number, ms: number = PATIENCE): Promise<RecordedRequest> {
    const request = await this.requestHead(index, ms);
    const state = (): string => `its head came, and ${request.body.length} bytes of its body`;
    await within(request.received, `the body of request ${index}`, ms, state);
    return request;
  }

  /** As `request`, as soon as the head is there. */
  async requestHead(index: number, ms: number = PATIENCE): Promise<RecordedRequest> {
    const request = await until(
      () => this.requests[index] ?? (this.violations.length > 0 ? 'malformed' : undefined),
      `request ${index}`,
      ms,
    );
    return request === 'malformed' ? this.#failOnViolations() : request;
  }

  /** Ends the keep-alive connections on which nothing is happening. Returns how many. */
  closeIdle(how: 'fin' | 'reset' = 'fin'): number {
    const idle = this.sockets.filter((socket) => socket.idle);
    for (const socket of idle) how === 'fin' ? socket.close() : socket.reset();
    return idle.length;
  }

  /** Bytes that nobody asked for, on every idle connection. Returns on how many. */
  async sendUnsolicited(bytes: Bytes): Promise<number> {
    const idle = this.sockets.filter((socket) => socket.idle);
    await Promise.all(idle.map((socket) => socket.send(bytes)));
    return idle.length;
  }

  /** Stops listening and cuts all connections: from now on they are refused. `up()` opens the same port again. */
  async down(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  async up(): Promise<void> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.#port, '127.0.0.1', () => resolve());
    });
    const address = server.address();
    if (address !== null && typeof address === 'object') this.#port = address.port;
  }

  /** Ends everything. Fails when a script had a fault of its own or a request broke HTTP/1.1. */
  async close(): Promise<void> {
    await this.down();
    if (this.#scriptErrors.length > 0)
      throw new AggregateError(this.#scriptErrors, 'a script of the upstream failed');
    if (this.violations.length > 0 && this.#options.allowViolations !== true) this.#failOnViolations();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #failOnViolations(): never {
    throw new Error(`the upstream was sent malformed HTTP: ${this.violations.join('; ')}`);
  }

  #accept(raw: Socket): void {
    const { tls, onConnection, mute } = this.#options;
    const socket =
      tls === undefined
        ? raw
        : new TLSSocket(raw, { isServer: true, secureContext: createSecureContext(tls) });
    const connection = new UpstreamConnection(
      this.sockets.length,
      socket,
      raw,
      {
        nextIndex: () => this.requests.length,
        onRequest: (request) => {
          this.requests.push(request);
          return this.#queue.shift() ?? this.#script;
        },
        onViolation: (reason) => this.violations.push(reason),
        onScriptError: (error) => this.#scriptErrors.push(error),
        onAnswering: (change) => {
          this.#answering += change;
          this.peakAnswering = Math.max(this.peakAnswering, this.#answering);
        },
      },
      mute ?? false,
    );
    this.sockets.push(connection);
    onConnection?.(connection);
  }
}

function isScript(value: HostileUpstreamOptions | Script): value is Script {
  return typeof value === 'function' || Array.isArray(value) || 'early' in value;
}
