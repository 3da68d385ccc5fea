// Answers calls of the API: finds the route, checks role and form, and records each change before it is done.
import { hash, randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import type { z } from 'zod';
import { type ERRORS, GatewayError, isServerFault } from '../../errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { readText, sendJson } from '../console-answer.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import { type ConsoleIdentity, type Operator, requireRole } from '../console-identity.ts';
import { faultsIn } from './api-faults.ts';
import { eventTarget } from './api-records.ts';
import { type AnyCall, type ApiRoute, requireRecord } from './api-route.ts';
import { API_ROUTES } from './api-routes.ts';
import { differenceFrom, etagOf } from './record-etag.ts';

/** Longer than a change takes, in milliseconds. */
const LEASE_MS = 30_000;
const LEASE_PAUSE_MS = 50;
const LEASE_ATTEMPTS = 100;

interface ApiParts {
  readonly desk: ConsoleDesk;
  readonly identity: ConsoleIdentity;
}

/** An error with members of its own in the problem details. */
export class ProblemError extends GatewayError {
  readonly more: object;

  constructor(code: keyof typeof ERRORS, message: string, more: object) {
    super(code, message);
    this.more = more;
  }
}

/** @throws GatewayError, which the caller answers as problem details */
export async function answerApi(
  { desk, identity }: ApiParts,
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
): Promise<void> {
  const operator = await identity.operatorOf(request);
  if (operator.setCookie !== undefined) response.setHeader('set-cookie', operator.setCookie);
  const { route, params } = findRoute(request.method ?? '', url.pathname.slice('/api/v1'.length), response);
  requireCallable(route, operator, params);
  const isChange = route.method !== 'GET';
  if (isChange) identity.requireOwnPage(request, operator);
  const call: AnyCall = {
    desk,
    operator,
    params,
    actor: operatorActor(operator),
    address: identity.addressOf(request),
    query: parsed(route.query, queryOf(url)),
    body: route.body === undefined ? undefined : parsed(route.body, await readJson(request, route.maxBytes)),
  };
  if (isChange && !route.recordsItself) {
    const { status, body, headers } = await makeChange(route, call, {
      requestKey: request.headers['idempotency-key']?.toString(),
      ifMatch: request.headers['if-match'],
      path: `${url.pathname}${url.search}`,
    });
    return sendJson(response, status, body, headers);
  }
  const answer = await route.run(call);
  sendJson(response, 200, answer, { etag: Object.keys(params).length === 0 ? undefined : etagOf(answer) });
}

/** @throws GatewayError `role_too_low`, `record_not_found` where a parameter of the path cannot name a record */
export function requireCallable(route: ApiRoute, operator: Operator, params: AnyCall['params']): void {
  requireRole(operator, route.role);
  for (const [name, form] of Object.entries(route.params))
    if (!form.safeParse(params[name]).success) throw new GatewayError('record_not_found');
}

/** Names behind a proxy and those of tokens are different people. */
export function operatorActor({ name, via }: Operator): string {
  return `${via === 'sso' ? 'sso' : 'operator'}:${name}`;
}

function findRoute(method: string, path: string, response: ServerResponse) {
  const segments = path.split('/').map((segment) => {
    try {
      return decodeURIComponent(segment);
    } catch {
      throw new GatewayError('unknown_url');
    }
  });
  const found = API_ROUTES.flatMap((route) => {
    const params = paramsOf(route, segments);
    return params === undefined ? [] : [{ route, params }];
  });
  if (found.length === 0) throw new GatewayError('unknown_url');
  const wanted = method === 'HEAD' ? 'GET' : method;
  const match = found.find(({ route }) => route.method === wanted);
  if (match !== undefined) return match;
  response.setHeader('allow', [...new Set(found.map(({ route }) => route.method))].join(', '));
  throw new GatewayError('method_not_allowed');
}

/** The parameters of a path; undefined where the route has another one. Words go before parameters by their order in the table. */
function paramsOf({ path }: ApiRoute, segments: readonly string[]): Record<string, string> | undefined {
  const parts = path.split('/');
  if (parts.length !== segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of parts.entries()) {
    const segment = segments[index] ?? '';
    if (part.startsWith(':')) params[part.slice(1)] = segment;
    else if (part !== segment) return undefined;
  }
  return params;
}

/** A name that is given several times is a list. */
function queryOf({ searchParams }: URL): object {
  const names = [...new Set(searchParams.keys())];
  return Object.fromEntries(
    names.map((name) => {
      const values = searchParams.getAll(name);
      return [name, values.length === 1 ? values[0] : values];
    }),
  );
}

async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const text = await readText(request, maxBytes);
  // A call whose members are all optional needs no body.
  if (text === '') return {};
  const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json') throw new GatewayError('unsupported_content_type');
  try {
    return JSON.parse(text);
  } catch {
    // Without the parser's error, which quotes the text.
    throw new GatewayError('invalid_json');
  }
}

/** @throws GatewayError `invalid_value` that names all wrong members */
export function parsed<T>(schema: z.ZodType<T>, given: unknown): T {
  const result = schema.safeParse(given);
  if (result.success) return result.data;
  const faults = faultsIn(result.error.issues, schema, given);
  const [{ where, what } = { where: '', what: 'must be right' }] = faults;
  const subject = where === '' && what.startsWith('must') ? 'body' : where;
  const text = `${subject === '' ? '' : `${subject}: `}${what}`;
  throw new ProblemError('invalid_value', text.endsWith('?') ? text : `${text}.`, { faults });
}

/**
 * Runs a change with `if-match` alone in the fleet, so that nobody changes the record between the comparison and the change.
 * @throws GatewayError `request_unsettled` when others hold it for too long
 */
async function alone<T>(desk: ConsoleDesk, target: string, work: () => Promise<T>): Promise<T> {
  // A few names, because the store keeps each.
  const bucket = hash('sha256', target, 'buffer')[0] ?? 0;
  const [name, owner] = [`console change ${bucket}`, randomUUID()];
  const { billing } = desk.store;
  const take = (ms: number) => {
    const now = Date.now();
    return billing.takeTask(name, owner, new Date(now).toISOString(), new Date(now + ms).toISOString());
  };
  for (let attempt = 1; !(await take(LEASE_MS)); attempt += 1) {
    if (attempt === LEASE_ATTEMPTS)
      throw new GatewayError('request_unsettled', 'Others change this record at the moment.');
    await setTimeout(LEASE_PAUSE_MS);
  }
  try {
    return await work();
  } finally {
    // It ends by itself, too.
    await take(0).catch(() => false);
  }
}

/** How a change is to be made. */
export interface ChangeTerms {
  /** The same for repetitions of a request. */
  readonly requestKey: string | undefined;
  /** The tag of the record as it was read. */
  readonly ifMatch: string | undefined;
  /** Path and query. */
  readonly path: string;
}

interface Changed {
  readonly status: number;
  readonly body: object;
  readonly headers: Readonly<Record<string, string | undefined>>;
}

/**
 * Records the change, does it, and records what came of it. A repeated request gets the answer of the first.
 * @throws GatewayError of the call; `record_changed`, `request_key_reused`, `request_unsettled`
 */
export async function makeChange(route: ApiRoute, call: AnyCall, terms: ChangeTerms): Promise<Changed> {
  const work = () => changeNow(route, call, terms);
  if (terms.ifMatch === undefined) return work();
  // A record has several names: the id of a holder and the prefixes of its keys, a team in any case.
  const record = await route.record?.(call);
  const [kind = ''] = route.name.split('.');
  const id: unknown = Reflect.get(record ?? {}, kind.slice(0, -1));
  const name = eventTarget(kind, Object.values(call.params)[0] ?? null, record);
  return alone(call.desk, `${kind} ${typeof id === 'string' ? id : name}`, work);
}

async function changeNow(route: ApiRoute, call: AnyCall, terms: ChangeTerms): Promise<Changed> {
  const { desk, params, query, body, actor, address } = call;
  const { operators } = desk.store;
  const before = await route.record?.(call);
  const given = Object.values(params)[0] ?? addedName(route, body);
  const requestKey = checkedKey(terms.requestKey);
  const digest = hash('sha256', JSON.stringify([route.name, terms.path, body]));
  const event = await operators.addEvent({
    at: new Date(desk.now()).toISOString(),
    actor,
    address,
    what: route.name,
    requestKey,
    target: eventTarget(route.name, given, before),
    status: null,
    after: null,
    reason: reasonOf(body) ?? reasonOf(query),
    before: before === undefined ? null : JSON.stringify(before),
    digest: requestKey === null ? null : digest,
  });
  if ('known' in event) {
    const { known } = event;
    if (known.digest !== digest) throw new GatewayError('request_key_reused');
    if (known.status === null || known.after === null) throw new GatewayError('request_unsettled');
    const headers = { 'idempotency-replayed': 'true' };
    return { status: known.status, body: JSON.parse(known.after), headers };
  }
  let answer: object;
  try {
    if (route.record !== undefined) requireSame(requireRecord('record', before), terms.ifMatch, body);
    answer = await route.run(call);
  } catch (error) {
    // Refused: nothing was done, and the same key can be used again. After a failure nobody knows.
    if (error instanceof GatewayError && !isServerFault(error.status)) await operators.dropEvent(event.id);
    throw error;
  }
  const hidden = Object.fromEntries(route.secrets.map((name) => [name, null]));
  await operators.settleEvent(event.id, { status: 200, after: JSON.stringify({ ...answer, ...hidden }) });
  const record: unknown = Reflect.get(answer, 'record');
  const etag = typeof record === 'object' && record !== null ? etagOf(record) : undefined;
  return { status: 200, body: answer, headers: { etag } };
}

/** @throws ProblemError `record_changed` with what is different now */
function requireSame(record: object, wanted: string | undefined, body: unknown): void {
  if (wanted === undefined || wanted === '*') return;
  const difference = differenceFrom(wanted, record, body);
  if (difference.length === 0) return;
  const names = difference.map(({ field }) => field).join(', ');
  throw new ProblemError('record_changed', `The record has changed since you read it: ${names}.`, {
    difference,
    current: record,
  });
}

function checkedKey(key: string | undefined): string | null {
  if (key === undefined) return null;
  if (/^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new GatewayError('invalid_value', 'The Idempotency-Key has 1 to 255 printable characters.');
}

/** The name of a team or an operator that has no path yet. */
function addedName({ name: route }: ApiRoute, body: unknown): string | null {
  const name: unknown = route.endsWith('.add') ? Reflect.get(Object(body), 'name') : undefined;
  return typeof name === 'string' ? name.trim() : null;
}

function reasonOf(body: unknown): string | null {
  const reason: unknown = typeof body === 'object' && body !== null ? Reflect.get(body, 'reason') : undefined;
  return typeof reason === 'string' ? maskKeys(reason) : null;
}
