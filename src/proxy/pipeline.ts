// The pipeline of a request for a model, from authentication to the last byte. It fixes the order of the steps; others do them.
import type { Authenticator } from '../auth/authenticator.ts';
import { identify, recheck } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import type { FallbackReason } from '../config/schema/model-schema.ts';
import { PACE, readBody } from '../http/body/read-body.ts';
import type { SpoolFiles } from '../http/body/upload-spool.ts';
import { asAnthropicError } from '../http/exchange/anthropic-error.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answer, answerError } from '../http/exchange/response-writer.ts';
import type { BufferPool } from '../http/pieces/buffer-pool.ts';
import type { Scopes } from '../limits/scope.ts';
import { maskedName } from '../telemetry/log/key-mask.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Failure } from '../upstream/error-outcome.ts';
import type { UsageReads } from '../upstream/usage-reads.ts';
import { Attempts } from './attempts/attempts.ts';
import type { BackgroundUsage } from './background-usage.ts';
import type { Endpoint, RequestFacts } from './contracts/endpoint.ts';
import type { AttemptUse, RelayRequest, RequestContent } from './contracts/receiver.ts';
import { calledEndpoint, requireJson } from './endpoints/called-endpoint.ts';
import { FormRequest, isForm } from './endpoints/form-request.ts';
import { guardObjects } from './objects/object-guard.ts';
import type { ObjectOwners } from './objects/object-owners.ts';
import { routeToMaker } from './objects/sealed-content.ts';
import { chargedAtFirst, responseRegistrar, type StoredResponses } from './objects/stored-responses.ts';
import { affinityKey } from './request/affinity-key.ts';
import { LargeRequest } from './request/large-request.ts';
import { checkMembers, withFoundMembers } from './request/member-edits.ts';
import { isFalse, jsonString } from './request/request-scan.ts';
import { mayBeLarge, RequestSlot } from './reservation/request-slot.ts';
import { refuseUnpriced } from './reservation/unpriced-model.ts';
import { visible } from './reservation/usage-meter.ts';
import {
  type ReservationOptions,
  setLimitHeaders,
  UsageReservation,
} from './reservation/usage-reservation.ts';
import type { ConfigSnapshot } from './routes/config-snapshot.ts';
import { type Route, type Target, targetName } from './routes/route-table.ts';
import type { Resilience } from './targets/resilience.ts';
import type { Affinity } from './targets/target-plan.ts';

const NO_BYTES: Buffer = Buffer.alloc(0);
const NO_REASONS: readonly FallbackReason[] = [];

export interface PipelineOptions {
  readonly authenticator: Authenticator;
  readonly snapshot: () => ConfigSnapshot;
  readonly metrics: Metrics;
  readonly resilience: Resilience;
  readonly metering: ReservationOptions;
  /** Ownership of the objects that requests refer to. */
  readonly objects: ObjectOwners;
  readonly stored: StoredResponses;
  readonly background: BackgroundUsage;
  /** Spool space for uploads. */
  readonly room: SpoolFiles;
  /** For large bodies. */
  readonly buffers: BufferPool;
  /** For streams whose clients have left. */
  readonly usageReads: UsageReads;
}

interface AdmittedRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly endpoint: Endpoint;
  readonly facts: RequestFacts;
  readonly config: DynamicConfig;
  readonly route: Route;
  readonly scopes: Scopes;
  readonly reservation: UsageReservation;
}

/** What a request holds until its end. */
interface Held {
  /** As far as they are known. */
  scopes?: Scopes;
  slot?: RequestSlot;
  large?: LargeRequest;
  form?: FormRequest;
  reservation?: UsageReservation;
}

export class Pipeline {
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  /** `POST` to the path of an endpoint. */
  answer(exchange: Exchange, endpoint: Endpoint): Promise<void> {
    return this.#answer(exchange, calledEndpoint(endpoint, exchange), this.#options.snapshot());
  }

  async #answer(exchange: Exchange, endpoint: Endpoint, snapshot: ConfigSnapshot): Promise<void> {
    const held: Held = {};
    // As `whileHeld`, without a promise of its own.
    snapshot.enter();
    try {
      const attempts = await this.#admit(exchange, endpoint, snapshot, held);
      // What is in scope here lives as long as the answer: neither the body nor what was read of it.
      const result = await attempts.run();
      if (result.kind === 'failed') answerFailure(exchange, result.failure);
    } catch (error) {
      // Rejections before the limiter was asked show the limits too.
      if (held.slot?.isAsked === false && held.scopes !== undefined)
        await setLimitHeaders(this.#options.metering.limiter, exchange, held.scopes);
      throw error;
    } finally {
      try {
        held.reservation?.settle();
        held.slot?.release();
        held.large?.release();
        if (held.form !== undefined) await held.form.close();
      } finally {
        snapshot.leave();
      }
    }
  }

  /** All steps before the first attempt. @param held receives what the caller releases at the end */
  async #admit(
    exchange: Exchange,
    endpoint: Endpoint,
    { config, routes }: ConfigSnapshot,
    held: Held,
  ): Promise<Attempts> {
    const { authenticator, metering } = this.#options;
    const identified = identify(authenticator, exchange);
    // Most keys are cached: skip the promise and its microtask.
    const principal = identified instanceof Promise ? await identified : identified;
    exchange.throwIfStopped();

    const ofHolder = metering.scopes.of(principal, config);
    // Most teams are known: skip the promise.
    held.scopes = ofHolder instanceof Promise ? await ofHolder : ofHolder;
    const slot = new RequestSlot(metering, {
      exchange,
      principal,
      scopes: held.scopes,
      tiers: config.tiers,
    });
    held.slot = slot;
    const large = new LargeRequest(endpoint.wanted, this.#options.buffers, routes.watched, () => slot.take());
    held.large = large;
    routes.checkEndpoint(principal, endpoint.name);
    const { form: rules } = endpoint;
    if (isForm(exchange, rules)) {
      if (mayBeLarge(exchange, config.max_body)) await slot.take();
      held.form = await FormRequest.open({
        exchange,
        rules,
        limit: config.max_body,
        room: this.#options.room,
        confirm: () => identify(authenticator, exchange),
        watched: routes.watched,
        isChanged: (model) =>
          routes.find(exchange.deployment ?? model)?.targets.some(({ edits }) => edits !== undefined) ===
          true,
      });
    } else requireJson(exchange, endpoint);
    const { form } = held;
    const body = form === undefined ? await readBody(exchange, config.max_body, PACE, large) : NO_BYTES;
    const rechecked = recheck(authenticator, exchange);
    if (rechecked instanceof Promise) await rechecked;
    const read = form?.scan ?? large.scan(body);
    const facts = form?.facts ?? endpoint.readFacts(body, read);
    const model = exchange.deployment ?? read.model;
    exchange.model = maskedName(model);
    exchange.isStream = facts.stream;
    exchange.entry = 'unknown';
    exchange.endpoint = endpoint.name;
    const found = routes.resolve(model, principal, endpoint.name);
    for (const name of endpoint.otherModels?.(body, read) ?? []) routes.checkOther(name, principal);
    const resolved = endpoint.session?.usable(found) ?? found;
    exchange.entry = resolved.entry;
    const scan = form === undefined ? withFoundMembers(resolved, body, read) : read;
    if (form === undefined) checkMembers(resolved, body, scan);
    else form.check(resolved);
    // Forms contain their files and refer to no objects.
    const guarded =
      form === undefined
        ? guardObjects(this.#options, { endpoint, config, principal, route: resolved, body })
        : resolved;
    // Most bodies have no references: skip the promise.
    const allowed = guarded instanceof Promise ? await guarded : guarded;
    const { objects } = this.#options;
    const route =
      keepsSeals(allowed, endpoint) && form === undefined
        ? await routeToMaker(objects, principal.holderId, allowed, body)
        : allowed;
    if (route !== allowed) this.#options.metrics.affinity.inc({ result: 'maker' });
    const { estimate, quantities } = facts;
    const ofModel = metering.scopes.of(principal, config, route.entry);
    const scopes = ofModel instanceof Promise ? await ofModel : ofModel;
    held.scopes = scopes;
    refuseUnpriced(config.budgets, scopes, route);
    const opening = UsageReservation.open(metering, {
      exchange,
      principal,
      route,
      scopes,
      slot,
      estimate,
      quantities,
    });
    // Most decisions are made in memory: skip the promise.
    const reservation = opening instanceof Promise ? await opening : opening;
    held.reservation = reservation;
    const checking = exchange.checkClient();
    if (checking !== undefined) await checking;
    const admitted = { exchange, principal, endpoint, facts, config, route, scopes, reservation };
    return this.#attempts(admitted, { body, scan, form }, large);
  }

  #attempts(admitted: AdmittedRequest, content: RequestContent, large: LargeRequest): Attempts {
    const { exchange, principal, endpoint, facts, config, route, reservation } = admitted;
    const { body, scan, form } = content;
    const { metrics, resilience, stored, objects, buffers, usageReads } = this.#options;
    const isStored = !isFalse(body, scan.others.get('store'));
    const { session } = endpoint;
    const { meter } = reservation;
    const background = facts.isBackground === true ? this.#watching(admitted) : undefined;
    const registration = { stored, objects, principal, route, facts, isStored, meter, session, background };
    const registrar = endpoint.createdIn === undefined ? undefined : responseRegistrar(registration);
    const request: RelayRequest = {
      exchange,
      endpoint,
      facts,
      alias: route.responseModel === 'alias' ? jsonString(route.model) : undefined,
      includeUsage: scan.includeUsage,
      config,
      fallbackOn: route.fallbackOn ?? NO_REASONS,
      contentType: form?.contentType,
      metrics,
      buffers,
      usageReads,
      keepsSeals: keepsSeals(route, endpoint),
      meter: registrar?.meter ?? reservation.meter,
      register: registrar?.register,
    };
    const affinity = affinityOf(admitted, content, metrics);
    // Who still writes the body holds its memory, too.
    return new Attempts({ request, route, resilience, affinity, onCommit: () => large.release() }, content);
  }

  #watching({ principal, scopes, route, facts }: AdmittedRequest) {
    const { background } = this.#options;
    const { model, entry } = route;
    const about = { principal, scopes, model, entry, charged: chargedAtFirst(facts, route) };
    return {
      watch: (id: string, target: Target) => background.watch({ ...about, id, target }),
      saw: (id: string, use: AttemptUse) => background.saw(id, visible(use)),
      settled: (id: string) => background.settled(id),
    };
  }
}

/** Whether the maker of encrypted contents matters, and is known to the gateway. */
function keepsSeals({ sessionHeader }: Route, { namesObjects, createdIn }: Endpoint): boolean {
  return sessionHeader !== undefined && namesObjects === true && createdIn !== undefined;
}

/** What decides about the target with `balance: affinity`; undefined with another, or without a key. */
function affinityOf(
  { exchange, principal, route }: AdmittedRequest,
  { body, scan, form }: RequestContent,
  { affinity }: Metrics,
): Affinity<Target> | undefined {
  const { sessionHeader: header, maker } = route;
  if (header === undefined) return undefined;
  const { headers } = exchange.request;
  const members = form === undefined ? scan.members : undefined;
  const key = affinityKey({ headers, header, holderId: principal.holderId, body, members });
  return key === undefined
    ? undefined
    : { key, maker, nameOf: targetName, onChoice: (result) => affinity.inc({ result }) };
}

/** Answers with the failure of the last attempt. @throws the error of a bug in the gateway: the server logs it with its stack */
export function answerFailure(exchange: Exchange, { error, verbatim, headers }: Failure): void {
  if (error.code === 'internal_error') throw error;
  if (verbatim === undefined) {
    answerError(exchange, error, headers);
    return;
  }
  const { status, body, type = 'application/json' } = verbatim;
  // Status 200: an answer that the upstream's content filter emptied.
  if (status !== 200) exchange.error = error;
  exchange.access.outcome = status === 200 ? 'ok' : error.code;
  const shaped = exchange.isAnthropic && status !== 200 ? asAnthropicError(status, body, exchange.id) : body;
  answer(exchange, status, { 'content-type': type, ...headers }, shaped);
}
