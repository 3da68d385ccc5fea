// Calls without a model (files, batches, vector stores, conversations), forwarded to the one upstream that stores the objects. The order of
// the steps is here: the key, the operation, the limits, the owners of the objects, the call, and the record of new objects. Calls that
// could read or end another holder's object are rejected before the upstream is asked.
import type { Authenticator } from '../auth/authenticator.ts';
import { identify, recheck } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import { pickLimits } from '../config/limit-table.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { startDeadline } from '../deadline.ts';
import { type ErrorCode, GatewayError, wrapError } from '../errors.ts';
import { bodyTooLarge, readBody } from '../http/body/read-body.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answer, hasBody } from '../http/exchange/response-writer.ts';
import { isJson, mediaType } from '../http/multipart/media-type.ts';
import { changeLimits } from '../limits/scope.ts';
import { HolderObjects } from '../proxy/objects/object-owners.ts';
import { ReferenceFinder } from '../proxy/objects/object-references.ts';
import { answerFailure } from '../proxy/pipeline.ts';
import { RunningReservation } from '../proxy/reservation/running-reservation.ts';
import { refuseUnpriced } from '../proxy/reservation/unpriced-model.ts';
import { requireAllModels } from '../proxy/routes/access.ts';
import { type ConfigSnapshot, whileHeld } from '../proxy/routes/config-snapshot.ts';
import { isGone } from '../proxy/usage-follower.ts';
import { relayedHeaders } from '../upstream/error-outcome.ts';
import { itemsIn } from '../wire/created-objects.ts';
import { memberOf } from '../wire/error-answer.ts';
import { BatchUsage, type BatchUsageOptions } from './batch-usage.ts';
import { type BatchCall, claimBatch, prepareBatch } from './batches.ts';
import { fieldsOf } from './form-fields.ts';
import { collectAnswer, piecesOf, pipeAnswer } from './passthrough-answer.ts';
import { GoneObjects, type ListQuery, makeList, parseAnswer, readListQuery } from './passthrough-list.ts';
import { type FoundOperation, findOperation, needsReading, seenIn } from './passthrough-operations.ts';
import { type StreamedBody, streamedBody } from './passthrough-pipe.ts';
import { CallFailure, sendCall } from './passthrough-request.ts';

/** Maximum bytes of answers that are read before they are returned. */
const MAX_ANSWER = 4 * 1024 * 1024;
/** Items may contain images. */
const MAX_ITEMS = 32 * 1024 * 1024;
const OTHER_API = "This URL is of OpenAI's API here, and not offered to clients of Anthropic's.";
const NO_BODY = Buffer.alloc(0);
const NONE: ReadonlySet<string> = new Set();
/** What runs a model that the gateway does not route has no price. */
const UNPRICED = { targets: [{ weight: 1 }] };

interface PassthroughOptions extends BatchUsageOptions {
  readonly authenticator: Authenticator;
}

/** One call of a client. */
interface Call
  extends Pick<BatchCall, 'exchange' | 'principal' | 'config' | 'routes' | 'upstream' | 'objects'> {
  readonly reservation: RunningReservation;
  readonly found: FoundOperation;
  /** Raw. */
  readonly path: string;
  readonly search: string;
  readonly maxBody: number;
  readonly maxUpload: number;
}

/** A call that refers to the holder's objects alone. */
interface CheckedCall {
  readonly body: Buffer | StreamedBody;
  /** Objects whose content the call shows, or puts where it can be read. */
  readonly shown: ReadonlySet<string>;
}

export class Passthrough {
  readonly #options: PassthroughOptions;
  readonly #batches: BatchUsage;
  readonly #gone = new GoneObjects();

  constructor(options: PassthroughOptions) {
    this.#options = options;
    this.#batches = new BatchUsage(options);
  }

  /** Leaves the batches that run to another process. */
  close(): Promise<void> {
    return this.#batches.close();
  }

  /** Answers a request for one of the paths, or for a path below them. */
  async answer(exchange: Exchange): Promise<void> {
    await whileHeld(this.#options.snapshot(), (held) => this.#answer(exchange, held));
  }

  async #answer(exchange: Exchange, { config, routes }: ConfigSnapshot): Promise<void> {
    const { authenticator, objects, metering } = this.#options;
    const { passthrough } = config;
    const upstream = routes.upstream(passthrough?.upstream ?? '');
    const [path = '', ...rest] = exchange.target.split('?');
    if (passthrough === undefined || upstream === undefined || !isOffered(path, passthrough.paths))
      throw new GatewayError('unknown_url');
    // Both APIs have these paths: a file must not go to a vendor that its client did not mean.
    if (exchange.isAnthropic) throw new GatewayError('unknown_url', OTHER_API);
    const principal = await identify(authenticator, exchange);
    exchange.throwIfStopped();
    const found = findOperation(exchange.method, path);
    const { runs } = found.operation;
    if (runs !== undefined) requireAllModels(principal, runs);
    const order = await this.#order(exchange, principal, config);
    if (runs !== undefined) refuseUnpriced(config.budgets, order.whole, UNPRICED);
    const reservation = await RunningReservation.open(metering, order);
    const call = {
      exchange,
      principal,
      config,
      routes,
      reservation,
      found,
      upstream,
      objects: new HolderObjects(objects, upstream.name, principal.holderId),
      path,
      search: rest.join('?'),
      maxBody: config.max_body,
      maxUpload: passthrough.max_upload,
    };
    let outcome: 'ok' | ErrorCode = 'internal_error';
    let isAsked = false;
    try {
      await exchange.checkClient();
      const checked = await this.#check(call);
      upstream.acquire();
      isAsked = true;
      exchange.access.upstream = upstream.name;
      exchange.access.attempts = reservation.asked(upstream.name, '');
      await this.#carryOut(call, checked);
      outcome = exchange.error?.code ?? 'ok';
    } catch (error) {
      if (!(error instanceof CallFailure)) {
        outcome = wrapError(error, 'internal_error').code;
        throw error;
      }
      outcome = error.failure.error.code;
      answerFailure(exchange, error.failure);
    } finally {
      if (isAsked) upstream.release(outcome);
      reservation.settle();
    }
  }

  /** Only requests and slots are counted, because tokens are unknown. */
  async #order(exchange: Exchange, principal: Principal, config: DynamicConfig) {
    const scopes = await this.#options.metering.scopes.of(principal, config);
    return {
      exchange,
      principal,
      whole: scopes,
      scopes: changeLimits(scopes, (limits) =>
        pickLimits(limits, ({ counts }) => counts === 'requests' || counts === 'running'),
      ),
      tiers: config.tiers,
      route: { entry: exchange.route ?? '' },
    };
  }

  /**
   * Checks that the holder owns every object that the call refers to.
   * @throws GatewayError object_not_found, or for an invalid body
   */
  async #check(call: Call): Promise<CheckedCall> {
    const { exchange, found, objects, search, maxBody, maxUpload } = call;
    const finder = new ReferenceFinder();
    for (const id of found.ids) finder.certain.add(id);
    for (const id of found.items) finder.possible.add(id);
    finder.addQuery(search);
    const { body: kind } = found.operation;
    if (kind === 'stream') {
      await objects.check(finder);
      const confirm = () => identify(this.#options.authenticator, exchange);
      return { body: streamedBody(exchange, maxUpload, confirm), shown: NONE };
    }
    if (!hasBody(exchange)) {
      await objects.check(finder);
      return { body: NO_BODY, shown: found.operation.shows === true ? finder.certain : NONE };
    }
    if (kind === 'none') throw new GatewayError('invalid_http', 'This request takes no body.');
    const { headers } = exchange.request;
    const isFields = kind === 'form' && mediaType(headers) === 'multipart/form-data';
    if (!isFields && !isJson(mediaType(headers))) throw new GatewayError('unsupported_content_type');
    const body = await readBody(exchange, maxBody);
    await recheck(this.#options.authenticator, exchange);
    if (isFields) finder.addFields(fieldsOf(body, headers['content-type'] ?? ''));
    else await finder.addBody(body);
    await objects.check(finder);
    return { body, shown: finder.certain };
  }

  async #carryOut(call: Call, { body, shown }: CheckedCall): Promise<void> {
    const { exchange, found, objects, path, search } = call;
    const { operation } = found;
    if (operation.lists !== undefined) return this.#list(call, operation.lists);
    const batch =
      operation.makes === 'batch' && Buffer.isBuffer(body)
        ? await prepareBatch(this.#batchCall(call), body)
        : undefined;
    await this.#batches.countOutputs(shown, call, operation.ends === true);
    const { method } = exchange;
    const isMade = operation.makes !== undefined || (operation.derives !== undefined && method === 'POST');
    const isKept = isMade && Buffer.isBuffer(body);
    const piped = await sendCall(call, { method, path, search, body: batch?.body ?? body, isKept });
    if (!needsReading(operation)) {
      if (!(await pipeAnswer(exchange, piped))) {
        exchange.error = exchange.stopReason ?? new GatewayError('stream_incomplete');
        exchange.access.outcome = exchange.error.code;
      }
      return;
    }
    const { response } = piped;
    const bytes = await collectAnswer(exchange, piped, operation.hasItems === true ? MAX_ITEMS : MAX_ANSWER);
    // Azure answers a deletion without a body.
    const isBare = operation.ends === true && response.statusCode === 204;
    if (operation.hasItems === true) await objects.record(itemsIn(bytes));
    else if (!isBare) {
      const seen = seenIn(operation, parseAnswer(bytes));
      if (batch === undefined) await objects.claim(seen);
      else await claimBatch(this.#batchCall(call), seen, batch);
    }
    exchange.throwIfStopped();
    const [id] = found.ids;
    const isDeleted = isBare || (operation.ends === true && memberOf(parseAnswer(bytes), 'deleted') === true);
    // If this fails, the upstream answers later requests that there is no such object.
    if (isDeleted && id !== undefined) await objects.markDeleted(id).catch(() => undefined);
    const type = response.headers['content-type'] ?? 'application/json';
    const headers = { 'content-type': type, ...relayedHeaders(response.headers) };
    answer(exchange, response.statusCode ?? 200, headers, bytes);
  }

  async #list(call: Call, kind: string): Promise<void> {
    const { exchange, found, objects, path, search } = call;
    const query = readListQuery(search);
    const source = {
      page: async (some: ListQuery) => (await objects.list({ ...some, kind })).map(({ id }) => id),
      object: async (id: string) => {
        const bytes = await this.#object(call, `${path}/${id}`);
        if (bytes === undefined) return undefined;
        await objects.claim(found.operation.derives?.(parseAnswer(bytes)) ?? []);
        return bytes;
      },
      ended: async (id: string) => void (await objects.markDeleted(id)),
    };
    const list = await makeList(query, source, this.#gone);
    answer(exchange, 200, { 'content-type': 'application/json' }, list);
  }

  /** @returns undefined if the upstream has no such object */
  async #object(call: Call, path: string): Promise<Buffer | undefined> {
    try {
      const piped = await sendCall(call, { method: 'GET', path });
      return await collectAnswer(call.exchange, piped, MAX_ANSWER);
    } catch (error) {
      if (error instanceof CallFailure && isGone(error.failure.error.status)) return undefined;
      throw error;
    }
  }

  /** What batches.ts needs of a call. */
  #batchCall(call: Call): BatchCall {
    const { exchange, objects } = call;
    return {
      ...call,
      metering: this.#options.metering,
      contentOf: (id, max) => this.#contentOf(call, id, max),
      cancel: async (id) => {
        (await sendCall(call, { method: 'POST', path: `/v1/batches/${id}/cancel` })).abort();
      },
      upload: async (form, type) => {
        const piped = await sendCall(call, { method: 'POST', path: '/v1/files', body: form, type });
        const answer = parseAnswer(await collectAnswer(exchange, piped, MAX_ANSWER));
        const [file] = seenIn(findOperation('POST', '/v1/files').operation, answer);
        if (file === undefined) throw new GatewayError('upstream_invalid_response');
        await objects.claim([file]);
        return file.id;
      },
    };
  }

  async *#contentOf(call: Call, id: string, max: number): AsyncGenerator<Buffer, void> {
    const { exchange, upstream } = call;
    const path = `/v1/files/${encodeURIComponent(id)}/content`;
    const piped = await sendCall(call, { method: 'GET', path });
    const stop = startDeadline(upstream.config.timeouts.total, () => piped.abort());
    try {
      let size = 0;
      for await (const piece of piecesOf(exchange, piped)) {
        size += piece.length;
        if (size > max) throw bodyTooLarge(max);
        yield piece;
      }
    } finally {
      stop();
    }
  }
}

function isOffered(path: string, paths: readonly string[]): boolean {
  return paths.some((each) => path === each || path.startsWith(`${each}/`));
}
