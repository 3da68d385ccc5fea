// A TCP tap in front of a server: bytes pass unchanged in both directions, and a copy of what clients sent tells which
// requests the server got for each call.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { WebSocketFrameReader } from '../../../src/realtime/websocket/websocket-frames.ts';
import { promptOf, UNKNOWN_MODEL } from './types.ts';

const REQUEST_LINE = /(GET|POST|PUT|PATCH|DELETE) (\/[^\s?]*)\S* HTTP\/1\.1\r\n/;
/** Before the path of the API, where a client of Azure calls a server without the gateway. */
export const AZURE = /^\/openai\/(?:deployments\/[^/]+\/)?/;
const PROMPT = new RegExp(`${promptOf('')}([a-z0-9_]+(?:\\.[a-z0-9_]+)*)`);

/** A tap that listens. */
export class Tap {
  /** The server's base URL, by way of the tap. */
  readonly baseUrl: string;
  readonly #close: () => Promise<void>;
  readonly #sent: Buffer[][];

  private constructor(baseUrl: string, sent: Buffer[][], close: () => Promise<void>) {
    this.baseUrl = baseUrl;
    this.#sent = sent;
    this.#close = close;
  }

  /** Listens on a free port of loopback, and passes all to the server with this base URL. */
  static async open(baseUrl: string): Promise<Tap> {
    const url = new URL(baseUrl);
    const { hostname } = url;
    const port = Number(url.port);
    const sent: Buffer[][] = [];
    const sockets = new Set<Socket>();
    const server = createServer((client) => {
      const upstream = connect(port, hostname);
      const copy: Buffer[] = [];
      sent.push(copy);
      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        socket.setNoDelay(true);
        sockets.add(socket);
        // An error is followed by `close`; a half-closed side goes on by way of `pipe`.
        socket.on('error', () => undefined);
        socket.once('close', () => {
          sockets.delete(socket);
          other.destroy();
        });
        socket.pipe(other);
      }
      client.on('data', (bytes: Buffer) => copy.push(bytes));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url.port = String((server.address() as AddressInfo).port);
    return new Tap(url.href, sent, async () => {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    });
  }

  /** The requests so far by call: method and path, in the order of their connections. */
  requests(): ReadonlyMap<string, readonly string[]> {
    const all = new Map<string, string[]>();
    for (const copy of this.#sent)
      for (const { call, request } of requestsOf(Buffer.concat(copy))) {
        const known = all.get(call);
        if (known === undefined) all.set(call, [request]);
        else known.push(request);
      }
    return all;
  }

  close(): Promise<void> {
    return this.#close();
  }
}

/** What one connection carried: of a WebSocket its handshake, and each message as a request of its own. */
function requestsOf(copy: Buffer): { call: string; request: string }[] {
  const text = copy.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  if (!/^upgrade: websocket\r$/im.test(text.slice(0, end + 1))) return requestsIn(text);
  const requests = requestsIn(text.slice(0, end));
  const onText = (message: Buffer) => {
    const [call = ''] = PROMPT.exec(message.toString('latin1'))?.slice(1) ?? [];
    requests.push({ call, request: 'a message' });
  };
  new WebSocketFrameReader({ onText, onClose() {} }).push(copy.subarray(end + 4));
  return requests;
}

/** What one connection carried. A request without a prompt belongs to the call that its path names. */
function requestsIn(text: string): { call: string; request: string }[] {
  const [, ...parts] = text.split(REQUEST_LINE);
  const requests: { call: string; request: string }[] = [];
  for (let index = 0; index + 2 < parts.length; index += 3) {
    const [method = '', sent = '', rest = ''] = parts.slice(index, index + 3);
    const path = sent.replace(AZURE, '/v1/');
    const call = PROMPT.exec(rest)?.[1] ?? callOfPath(path);
    requests.push({ call, request: `${method} ${path}` });
  }
  return requests;
}

function callOfPath(path: string): string {
  if (path === '/v1/models') return 'models.list';
  if (path === `/v1/models/${UNKNOWN_MODEL}`) return 'error.unknown_model.retrieve';
  return path.startsWith('/v1/models/') ? 'models.retrieve' : path;
}
