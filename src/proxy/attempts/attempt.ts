// One request to one target: sends it, enforces its deadlines, and passes the answer to its reader. It ends exactly once and then
// releases everything: timers, listeners, the upstream's concurrency slot.
import { GatewayError } from '../../errors.ts';
import type { BodySource } from '../../http/pieces/body-source.ts';
import { failure } from '../../upstream/error-outcome.ts';
import type { Delivery, ResponseHeaders, Sink } from '../../upstream/transport.ts';
import type { UsageRead } from '../../upstream/usage-reads.ts';
import type { CreatedObjects } from '../../wire/created-objects.ts';
import type { Quantities, Usage } from '../../wire/token-usage.ts';
import { AnswerStart } from '../answer/answer-start.ts';
import { ErrorReader, unansweredFailure, unusable, withoutCredential } from '../answer/error-reader.ts';
import {
  type AttemptEnd,
  type AttemptObserver,
  type AttemptResult,
  failed,
  type Receiver,
  type RelayRequest,
  resultCodeOf,
  type Source,
} from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';
import { AttemptCall } from './attempt-call.ts';
import { AttemptDeadlines, type Deadline } from './attempt-deadlines.ts';
import { type AttemptFault, faultOfAnswer, faultOfCall, faultOfDeadline } from './attempt-faults.ts';
import { AttemptOutput } from './attempt-output.ts';
import { AttemptReport } from './attempt-report.ts';
import type { Contender, Race } from './hedge.ts';

export class Attempt implements Sink, Source, Contender {
  readonly #request: RelayRequest;
  readonly #target: Target;
  readonly created: ((created: CreatedObjects) => Promise<void>) | undefined;
  readonly #observer: AttemptObserver;
  readonly #race: Race | undefined;
  readonly #report: AttemptReport;
  readonly #call: AttemptCall;
  readonly #output = new AttemptOutput();
  /** Set after the client has left while the upstream is still read for its usage. */
  #usageRead: UsageRead | undefined;
  #deadlines: AttemptDeadlines | undefined;
  #receiver: Receiver | undefined;
  #isStream = false;
  /** When bytes of the answer came last, in monotonic milliseconds: the time of the output in them. */
  #receivedAt = 0;
  #settle: ((result: AttemptEnd) => void) | undefined;

  /** @param race set if another attempt of the same request may run at the same time */
  constructor(request: RelayRequest, target: Target, observer: AttemptObserver, race?: Race) {
    this.#request = request;
    this.#target = target;
    const { register } = request;
    this.created = register && ((created) => register(created, target));
    this.#observer = observer;
    this.#race = race;
    this.#report = new AttemptReport(request, target);
    this.#call = new AttemptCall(request, target);
  }

  /**
   * @param body the complete body, rewritten for the target
   * @param fresh use a new connection, because a kept-alive one was stale
   * @param searchEndsAt end of `retry.deadline`, in monotonic milliseconds
   * @throws nothing: every error is a result
   */
  run(body: Buffer | BodySource, fresh: boolean, searchEndsAt?: number): Promise<AttemptEnd> {
    const { upstream, timeouts = upstream.config.timeouts } = this.#target;
    const busy = this.#call.acquire();
    if (busy !== undefined) return Promise.resolve(failed(busy));
    this.sign();
    return new Promise((resolve) => {
      this.#settle = resolve;
      this.#race?.enter(this);
      this.#request.exchange.onStop(this.#onStop);
      const now = this.#call.sentAt;
      this.#deadlines = new AttemptDeadlines(timeouts, this.#onDeadline, undefined, now, searchEndsAt);
      this.#call.send(body, fresh, this.#report.begin(this.#observer.onBegin()), this);
    });
  }

  onSent(): void {
    this.#output.sent(this.#call.sent());
    if (this.#receiver === undefined)
      this.#deadlines?.awaitHead(this.#request.facts.stream, this.#call.sentAt);
  }

  onUpload(): void {
    this.#call.isSent = true;
    this.#deadlines?.upload(false);
  }

  onStall(isStalled: boolean): void {
    if (this.#receiver === undefined) this.#deadlines?.upload(isStalled);
  }

  onHead(status: number, headers: ResponseHeaders): void {
    // A transport without connections does not report the sending first.
    if (!this.#call.isSent) this.#output.sent(this.#call.sentAt);
    this.#call.isSent = true;
    this.#guard(() => {
      this.#report.head(status, this.#target.upstream.requestIdIn(headers));
      if (this.#race === undefined) this.sign();
      if (status !== 200) {
        this.#receiver = new ErrorReader(status, headers, this);
        this.#deadlines?.enter('error_body');
      } else this.#receiver = new AnswerStart(this.#request, headers, this);
    });
  }

  onData(chunk: Buffer): void {
    this.#receivedAt = performance.now();
    // `idle` restarts on comments and pings, `first_token` only on output. An upstream error has one deadline for its body.
    if (this.#deadlines?.phase === 'idle') this.#deadlines.refresh(this.#receivedAt);
    try {
      if (this.#settle !== undefined) this.#receiver?.data(chunk);
    } catch (error) {
      this.crashed(error);
    }
  }

  onEnd(): void {
    if (this.#settle === undefined) this.#call.ended();
    else this.#guard(() => this.#receiver?.end());
  }

  /** A bug in a receiver ends this attempt only. */
  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.crashed(error);
    }
  }

  expects(isStream: boolean): void {
    this.#isStream = isStream;
    this.#deadlines?.awaitAnswer(isStream);
  }

  reads(receiver: Receiver): void {
    this.#receiver = receiver;
  }

  onError(error: GatewayError, delivery: Delivery): void {
    if (this.#settle === undefined) this.#call.ended();
    else {
      if (delivery === 'not_sent') this.#call.isSent = false;
      this.#break(faultOfCall(error, delivery, this.#stage));
    }
  }

  pause(): void {
    // While the client does not read, silence is not the upstream's fault.
    this.#deadlines?.hold();
    this.#call.pause();
  }

  resume(): void {
    this.#deadlines?.resume();
    this.#call.resume();
  }

  used(usage: Usage | null, outputs: number, textBytes = 0, measured?: Quantities): void {
    this.#output.used(performance.now(), usage, outputs, textBytes, measured);
  }

  progress(): void {
    if (this.#output.progress(this.#receivedAt)) {
      this.#observer.onOutput(this.#receivedAt - this.#call.sentAt);
      this.#report.firstOutput();
    }
    if (this.#deadlines?.phase === 'first_token') this.#deadlines.enter('idle', this.#receivedAt);
  }

  get isUndecided(): boolean {
    return this.#race?.isUndecided === true;
  }

  commit(): boolean {
    if (this.#race?.commit(this) === false) return false;
    this.#deadlines?.endSearch();
    this.#observer.onCommit();
    return true;
  }

  quotesCredential(text: Buffer): boolean {
    return this.#target.upstream.quotesCredential(text);
  }

  lastFrame(): void {
    this.#deadlines?.enter('end');
  }

  unusable(cause: unknown): void {
    this.#fail(unusable(cause), true);
  }

  unrelayable(why: string): void {
    this.#break(faultOfAnswer(why, this.#stage));
  }

  /** A bug in the gateway fails this request only: it must reach neither the transport nor the process. */
  crashed(cause: unknown): void {
    const error = new GatewayError('internal_error', undefined, { cause });
    try {
      this.#fail(error, false);
    } catch {
      // Writing to the client failed, so close its connection, unless another attempt may still answer.
      if (!this.isUndecided) this.#request.exchange.response.destroy();
      this.#finish(failed(failure(error, false)));
    }
  }

  incomplete(cause: unknown): void {
    this.#fail(new GatewayError('stream_incomplete', undefined, { cause }), true);
  }

  finish(result: AttemptResult): void {
    this.#finish(result, this.#usageRead !== undefined);
  }

  /** Makes this attempt the subject of the access log line, until another one signs. In a race, the winner signs. */
  sign(): void {
    this.#report.sign();
  }

  lost(): void {
    if (this.#settle === undefined) return;
    // Upstream errors and JSON answers have no first token to measure, and nor does a wait for a connection.
    const isSilent = this.#receiver === undefined || (this.#isStream && !this.#output.hasBegun);
    if (isSilent && this.#deadlines?.phase !== 'connect') this.#observer.onLost(this.#call.elapsedMs);
    this.#finish({ kind: 'superseded' });
  }

  soleAttempt(): void {
    // The request is stopped already and ends by itself.
    if (this.#settle === undefined || this.#request.exchange.stopReason !== undefined) return;
    this.#guard(() => this.#receiver?.soleAttempt?.());
  }

  readonly #onDeadline = (which: Deadline) => {
    if (which === 'end') return this.#guard(() => this.#receiver?.end());
    const isOfStream = which === 'first_token' || (which === 'idle' && this.#isStream);
    if (which === 'headers' || (isOfStream && !this.#output.hasBegun))
      this.#observer.onSilence(this.#call.elapsedMs);
    this.#break(faultOfDeadline(which, this.#deadlines?.awaitsClient === true, this.#stage));
  };

  get #stage() {
    return { hasHead: this.#receiver !== undefined, retryAfterSend: this.#request.config.retry.after_send };
  }

  #break(fault: AttemptFault): void {
    if (fault.kind === 'failed') this.#finish(fault);
    else this.#fail(fault.error, fault.tryNextTarget);
  }

  readonly #onStop = (reason: GatewayError) => {
    if (reason.code !== 'client_closed' || !this.#readOn()) this.#fail(reason, false);
  };

  /** The client left when only the usage was missing: read on. The holder's and upstream's slots stay taken. */
  #readOn(): boolean {
    const { exchange, usageReads } = this.#request;
    if (this.#receiver?.leave?.() !== true) return false;
    this.#usageRead = usageReads?.begin(() => this.#fail(new GatewayError('client_closed'), false));
    if (this.#usageRead === undefined) return false;
    exchange.markAnswered();
    this.resume();
    return true;
  }

  /** Ends the attempt from the gateway's side, or because the upstream broke. */
  #fail(error: GatewayError, next: boolean): void {
    if (this.#settle === undefined) return;
    // The receiver may end the exchange, which must not stop this attempt a second time.
    this.#request.exchange.offStop(this.#onStop);
    this.#finish(this.#receiver?.broken(error) ?? failed(unansweredFailure(error, next)));
  }

  /** @param isAtEnd the rest of the upstream's answer is not needed, so its connection is reusable at the end of the body */
  #finish(result: AttemptEnd, isAtEnd = false): void {
    const settle = this.#settle;
    if (settle === undefined) return;
    this.#settle = undefined;
    this.#deadlines?.stop();
    this.#request.exchange.offStop(this.#onStop);
    this.#receiver?.dispose();
    const isWhole = result.kind === 'answered' && result.outcome === 'ok';
    if (isWhole && !this.#output.hasBegun) this.#observer.onOutput(undefined);
    const now = performance.now();
    this.#call.finish(resultCodeOf(result), (isWhole || isAtEnd) && this.#isStream, now);
    this.#report.end(result, this.#output, this.#call.isSent, this.#race === undefined, now);
    this.#usageRead?.end(this.#output.usage !== null);
    this.#race?.leave(this);
    const { upstream } = this.#target;
    settle(result.kind === 'failed' ? failed(withoutCredential(result.failure, upstream)) : result);
  }
}
