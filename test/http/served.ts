// A public listener for the tests of http/: a real Server on a free port with a few routes, and what it did.
import { Writable } from 'node:stream';
import { type BodyPace, readBody } from '../../src/http/body/read-body.ts';
import { clientAddress } from '../../src/http/client-address.ts';
import type { Exchange } from '../../src/http/exchange/exchange.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { Server, type ServerOptions } from '../../src/http/server.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

export const LIMIT = 100_000;

export interface ServedOptions extends Partial<ServerOptions> {
  readonly pace?: BodyPace;
  readonly routes?: (server: Server, served: Served) => void;
  /** Default true. */
  readonly listen?: boolean;
  /** Most bytes of `/echo`. */
  readonly limit?: number;
}

/** What an exchange was when it ended. */
export interface Ended {
  readonly method: string;
  readonly target: string;
  readonly status: number;
  readonly outcome: string | undefined;
  readonly stopped: string | undefined;
  readonly bytesIn: number | undefined;
  readonly elapsed: number;
}

export class Served implements AsyncDisposable {
  readonly server: Server;
  readonly metrics: Metrics = createMetrics();
  readonly ended: Ended[] = [];
  /** Exchanges that the handlers saw, in order. */
  readonly begun: Exchange[] = [];
  readonly #log: string[] = [];
  readonly #scheme: 'http' | 'https';
  #port = 0;

  private constructor(options: ServedOptions) {
    this.#scheme = options.certificate === undefined ? 'http' : 'https';
    const { pace, routes, limit = LIMIT, listen: _listen, ...own } = options;
    const sink = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        this.#log.push(chunk.toString());
        done();
      },
    });
    this.server = new Server({
      addressOf: clientAddress([]),
      onEnd: (exchange) => this.ended.push(endedOf(exchange)),
      logger: createLogger(sink, 'debug'),
      metrics: this.metrics,
      ...own,
    });
    this.server.route('GET', '/health', (exchange) => {
      this.begun.push(exchange);
      answerJson(exchange, 200, { status: 'ok', target: exchange.target, address: exchange.address });
    });
    // Says what body it read.
    this.server.route('POST', '/echo', async (exchange) => {
      this.begun.push(exchange);
      const body = await (pace === undefined ? readBody(exchange, limit) : readBody(exchange, limit, pace));
      answerJson(exchange, 200, { bytes: body.length, start: body.toString('latin1', 0, 32) });
    });
    routes?.(this.server, this);
  }

  static async start(options: ServedOptions = {}): Promise<Served> {
    const served = new Served(options);
    if (options.listen !== false) {
      const { port } = await served.server.listen('127.0.0.1', 0);
      served.#port = port;
    }
    return served;
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.#port}`;
  }

  get port(): number {
    return this.#port;
  }

  get log(): string {
    return this.#log.join('');
  }

  connect(): Promise<RawClient> {
    return RawClient.connect(this.url);
  }

  /** Exactly these bytes on a connection of their own, and the answer to them. */
  async say(bytes: string | Buffer): Promise<{ response: RawResponse; client: RawClient }> {
    const client = await this.connect();
    await client.write(bytes);
    return { response: await client.response(), client };
  }

  /** What the gauge of requests in flight shows. */
  async inFlight(): Promise<number> {
    const { values } = await this.metrics.requestsInFlight.get();
    return values[0]?.value ?? 0;
  }

  async openConnections(): Promise<number> {
    const { values } = await this.metrics.connections.get();
    return values[0]?.value ?? 0;
  }

  /** Until nothing is in flight, by the gauge and by the server. */
  async idle(): Promise<void> {
    await until(
      async () => this.server.inFlight === 0 && (await this.inFlight()) === 0,
      'nothing to be in flight',
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const drained = this.server.drain(0, 0);
    this.server.endAll();
    await drained;
  }
}

function endedOf(exchange: Exchange): Ended {
  return {
    method: exchange.request.method ?? '',
    target: exchange.target,
    status: exchange.response.statusCode,
    outcome: exchange.access.outcome,
    stopped: exchange.stopReason?.code,
    bytesIn: exchange.access.bytes_in,
    elapsed: exchange.elapsed,
  };
}

/** `error.code` of an answer that is OpenAI's error object in JSON; fails when it is anything else. */
export function errorCode(response: RawResponse): string {
  if (response.header('content-type') !== 'application/json') {
    throw new Error(`content-type is ${response.header('content-type')}`);
  }
  if (!response.complete) throw new Error('the answer is cut short');
  const body = response.json();
  const error = property(body, 'error');
  for (const [name, kinds] of Object.entries({
    message: ['string'],
    type: ['string'],
    param: ['string', 'object'],
    code: ['string'],
  })) {
    const value = property(error, name);
    if (value === undefined || !kinds.includes(typeof value)) {
      throw new Error(`error.${name} is ${JSON.stringify(value)} in ${response.text()}`);
    }
  }
  return String(property(error, 'code'));
}

export function property(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
