// A TCP cable between a client and a server, with a hand on it: it passes, delays, swallows silently or is cut.
// It knows nothing of what runs through it.
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export interface Cable extends AsyncDisposable {
  /** Where the client connects, on 127.0.0.1. */
  readonly port: number;
  /** Connections that were accepted since the start. */
  readonly accepted: number;
  /** Connections that are open on the client's side. */
  readonly open: number;
  /** Bytes that the black hole has taken since the start. */
  readonly swallowed: number;
  /** Lets everything through, as at the start. A connection that has lost bytes stays silent for ever. */
  pass(): void;
  /** Ends all connections and refuses new ones, until `pass`, `delay` or `blackHole`. */
  cut(): Promise<void>;
  /** Accepts connections and swallows what comes, from both sides, without a word. */
  blackHole(): void;
  /** Lets everything through, each piece `ms` milliseconds later, in both directions. */
  delay(ms: number): Promise<void>;
  /** New connections go to this port of 127.0.0.1; those that are open stay where they are. */
  moveTo(port: number): void;
  close(): Promise<void>;
}

type Mode = { readonly kind: 'pass'; readonly delayMs: number } | { readonly kind: 'hole' };

/** A cable to `port` of 127.0.0.1. */
export async function startCable(port: number): Promise<Cable> {
  const cable = new TcpCable(port);
  await cable.listen(0);
  return cable;
}

class TcpCable implements Cable {
  #target: number;
  readonly #ends = new Set<Socket>();
  readonly #clients = new Set<Socket>();
  #server: Server | undefined;
  #mode: Mode = { kind: 'pass', delayMs: 0 };
  port = 0;
  accepted = 0;
  swallowed = 0;

  constructor(target: number) {
    this.#target = target;
  }

  get open(): number {
    return this.#clients.size;
  }

  async listen(port: number): Promise<void> {
    const server = createServer((client) => this.#accept(client)).listen(port, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
    this.#server = server;
    this.port = address.port;
  }

  moveTo(port: number): void {
    this.#target = port;
  }

  pass(): void {
    this.#set({ kind: 'pass', delayMs: 0 });
  }

  blackHole(): void {
    this.#set({ kind: 'hole' });
  }

  async delay(ms: number): Promise<void> {
    await this.#set({ kind: 'pass', delayMs: ms });
  }

  async cut(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const end of [...this.#ends]) end.destroy();
    if (server === undefined) return;
    server.close();
    await once(server, 'close');
  }

  async close(): Promise<void> {
    await this.cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Listens again where it was cut. */
  #set(mode: Mode): Promise<void> {
    this.#mode = mode;
    return this.#server === undefined ? this.listen(this.port) : Promise.resolve();
  }

  #accept(client: Socket): void {
    this.accepted += 1;
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    const server = connect(this.#target, '127.0.0.1');
    const life: Life = { isDead: this.#mode.kind === 'hole' };
    this.#carry(client, server, life);
    this.#carry(server, client, life);
  }

  #carry(from: Socket, to: Socket, life: Life): void {
    this.#ends.add(from);
    const line = new Line();
    const deliver = (bytes: number, act: () => unknown) => {
      const mode = this.#mode;
      if (mode.kind === 'hole') life.isDead = true;
      if (life.isDead) this.swallowed += bytes;
      else if (mode.kind === 'pass') line.add(mode.delayMs, () => life.isDead || act());
    };
    from.setNoDelay(true);
    from.on('data', (bytes: Buffer) => deliver(bytes.length, () => to.writable && to.write(bytes)));
    from.on('error', () => {});
    from.on('end', () => deliver(0, () => to.end()));
    from.on('close', () => {
      this.#ends.delete(from);
      deliver(0, () => to.destroy());
    });
  }
}

/** Of one connection: it has lost something, and says nothing any more, in neither direction. */
interface Life {
  isDead: boolean;
}

/** One direction of a connection. However the delay changes, nothing overtakes what was sent before it. */
class Line {
  readonly #waiting: { readonly at: number; readonly act: () => unknown }[] = [];

  add(delayMs: number, act: () => unknown): void {
    if (delayMs === 0 && this.#waiting.length === 0) act();
    else if (this.#waiting.push({ at: performance.now() + delayMs, act }) === 1) this.#next();
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    setTimeout(
      () => {
        // What is added meanwhile is not the first.
        first.act();
        this.#waiting.shift();
        this.#next();
      },
      Math.max(0, first.at - performance.now()),
    );
  }
}
