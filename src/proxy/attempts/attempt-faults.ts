// What a broken call or a missed deadline means for an attempt: whether the work may be repeated, where, and whose fault it was.
import { GatewayError } from '../../errors.ts';
import { certainBlame, type Failure, failure, unconnected } from '../../upstream/error-outcome.ts';
import type { Delivery } from '../../upstream/transport.ts';
import type { Deadline } from './attempt-deadlines.ts';

/** How far the attempt was. */
export interface AttemptStage {
  /** The head of the answer arrived. */
  readonly hasHead: boolean;
  /** `retry.after_send`: a request that was sent may be repeated. */
  readonly retryAfterSend: boolean;
}

/** `failed` ends the attempt at once. In `broken`, the receiver may have begun an answer, and decides first. */
export type AttemptFault =
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'broken'; readonly error: GatewayError; readonly tryNextTarget: boolean };

/** @param delivery how much of the request arrived */
export function faultOfCall(error: GatewayError, delivery: Delivery, stage: AttemptStage): AttemptFault {
  if (delivery === 'no_response') {
    const stale = { ...failure(error, true), blame: { kind: 'neutral' as const } };
    return ended({ ...stale, staleConnection: true, retry: true, skipsRetryBudget: true });
  }
  if (delivery === 'body_lost') return broken(error, false);
  if (delivery === 'not_sent') {
    // A refused connection may recover in a moment; a connect deadline was already long.
    const retry = error.code === 'upstream_unreachable' || error.code === 'upstream_proxy_error';
    return ended({ ...unconnected(error), retry });
  }
  if (!stage.hasHead) {
    // An unusable answer means an unhealthy upstream, and no output reached the client.
    if (error.code === 'upstream_invalid_response') return broken(error, true);
    return ended(maybeExecuted(error, stage));
  }
  // The answer broke after its head, so the upstream itself was reachable.
  const { code, cause } = error;
  const cut = new GatewayError('stream_incomplete', undefined, { cause });
  return broken(code === 'upstream_unreachable' ? cut : error, true);
}

/**
 * Nothing has executed before the request is sent, and nothing has reached the client before the head. In between the upstream may be
 * executing. After the total deadline no other target is tried.
 * @param awaitsClient the upload waited for the client
 */
export function faultOfDeadline(
  which: Exclude<Deadline, 'end'>,
  awaitsClient: boolean,
  stage: AttemptStage,
): AttemptFault {
  const code = awaitsClient ? 'request_timeout' : 'upstream_timeout';
  const error = new GatewayError(code, undefined, { cause: `deadline: ${which}` });
  if (which === 'connect') return ended(unconnected(error));
  if (which === 'upload') return ended({ ...maybeExecuted(error, stage), blame: certainBlame(code) });
  if (which === 'headers' || (which === 'first_token' && !stage.hasHead))
    return ended(maybeExecuted(error, stage));
  return broken(error, which !== 'total' && which !== 'search' && stage.hasHead);
}

/** The upstream executed the request, and its answer cannot be relayed. @param why a sentence for the client */
export function faultOfAnswer(why: string, stage: AttemptStage): AttemptFault {
  const message = `${why} The upstream may have billed the answer, so the request was not repeated.`;
  const error = new GatewayError('upstream_unusable_response', message, { cause: why });
  return broken(error, stage.retryAfterSend);
}

/** The request was sent, and no response came. */
function maybeExecuted(error: GatewayError, { retryAfterSend }: AttemptStage): Failure {
  return { ...failure(error, retryAfterSend), mayHaveExecuted: true };
}

function ended(failure: Failure): AttemptFault {
  return { kind: 'failed', failure };
}

function broken(error: GatewayError, tryNextTarget: boolean): AttemptFault {
  return { kind: 'broken', error, tryNextTarget };
}
