// Rejection of requests with compressed bodies while too many of them wait to be decoded: before an exchange exists, with a prepared
// answer and without a line in the access log, because what rejecting costs is missing for serving. The connection stays open.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { errorBody, GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { retryHeaders } from '../exchange/response-writer.ts';
import { preparedByRetryTime } from '../exchange/retry-times.ts';
import type { DecodeQueue } from '../pieces/decode-queue.ts';

const OVERLOADED = new GatewayError('overloaded');
const BODY = errorBody(OVERLOADED);
const headFor = preparedByRetryTime((retryAfterMs) => {
  const error = new GatewayError('overloaded', undefined, { retryAfterMs });
  const fields = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(BODY)) };
  return Object.entries({ ...fields, ...retryHeaders(error) }).flat();
});

export class EarlyRejection {
  readonly #queue: Pick<DecodeQueue, 'shouldReject'>;
  readonly #metrics: Pick<Metrics, 'recordUnread'>;

  constructor(queue: Pick<DecodeQueue, 'shouldReject'>, metrics: Pick<Metrics, 'recordUnread'>) {
    this.#queue = queue;
    this.#metrics = metrics;
  }

  /**
   * Call for each request that nothing runs before on its connection.
   * @returns whether it is rejected; the answer is written then
   */
  rejects(request: IncomingMessage, response: ServerResponse): boolean {
    if (!isDecoded(request) || !this.#queue.shouldReject()) return false;
    this.#metrics.recordUnread('none', OVERLOADED);
    request.on('error', ignore);
    response.on('error', ignore);
    response.writeHead(OVERLOADED.status, headFor(request.socket)).end(BODY);
    return true;
  }
}

/**
 * Whether the request would wait to be decoded and its error needs nothing of an exchange: no headers for pages of other origins, no object
 * of Anthropic's API. Such requests, and those whose body may not have come, are rejected when it is their turn.
 */
function isDecoded({ url = '', headers }: IncomingMessage): boolean {
  return (
    headers['content-encoding'] !== undefined &&
    headers['content-length'] !== undefined &&
    headers['transfer-encoding'] === undefined &&
    headers.expect === undefined &&
    headers.origin === undefined &&
    headers['anthropic-version'] === undefined &&
    url.startsWith('/v1/')
  );
}

function ignore(): void {}
