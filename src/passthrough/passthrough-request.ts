// One request to the upstream of a call without a model: its headers, its repetition with a new token, and the failure that an error
// response means. passthrough-pipe.ts sends it.
import type { Exchange } from '../http/exchange/exchange.ts';
import { withoutCredential } from '../proxy/answer/error-reader.ts';
import { askAuthorized } from '../upstream/direct-request.ts';
import { type Failure, judgeErrorResponse } from '../upstream/error-outcome.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { collectAnswer } from './passthrough-answer.ts';
import { type PipedAnswer, type PipedBody, pipe } from './passthrough-pipe.ts';

const MAX_ERROR = 1024 * 1024;
const NO_BODY = Buffer.alloc(0);

/** One request to the upstream. */
interface PassthroughRequest {
  readonly method: string;
  readonly path: string;
  /** Default: none. */
  readonly search?: string;
  /** Default: none. */
  readonly body?: PipedBody;
  /** Content type of a body that is not the client's. */
  readonly type?: string;
  /** As of `PipeOrder`. */
  readonly isKept?: boolean;
}

/** An error response of the upstream. */
export class CallFailure extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super('the upstream refused');
    this.failure = failure;
  }
}

/** What a request needs of a call. */
interface RequestingCall {
  readonly exchange: Exchange;
  readonly upstream: Upstream;
}

/**
 * Sends a request, and repeats it with a new token if the upstream rejects the current one and the body is in memory.
 * @throws CallFailure for an error response; GatewayError
 */
export async function sendCall(call: RequestingCall, request: PassthroughRequest): Promise<PipedAnswer> {
  const { upstream, exchange } = call;
  const isTokenRejected = (result: PipedAnswer | Failure) =>
    'error' in result && result.isTokenRejected === true && Buffer.isBuffer(request.body ?? NO_BODY);
  const result = await askAuthorized(upstream, exchange, () => sendCallOnce(call, request), isTokenRejected);
  if (!('error' in result)) return result;
  exchange.throwIfStopped();
  throw new CallFailure(result);
}

/** @returns the answer, or the failure that an error response means */
async function sendCallOnce(
  { exchange, upstream }: RequestingCall,
  { method, path, search = '', body = NO_BODY, type, isKept }: PassthroughRequest,
): Promise<PipedAnswer | Failure> {
  const { headers } = exchange.request;
  const own: Record<string, string> = upstream.headersFor(headers, exchange.id);
  const isOwnCall = method === exchange.method;
  for (const name of ['accept', ...(isOwnCall ? ['content-type'] : [])]) {
    const value = headers[name];
    if (typeof value === 'string') own[name] = value;
  }
  if (type !== undefined) own['content-type'] = type;
  // A body that was read whole is decoded.
  if ('limit' in body && headers['content-encoding'] !== undefined)
    own['content-encoding'] = headers['content-encoding'];
  const piped = await pipe({
    exchange,
    upstream,
    method,
    path: upstream.pathWith(path.slice('/v1/'.length), search),
    headers: own,
    body,
    isKept,
  });
  const { statusCode = 0, headers: received } = piped.response;
  exchange.access.upstream_status = statusCode;
  exchange.access.upstream_request_id = upstream.requestIdIn(received);
  if (statusCode >= 200 && statusCode < 300) return piped;
  const text = await collectAnswer(exchange, piped, MAX_ERROR).catch(() => NO_BODY);
  exchange.throwIfStopped();
  return withoutCredential(judgeErrorResponse(statusCode, received, text), upstream);
}
