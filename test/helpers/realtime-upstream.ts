// A scripted upstream for realtime sessions: a real WebSocket server that a test answers for by hand, and which records the
// handshakes it got and how its sockets ended.
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import { within } from './wait.ts';

export interface UpstreamSession {
  readonly socket: WebSocket;
  /** The connection below it. */
  readonly raw: Socket;
  readonly request: IncomingMessage;
  readonly messages: { readonly text: string; readonly binary: boolean }[];
  /** Resolves with the close code and reason that it read. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
}

export interface RealtimeUpstreamOptions {
  /** Answers a handshake in HTTP instead; true when it has. */
  readonly refuse?: (request: IncomingMessage, socket: Socket) => boolean;
  readonly onSession?: (session: UpstreamSession) => void;
  /** Chooses the subprotocol; default `realtime` where it is offered. */
  readonly protocol?: (offered: Set<string>) => string | false;
  /** Plain requests. */
  readonly onRequest?: (request: IncomingMessage, response: ServerResponse) => void;
}

export class RealtimeUpstream implements AsyncDisposable {
  readonly sessions: UpstreamSession[] = [];
  readonly handshakes: IncomingMessage[] = [];
  options: RealtimeUpstreamOptions;
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();
  #waiting: ((session: UpstreamSession) => void)[] = [];

  private constructor(options: RealtimeUpstreamOptions) {
    this.options = options;
    this.#server = http.createServer((request, response) => {
      if (this.options.onRequest === undefined) response.writeHead(404).end();
      else this.options.onRequest(request, response);
    });
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    const server = new WebSocketServer({
      noServer: true,
      // It would take it if it were offered.
      perMessageDeflate: true,
      maxPayload: 256 * 1024 * 1024,
      handleProtocols: (offered) =>
        this.options.protocol?.(offered) ?? (offered.has('realtime') ? 'realtime' : false),
    });
    this.#server.on('upgrade', (request, stream, head: Buffer) => {
      const raw = request.socket;
      this.handshakes.push(request);
      if (this.options.refuse?.(request, raw) === true) return;
      server.handleUpgrade(request, stream, head, (socket) => this.#begin(socket, raw, request));
    });
  }

  static async start(options: RealtimeUpstreamOptions = {}): Promise<RealtimeUpstream> {
    const upstream = new RealtimeUpstream(options);
    upstream.#server.listen(0, '127.0.0.1');
    await once(upstream.#server, 'listening');
    return upstream;
  }

  get baseUrl(): string {
    const address: AddressInfo | string | null = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return `http://127.0.0.1:${address.port}/v1`;
  }

  /** The next session that begins after this call. */
  next(): Promise<UpstreamSession> {
    return within(
      new Promise<UpstreamSession>((resolve) => this.#waiting.push(resolve)),
      'a session at the upstream',
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    if (this.#server.listening) await once(this.#server, 'close');
  }

  #begin(socket: WebSocket, raw: Socket, request: IncomingMessage): void {
    const messages: { text: string; binary: boolean }[] = [];
    socket.on('message', (data: RawData, binary) => messages.push({ text: String(data), binary }));
    socket.on('error', () => undefined);
    const closed = new Promise<{ code: number; reason: string }>((resolve) =>
      socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
    );
    const session = { socket, raw, request, messages, closed };
    this.sessions.push(session);
    this.options.onSession?.(session);
    this.#waiting.shift()?.(session);
  }
}

/** `response.done` as OpenAI's realtime API sends it, shortened. */
export function responseDone(input: number, output: number, cached = 0): string {
  return JSON.stringify({
    type: 'response.done',
    event_id: 'event_1',
    response: {
      id: 'resp_1',
      object: 'realtime.response',
      status: 'completed',
      output: [],
      usage: {
        total_tokens: input + output,
        input_tokens: input,
        output_tokens: output,
        input_token_details: { cached_tokens: cached, text_tokens: input, audio_tokens: 0 },
        output_token_details: { text_tokens: output, audio_tokens: 0 },
      },
    },
  });
}
