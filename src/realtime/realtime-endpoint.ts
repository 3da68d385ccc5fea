// `GET /v1/realtime`: from a handshake to a session with one of the model's targets. The order of the steps is here, as in pipeline.ts
// for chat. realtime-dial.ts is one attempt, realtime-session.ts the session after the 101.

import type { Authenticator } from '../auth/authenticator.ts';
import { identify, offeredKey } from '../auth/identify.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError, wrapError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { UPGRADE_REQUIRED_HEADERS, type Upgrade, upgradeRejectionOf } from '../http/exchange/upgrade.ts';
import { answerFailure } from '../proxy/pipeline.ts';
import { SessionUsage } from '../proxy/reservation/realtime-usage.ts';
import {
  RunningReservation,
  type RunningReservationOptions,
} from '../proxy/reservation/running-reservation.ts';
import { refuseUnpriced } from '../proxy/reservation/unpriced-model.ts';
import { setLimitHeaders } from '../proxy/reservation/usage-reservation.ts';
import { type ConfigSnapshot, whileHeld } from '../proxy/routes/config-snapshot.ts';
import type { Route, Target } from '../proxy/routes/route-table.ts';
import type { Resilience } from '../proxy/targets/resilience.ts';
import { isOwnRejection, type PlannedTarget, rejectedAttempt } from '../proxy/targets/target-plan.ts';
import { maskedName, maskKeys } from '../telemetry/log/key-mask.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { blameFor, type Failure, failure } from '../upstream/error-outcome.ts';
import type { UsageReads } from '../upstream/usage-reads.ts';
import { type ClientSecrets, firstEventOf } from './client-secret.ts';
import { type Dialled, dialAuthorized } from './realtime-dial.ts';
import { EarlyBytes } from './realtime-early.ts';
import { ClientEvents } from './realtime-members.ts';
import { readProtocols, readSessionQuery, type SessionQuery } from './realtime-request.ts';
import { Session } from './realtime-session.ts';
import { CreatedFilter, TranscriptionStart } from './transcription-start.ts';
import { recordSessionEnd, type SessionEnd } from './websocket/session-end.ts';
import { acceptedHead } from './websocket/websocket-handshake.ts';

export interface RealtimeOptions {
  readonly authenticator: Authenticator;
  readonly snapshot: () => ConfigSnapshot;
  readonly metrics: Metrics;
  readonly resilience: Resilience;
  readonly metering: RunningReservationOptions;
  /** For sessions whose clients disconnected. */
  readonly usageReads: UsageReads;
  readonly secrets: ClientSecrets;
}

/** A session to open. */
interface Order {
  readonly exchange: Exchange;
  readonly upgrade: Upgrade;
  readonly config: DynamicConfig;
  readonly route: Route;
  /** Checks the client's events; undefined if none is rejected. */
  readonly events: ClientEvents | undefined;
  readonly query: SessionQuery;
  readonly protocols: readonly string[];
  readonly reservation: RunningReservation;
  /** Set when the client has its 101 already. */
  readonly start: TranscriptionStart | undefined;
  /** What the upstream gets first. @param model its name there */
  readonly first: ((model: string) => Buffer) | undefined;
}

export class Realtime {
  readonly #options: RealtimeOptions;

  constructor(options: RealtimeOptions) {
    this.#options = options;
  }

  /** Resolves when the session ended or was rejected. */
  async answer(exchange: Exchange): Promise<void> {
    await whileHeld(this.#options.snapshot(), (held) => this.#answer(exchange, held));
  }

  async #answer(exchange: Exchange, { config, routes }: ConfigSnapshot): Promise<void> {
    const { authenticator, metering, secrets } = this.#options;
    const { headers } = exchange.request;
    const { upgrade } = exchange;
    if (upgrade === undefined) {
      Object.assign(exchange.headers, UPGRADE_REQUIRED_HEADERS);
      throw upgradeRejectionOf(exchange.request) ?? new GatewayError('upgrade_required');
    }
    const offered = readProtocols(headers['sec-websocket-protocol']);
    const authorization = offeredKey(headers) ?? offered.authorization;
    const secret = await secrets.identify(exchange, authorization);
    const principal = secret?.principal ?? (await identify(authenticator, exchange, 'good', authorization));
    exchange.throwIfStopped();

    let scopes = await metering.scopes.of(principal, config);
    let hasLimitHeaders = false;
    let reservation: RunningReservation | undefined;
    let start: TranscriptionStart | undefined;
    try {
      routes.checkEndpoint(principal, 'realtime');
      const query = readSessionQuery(exchange.target, secret?.bound);
      if (query.model === undefined)
        start = await TranscriptionStart.open(exchange, upgrade, headOf(exchange, offered.forwarded));
      const model = query.model ?? start?.model ?? '';
      exchange.model = maskedName(model);
      exchange.entry = 'unknown';
      exchange.endpoint = 'realtime';
      const route = routes.resolve(model, principal, 'realtime');
      exchange.entry = route.entry;
      scopes = await metering.scopes.of(principal, config, route.entry);
      refuseUnpriced(config.budgets, scopes, route);
      hasLimitHeaders = true;
      reservation = await RunningReservation.open(metering, {
        exchange,
        principal,
        route,
        scopes,
        tiers: config.tiers,
      });
      await exchange.checkClient();
      const events = ClientEvents.for(routes.watched, route);
      await this.#open({
        exchange,
        upgrade,
        config,
        route,
        events,
        query,
        protocols: offered.forwarded,
        reservation,
        start,
        first: start?.bytesFor.bind(start) ?? (secret && firstEventOf(secret.bound)),
      });
    } catch (error) {
      if (exchange.response.statusCode === 101) {
        failStarted(exchange, start, wrapError(error, 'internal_error'));
        return;
      }
      // Earlier rejections have limit headers too.
      if (!hasLimitHeaders) await setLimitHeaders(metering.limiter, exchange, scopes);
      throw error;
    } finally {
      reservation?.settle();
    }
  }

  /** Tries one target after the other until one answers 101, none is left, or another one would not help. */
  async #open(order: Order): Promise<void> {
    const { exchange, upgrade, config, route, start } = order;
    const { resilience, metrics } = this.#options;
    const early = new EarlyBytes(exchange, start === undefined ? upgrade : { ...upgrade, head: start.rest });
    const endsAt = performance.now() + config.retry.deadline;
    const plan = resilience.planFor(route);
    let last: Failure | undefined;
    for (let attempt = 1; ; attempt += 1) {
      const step = plan.next();
      if (step.kind === 'exhausted') {
        last ??= rejectedAttempt(step);
        break;
      }
      if (last === undefined) resilience.budget.deposit();
      else if (last.skipsRetryBudget !== true && !resilience.budget.withdraw()) {
        step.permit.release({ kind: 'neutral' });
        metrics.retryBudgetRefusals.inc();
        break;
      } else metrics.extraAttempts.inc({ upstream: step.target.upstream.name, reason: 'fallback' });
      const result = await this.#try(order, step, early, endsAt - performance.now());
      if (result === undefined) return;
      // A busy target does not replace the answer of another one.
      if (last === undefined || !isOwnRejection(result.error.code)) last = result;
      exchange.throwIfStopped();
      if (!result.tryNextTarget || attempt >= config.retry.attempts || performance.now() >= endsAt) break;
    }
    if (start !== undefined || last.error.code === 'internal_error') throw last.error;
    answerFailure(exchange, last);
  }

  /** @returns why there is no session; undefined if there was one and it ended */
  async #try(
    order: Order,
    { target, permit }: PlannedTarget<Target>,
    early: EarlyBytes,
    maxMs: number,
  ): Promise<Failure | undefined> {
    const { exchange, query, protocols, reservation } = order;
    const { upstream, model, price, forwarded } = target;
    const { access } = exchange;
    let outcome: SessionEnd['outcome'] | undefined;
    let judged: Failure | undefined;
    try {
      upstream.acquire();
    } catch (error) {
      permit.release({ kind: 'neutral' });
      return { ...failure(wrapError(error, 'upstream_busy'), true), skipsRetryBudget: true };
    }
    try {
      access.attempts = reservation.asked(upstream.name, model, price);
      access.upstream = upstream.name;
      access.upstream_model = maskKeys(model);
      access.upstream_status = undefined;
      access.upstream_request_id = undefined;
      const path = pathAt(target, query);
      const { timeouts = upstream.config.timeouts } = target;
      const about = { exchange, upstream, timeouts, forwarded, path };
      const result = await dialAuthorized({ ...about, protocols, model, maxMs });
      if (result.kind === 'failed') {
        judged = result.failure;
        return judged;
      }
      permit.answered();
      reservation.opened();
      const end = await this.#run(order, result, early, target);
      outcome = end.outcome;
      return undefined;
    } finally {
      const code = outcome ?? judged?.error.code ?? 'internal_error';
      upstream.release(code);
      permit.release(judged?.blame ?? blameFor(code));
    }
  }

  async #run(
    { exchange, upgrade, config, events, reservation, start, first }: Order,
    { head, upstream }: Extract<Dialled, { kind: 'open' }>,
    early: EarlyBytes,
    { upstream: { name: upstreamName }, model }: Target,
  ): Promise<SessionEnd> {
    const { metrics } = this.#options;
    const { access, response } = exchange;
    let responses = 0;
    const usage = new SessionUsage((use) => {
      responses += 1;
      access.responses = responses;
      metrics.realtimeResponses.inc({ counted: use.isEstimated ? 'estimated' : 'reported' });
      reservation.use(use);
      void closeIfSpent(session, reservation);
    });
    const session: Session = new Session({
      exchange,
      client: upgrade.socket,
      early: first === undefined ? early.take() : Buffer.concat([first(model), early.take()]),
      head: start === undefined ? head : '',
      upstream,
      fromUpstream: start && new CreatedFilter().pass,
      limits: { ...config.realtime, writeStall: config.stream.write_stall },
      events,
      usage,
      usageReads: this.#options.usageReads,
      onEnd: (end) => {
        reservation.ended(end.outcome);
        recordSessionEnd(exchange, end, session);
        const isOfProtocol = end.code >= 1000 && end.code <= 1015;
        metrics.realtimeEnds.inc({ by: end.by, code: isOfProtocol ? String(end.code) : 'other' });
        if (end.outcome === 'stream_incomplete')
          metrics.streamsBroken.inc({ upstream: upstreamName, cause: end.outcome });
      },
    });
    response.statusCode = 101;
    metrics.realtimeSessions.inc();
    try {
      return await session.run();
    } finally {
      metrics.realtimeSessions.dec();
    }
  }
}

function headOf({ request, headers }: Exchange, protocols: readonly string[]): string {
  const protocol = protocols.find((each) => each === 'realtime');
  return acceptedHead(request.headers, protocol, headers);
}

/** After the 101, an error is an event. */
function failStarted(exchange: Exchange, start: TranscriptionStart | undefined, error: GatewayError): void {
  start?.fail(error);
  exchange.error ??= error;
  exchange.access.outcome = error.code;
  if (error.code !== 'client_closed') exchange.markAnswered();
}

/** Ends the session of a holder without tokens. */
async function closeIfSpent(session: Session, reservation: RunningReservation): Promise<void> {
  try {
    const rejection = await reservation.spent();
    if (rejection === undefined) return;
    // After a minute limit the client can try again later (IANA: 1013), after a quota it cannot (RFC 6455, 7.4.1: 1008, policy violation).
    const code = rejection.code === 'insufficient_quota' ? 1008 : 1013;
    session.close(code, rejection.code, rejection.code, rejection);
  } catch {
    // The limiter is unavailable. The next answer checks again.
  }
}

function pathAt({ upstream, model }: Target, query: SessionQuery): string {
  const { config } = upstream;
  if (config.kind !== 'http') return '/';
  return upstream.pathWith('realtime', query.rewrite(config.send_model === false ? undefined : model));
}
