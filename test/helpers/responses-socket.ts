// A client of the Responses API over a WebSocket that keeps its events, for tests that look at each of them.
import { once } from 'node:events';
import { WebSocket as Client } from 'ws';
import type { Gateway } from './gateway.ts';
import { until, within } from './wait.ts';

export type SocketEvent = Readonly<Record<string, unknown>>;

export class ResponsesSocket implements Disposable {
  readonly raw: Client;
  /** Those that `next` has not passed. */
  readonly events: SocketEvent[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;

  private constructor(client: Client) {
    this.raw = client;
    client.on('message', (data) => this.events.push(JSON.parse(String(data))));
    client.on('error', () => undefined);
    const closed = new Promise<{ code: number; reason: string }>((resolve) =>
      client.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
    );
    this.closed = within(closed, 'the end of the connection');
    this.closed.catch(() => undefined);
  }

  /** @param key default: the key of the gateway */
  static async open(gateway: Gateway, key?: string): Promise<ResponsesSocket> {
    const authorization = `Bearer ${key ?? (await gateway.key())}`;
    const client = new Client(socketUrl(gateway), { headers: { authorization } });
    const socket = new ResponsesSocket(client);
    await within(once(client, 'open'), 'the connection to open');
    return socket;
  }

  send(event: SocketEvent): void {
    this.raw.send(JSON.stringify(event));
  }

  create(more: SocketEvent = {}): void {
    this.send({ type: 'response.create', model: 'test-model', input: 'Hello?', ...more });
  }

  /** The first event of this type that was not returned yet; those before it are dropped. */
  async next(type: string, matches: (event: SocketEvent) => boolean = () => true): Promise<SocketEvent> {
    const isIt = (event: SocketEvent) => event['type'] === type && matches(event);
    const event = await until(() => this.events.find(isIt), `an event ${type}`);
    this.events.splice(0, this.events.indexOf(event) + 1);
    return event;
  }

  /** Creates a response and waits for its last event. */
  async respond(more: SocketEvent = {}): Promise<SocketEvent> {
    this.create(more);
    return await this.next('response.completed');
  }

  /** Creates a response and waits for its error. */
  async fail(more: SocketEvent = {}): Promise<SocketEvent> {
    this.create(more);
    return await this.next('error');
  }

  [Symbol.dispose](): void {
    this.raw.terminate();
  }
}

export function socketUrl(gateway: Gateway): string {
  return `${gateway.url.replace('http', 'ws')}/v1/responses`;
}

/** The answer in HTTP to a handshake that is rejected. */
export async function rejectedHandshake(
  gateway: Gateway,
  headers: Record<string, string>,
): Promise<{ status: number; headers: Record<string, unknown>; body: unknown }> {
  const client = new Client(socketUrl(gateway), { headers });
  client.on('error', () => undefined);
  const [, response] = await within(once(client, 'unexpected-response'), 'a rejection');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return {
    status: response.statusCode,
    headers: response.headers,
    body: JSON.parse(String(Buffer.concat(chunks))),
  };
}
