// Batches of routed models: checks the lines of the input file, and rewrites them where the target has another name or body rules.
// passthrough-endpoint.ts makes the calls; batch-usage.ts counts what a batch used.
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError, parameterError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Endpoint } from '../proxy/contracts/endpoint.ts';
import { MODEL_ENDPOINTS } from '../proxy/endpoints/form-endpoints.ts';
import type { HolderObjects, SeenObject } from '../proxy/objects/object-owners.ts';
import { spliceSpans } from '../proxy/request/request-scan.ts';
import {
  RunningReservation,
  type RunningReservationOptions,
} from '../proxy/reservation/running-reservation.ts';
import { refuseUnpriced } from '../proxy/reservation/unpriced-model.ts';
import type { Route, RouteTable, Target } from '../proxy/routes/route-table.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { BatchInput, batchOrderOf, linesOf, MAX_BATCH_INPUT, requestOfLine } from './batch-input.ts';
import { batchRecords } from './batch-records.ts';

export interface BatchCall {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly config: DynamicConfig;
  readonly routes: RouteTable;
  readonly upstream: Upstream;
  readonly objects: HolderObjects;
  readonly metering: RunningReservationOptions;
  /** The pieces of a file at the upstream. @param max bytes */
  readonly contentOf: (id: string, max: number) => AsyncIterable<Buffer>;
  /** Cancels a batch at the upstream. */
  readonly cancel: (id: string) => Promise<void>;
  /** Uploads a form. @returns the id of the new file */
  readonly upload: (form: Readable, contentType: string) => Promise<string>;
}

/** A request for a batch that may be sent. */
export interface PreparedBatch {
  readonly body: Buffer;
  /** The path of its endpoint and the public name of its model, for `batchRecords`. */
  readonly model: string;
}

/**
 * Checks the input file of a batch, which never changes, and replaces it by one that the target of its model takes.
 * @param body of the request, a valid JSON text
 * @throws GatewayError for a line that is no valid request, several models, a model that the key may not use or that the upstream does
 *   not serve, members that it rejects, spent limits, and references to objects that are not the holder's
 */
export async function prepareBatch(call: BatchCall, body: Buffer): Promise<PreparedBatch> {
  const { upstream, principal, config, routes, metering, exchange } = call;
  const { inputFile, span, endpoint: path = '' } = batchOrderOf(body);
  const endpoint = endpointOfBatch(path);
  routes.checkEndpoint(principal, endpoint.name);
  const { route, target } = await placeOfFile(call, inputFile, endpoint);
  const { model } = route;
  const scopes = await metering.scopes.of(principal, config, route.entry);
  refuseUnpriced(config.budgets, scopes, { targets: [target] });
  const request = { exchange, principal, route, scopes, tiers: config.tiers };
  const rejection = await RunningReservation.rejectionOf(metering, request, target.price);
  if (rejection !== undefined) throw rejection;
  const isSame = target.model === model && target.edits === undefined;
  if (isSame && upstream.config.send_model !== false) return { body, model: nameOf(path, model) };
  const boundary = `tollgate-${randomBytes(16).toString('hex')}`;
  const form = Readable.from(formOf(call, { inputFile, endpoint, route, target, boundary }));
  const file = await call.upload(form, `multipart/form-data; boundary=${boundary}`);
  return {
    body: spliceSpans(body, [{ span, bytes: Buffer.from(JSON.stringify(file)) }]),
    model: nameOf(path, model),
  };
}

/**
 * Records a batch that was created.
 * @param seen the batch, and its files
 * @throws GatewayError as `HolderObjects.claim`
 */
export async function claimBatch(
  { objects, upstream, principal, cancel }: BatchCall,
  seen: readonly SeenObject[],
  { model }: PreparedBatch,
): Promise<void> {
  const [created] = seen;
  if (created === undefined) return;
  try {
    await objects.claim(seen, batchRecords(created.id, model, upstream.name, principal));
  } catch (error) {
    // Nobody could read it, and nothing would count it.
    await cancel(created.id).catch(() => undefined);
    throw error;
  }
}

/** Where a batch runs: the route of the one model of all its lines, and its target at the upstream. */
interface BatchPlace {
  readonly route: Route;
  readonly target: Target;
}

/** Checks all lines. Errors about objects take precedence, so that they are the same for every line. */
async function placeOfFile(call: BatchCall, file: string, endpoint: Endpoint): Promise<BatchPlace> {
  const { upstream, objects, contentOf, routes, principal } = call;
  // Its lines are requests for models, which may also refer to shared objects.
  const input = new BatchInput((found) => objects.check(found, upstream.config.shared_objects));
  let place: BatchPlace | undefined;
  let fault: unknown;
  for await (const line of linesOf(contentOf(file, MAX_BATCH_INPUT))) {
    await input.add(line);
    if (fault !== undefined) continue;
    try {
      const request = await requestOfLine(line, endpoint, servedBy(endpoint));
      place ??= placeOf(call, request.model, endpoint);
      if (request.model !== place.route.model)
        throw invalidFile('has lines with several models; a batch has one');
      for (const name of request.others) routes.checkOther(name, principal);
      request.check({ ...place.route, targets: [place.target] });
    } catch (error) {
      fault = error;
    }
  }
  await input.end();
  if (fault !== undefined) throw fault;
  if (place === undefined) throw invalidFile('has no lines');
  return place;
}

/** @throws GatewayError model_not_found or endpoint_not_offered */
function placeOf({ routes, principal, upstream }: BatchCall, model: string, { name }: Endpoint): BatchPlace {
  const route = routes.resolve(model, principal, name);
  const target = route.targets.find((each) => each.upstream === upstream);
  if (target !== undefined) return { route, target };
  const message = `The model '${model}' has no target at the upstream that runs batches.`;
  throw new GatewayError('endpoint_not_offered', message, { param: 'model' });
}

interface RewrittenFile extends BatchPlace {
  readonly inputFile: string;
  readonly endpoint: Endpoint;
  readonly boundary: string;
}

/** The form that uploads the rewritten file. It is made while it is sent, because a file may have 200 MB. */
async function* formOf(call: BatchCall, file: RewrittenFile): AsyncGenerator<Buffer, void> {
  const { inputFile, endpoint, route, target, boundary } = file;
  const field = (head: string) => `--${boundary}\r\ncontent-disposition: form-data; ${head}`;
  const head = [
    field('name="purpose"\r\n\r\nbatch\r\n'),
    field('name="file"; filename="batch.jsonl"\r\ncontent-type: application/jsonl\r\n\r\n'),
  ];
  yield Buffer.from(head.join(''));
  for await (const line of linesOf(call.contentOf(inputFile, MAX_BATCH_INPUT))) {
    const request = await requestOfLine(line, endpoint, servedBy(endpoint));
    yield request.rewrite(route, target);
    yield Buffer.from('\n');
  }
  yield Buffer.from(`\r\n--${boundary}--\r\n`);
}

/** @returns whether a path is of this endpoint, also as Azure's clients write it, without `/v1` */
function servedBy({ path: own, routes = [`/v1/${own}`] }: Endpoint): (path: string) => boolean {
  return (path) => routes.includes(path.startsWith('/v1/') ? path : `/v1${path}`);
}

/** @throws GatewayError invalid_value */
export function endpointOfBatch(path: string): Endpoint {
  const found = MODEL_ENDPOINTS.find((endpoint) => servedBy(endpoint)(path));
  if (found !== undefined) return found;
  throw parameterError('invalid_value', 'endpoint', 'must be the path of an endpoint that takes a model');
}

/** Paths have no colon. */
function nameOf(path: string, model: string): string {
  return `${path}:${model}`;
}

function invalidFile(what: string): GatewayError {
  const message = `The file of the parameter 'input_file_id' ${what}.`;
  return new GatewayError('invalid_value', message, { param: 'input_file_id' });
}
