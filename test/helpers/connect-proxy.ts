// An HTTP proxy on a real socket that understands CONNECT alone. For it, all hosts are on 127.0.0.1. It
// records every request, and answers or misbehaves as the test says.
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { pause } from './wait.ts';

interface ConnectRequest {
  /** `HOST:PORT` as asked. */
  readonly authority: string;
  /** The whole head. */
  readonly head: string;
}

interface ConnectProxyOptions {
  /** PEM key and certificate: clients reach the proxy by TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** `user:password` that is demanded. */
  readonly login?: string;
}

/** The client's socket after a CONNECT; `pass` does what a proxy does, with this head in pieces of `size` bytes. */
type Script = (socket: Socket, pass: (head?: string, size?: number) => void) => void;

export class ConnectProxy implements AsyncDisposable {
  readonly requests: ConnectRequest[] = [];
  /** What clients have sent in all, before tunnels and in them. */
  readonly received: Buffer[] = [];
  /** Connections of clients. */
  readonly sockets: Socket[] = [];
  /** Demanded `user:password`. */
  login: string | undefined;
  /** Replaces the answer; undefined: as a proxy should. */
  script: Script | undefined;
  /** Of a connection that is accepted, before anything is read. */
  onConnection: ((socket: Socket) => void) | undefined;
  readonly #options: ConnectProxyOptions;
  readonly #ends = new Set<Socket>();
  #server: Server | undefined;
  #port = 0;

  private constructor(options: ConnectProxyOptions) {
    this.#options = options;
    this.login = options.login;
  }

  static async start(options: ConnectProxyOptions = {}): Promise<ConnectProxy> {
    const proxy = new ConnectProxy(options);
    await proxy.up();
    return proxy;
  }

  get port(): number {
    return this.#port;
  }

  /** @param login `user:password`, percent-encoded */
  url(login = ''): string {
    const scheme = this.#options.tls === undefined ? 'http' : 'https';
    return `${scheme}://${login === '' ? '' : `${login}@`}127.0.0.1:${this.#port}`;
  }

  get authorities(): readonly string[] {
    return this.requests.map(({ authority }) => authority);
  }

  async up(): Promise<void> {
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
    const address = server.address();
    if (address !== null && typeof address === 'object') this.#port = address.port;
  }

  /** Cuts all tunnels and refuses connections until `up()`. */
  async down(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    server.close();
    this.cut();
    await once(server, 'close');
  }

  /** Cuts all connections. */
  cut(): void {
    for (const end of this.#ends) end.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.down();
  }

  #accept(raw: Socket): void {
    this.#keep(raw);
    const { tls } = this.#options;
    const socket =
      tls === undefined
        ? raw
        : new TLSSocket(raw, { isServer: true, secureContext: createSecureContext(tls) });
    if (socket !== raw) this.#keep(socket);
    this.sockets.push(socket);
    this.onConnection?.(socket);
    let head = '';
    const onData = (bytes: Buffer) => {
      this.received.push(bytes);
      head += bytes.toString('latin1');
      if (!head.includes('\r\n\r\n')) return;
      socket.off('data', onData);
      this.#onHead(socket, head);
    };
    socket.on('data', onData);
  }

  #onHead(socket: Socket, head: string): void {
    const authority = /^CONNECT (\S+) HTTP\/1\.1\r\n/.exec(head)?.[1] ?? '';
    this.requests.push({ authority, head });
    const pass = (answer = 'HTTP/1.1 200 Connection established\r\n\r\n', size = answer.length) => {
      const target = connect(Number(authority.split(':').at(-1)), '127.0.0.1');
      this.#keep(target);
      target.once('error', () => socket.end('HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n'));
      target.once('connect', async () => {
        target.removeAllListeners('error').on('error', () => undefined);
        for (let from = 0; from < answer.length; from += size) {
          socket.write(answer.slice(from, from + size), 'latin1');
          if (from + size < answer.length) await pause(1);
        }
        socket.on('data', (bytes: Buffer) => this.received.push(bytes));
        socket.pipe(target).pipe(socket);
        socket.once('close', () => target.destroy());
        target.once('close', () => socket.destroy());
      });
    };
    const credentials = /^proxy-authorization: Basic (\S+)\r$/im.exec(head)?.[1] ?? '';
    if (this.script !== undefined) this.script(socket, pass);
    else if (this.login !== undefined && Buffer.from(credentials, 'base64').toString() !== this.login) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="p"\r\n\r\n');
    } else pass();
  }

  #keep(socket: Socket): void {
    this.#ends.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    socket.once('close', () => this.#ends.delete(socket));
  }
}
