// The running exchanges of a listener: each begins here, can be stopped, and is recorded once at its end.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError } from '../../errors.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Tracing } from '../../telemetry/traces/tracer.ts';
import { exchangeBegan, exchangeEnded } from '../pieces/body-pacing.ts';
import { Exchange } from './exchange.ts';
import { Exchanges } from './exchanges.ts';

export interface RunningExchangesOptions {
  /** Called once per exchange, after its connection or response has ended. */
  readonly onEnd: (exchange: Exchange) => void;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'requestsInFlight'>;
  /** Default: no tracing. */
  readonly tracing?: Pick<Tracing, 'begin'>;
}

export class RunningExchanges implements Iterable<Exchange> {
  readonly #options: RunningExchangesOptions;
  readonly #active = new Exchanges();
  readonly #inFlight: { set(value: number): void };

  constructor(options: RunningExchangesOptions) {
    this.#options = options;
    this.#inFlight = options.metrics.requestsInFlight.child({});
  }

  get size(): number {
    return this.#active.size;
  }

  [Symbol.iterator](): Iterator<Exchange> {
    return this.#active[Symbol.iterator]();
  }

  /**
   * @param response its 'close' ends the exchange
   * @param onLeave called after the exchange was recorded
   */
  begin(
    request: IncomingMessage,
    response: ServerResponse,
    address: string,
    onLeave: () => void = () => {},
  ): Exchange {
    const exchange = new Exchange(request, response, address);
    exchange.span = this.#options.tracing?.begin(request);
    if (exchange.span !== undefined) exchange.access.trace_id = exchange.span.traceId;
    this.#active.add(exchange);
    exchangeBegan();
    this.#inFlight.set(this.#active.size);
    response.once('close', () => {
      this.#end(exchange);
      onLeave();
    });
    return exchange;
  }

  stop(exchange: Exchange, reason: GatewayError): void {
    try {
      exchange.stop(reason);
    } catch (error) {
      this.#options.logger.error({ err: error, request_id: exchange.id }, 'failed to stop a request cleanly');
    }
  }

  #end(exchange: Exchange): void {
    const { onEnd, logger } = this.#options;
    if (!exchange.answered) this.stop(exchange, new GatewayError('client_closed'));
    this.#active.delete(exchange);
    exchangeEnded(exchange);
    this.#inFlight.set(this.#active.size);
    try {
      onEnd(exchange);
    } catch (error) {
      logger.error({ err: error }, 'failed to write the access log');
    }
  }
}
