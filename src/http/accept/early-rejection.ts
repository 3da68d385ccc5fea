// Rejection of requests with compressed bodies while too many of them wait to be decoded: before an exchange exists, with a prepared
// answer and without a line in the access log, because what rejecting costs is missing for serving. A kept connection stays open.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { errorBody, GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { ORIGIN } from '../exchange/absolute-form.ts';
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

const HEAD_END = '\r\n\r\n';
/** Any method, as for late connections. */
const API_REQUEST = new RegExp(`^[A-Z]{1,10} ${ORIGIN}/v1/[^\\r\\n]* HTTP/1\\.1\\r\\n`);
const LENGTH = /\r\ncontent-length: *(\d{1,10})\r\n/i;
/** The client opened the connection for one request. */
const CLOSES = /\r\nconnection: *close\r\n/i;
const ENCODED = /\r\ncontent-encoding:/i;
/** Fields with which `isDecoded` is false. */
const SPECIAL = /\r\n(?:transfer-encoding|expect|origin|anthropic-version)[ \t]*:/i;

export class EarlyRejection {
  readonly #queue: Pick<DecodeQueue, 'isFull' | 'isOverloaded' | 'shouldReject'>;
  readonly #metrics: Pick<Metrics, 'recordUnread'>;

  constructor(
    queue: Pick<DecodeQueue, 'isFull' | 'isOverloaded' | 'shouldReject'>,
    metrics: Pick<Metrics, 'recordUnread'>,
  ) {
    this.#queue = queue;
    this.#metrics = metrics;
  }

  /** Whether requests were rejected in the last seconds. */
  get isOverloaded(): boolean {
    return this.#queue.isOverloaded;
  }

  /** Whether a request that comes now may be rejected. */
  get isActive(): boolean {
    return this.#queue.isFull;
  }

  /**
   * Without HTTP parsing, which costs a third of a rejection on a new connection.
   * @param start the first bytes of a connection
   * @returns whether they are a whole request that is rejected; the caller answers it and closes the connection
   */
  rejectsUnparsed(start: Buffer): boolean {
    const end = start.indexOf(HEAD_END, 0, 'latin1');
    if (end === -1) return false;
    // With the end of the last line.
    const head = start.toString('latin1', 0, end + 2);
    if (!API_REQUEST.test(head) || !CLOSES.test(head) || !ENCODED.test(head) || SPECIAL.test(head))
      return false;
    const length = Number(LENGTH.exec(head)?.[1] ?? Number.NaN);
    if (end + HEAD_END.length + length !== start.length || !this.#queue.shouldReject()) return false;
    this.#metrics.recordUnread('none', OVERLOADED);
    return true;
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
