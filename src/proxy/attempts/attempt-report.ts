// What an attempt leaves behind: the access log line that it signs, its trace span, and its usage.
import { maskedName, maskKeys } from '../../telemetry/log/key-mask.ts';
import type { AttemptSpan } from '../../telemetry/traces/tracer.ts';
import { type AttemptEnd, isAnswer, type RelayRequest, resultCodeOf } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';
import type { AttemptOutput } from './attempt-output.ts';

export class AttemptReport {
  readonly #request: RelayRequest;
  readonly #target: Target;
  #span: AttemptSpan | undefined;
  #status: number | undefined;
  #upstreamRequestId: string | undefined;
  #outcome: string | undefined;

  constructor(request: RelayRequest, target: Target) {
    this.#request = request;
    this.#target = target;
  }

  /** @param number of the attempt within its request, from 1. @returns its span */
  begin(number: number): AttemptSpan | undefined {
    const { exchange, endpoint, facts } = this.#request;
    const { upstream, model } = this.#target;
    const { name, provider, server } = upstream;
    this.#span = exchange.span?.attempt({
      upstream: name,
      provider,
      // The client chooses the name where the model is a pattern.
      model: maskedName(model),
      stream: facts.stream,
      endpoint: endpoint.name,
      server,
      number,
    });
    return this.#span;
  }

  firstOutput(): void {
    this.#span?.firstOutput();
  }

  head(status: number, upstreamRequestId: string | undefined): void {
    this.#status = status;
    this.#upstreamRequestId = upstreamRequestId;
  }

  /** Makes this attempt the subject of the access log line, which names one attempt even if two ran. */
  sign(): void {
    const { access } = this.#request.exchange;
    access.upstream = this.#target.upstream.name;
    access.upstream_model = maskKeys(this.#target.model);
    access.upstream_status = this.#status;
    access.upstream_request_id = this.#upstreamRequestId;
    if (this.#outcome !== undefined) access.outcome = this.#outcome;
  }

  /**
   * @param isSent whether the upstream received the request
   * @param isAlone no other attempt of the request ran, so the access log line is of this one
   * @param now monotonic milliseconds
   */
  end(result: AttemptEnd, output: AttemptOutput, isSent: boolean, isAlone: boolean, now: number): void {
    const { exchange, metrics, meter, facts } = this.#request;
    const { upstream, model: target, price, edits } = this.#target;
    const outcome = resultCodeOf(result);
    const { usage } = output;
    this.#span?.end({ outcome, status: this.#status, usage });
    if (usage !== null && isAnswer(result)) {
      exchange.access.prompt_tokens = usage.prompt;
      exchange.access.completion_tokens = usage.completion;
    }
    meter.add({
      ...output.counts(facts),
      upstream: upstream.name,
      target,
      provider: upstream.provider,
      price,
      // Pictures and JSON answers are complete or absent.
      unreported: output.unreported(now, !facts.stream || facts.outputs !== undefined),
      isSent,
      isUnbounded: edits?.dropsTokenLimit,
      hasErrorStatus: (this.#status ?? 200) !== 200,
      outcome,
    });
    if (result.kind !== 'superseded') {
      this.#outcome = outcome;
      if (isAlone) exchange.access.outcome = outcome;
      else this.sign();
    }
    if (result.kind === 'answered' && outcome !== 'ok')
      metrics.streamsBroken.inc({ upstream: upstream.name, cause: outcome });
  }
}
