// A request that `tollgate explain` shows: its body, from a file, as each target would be sent it, and its URL and headers there.
import type { BodyRule } from '../../config/schema/body-rules.ts';
import type { DynamicConfig, UpstreamConfig } from '../../config/schema/config-schema.ts';
import { credentialHeader } from '../../config/schema/upstream-schema.ts';
import { GatewayError } from '../../errors.ts';
import { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { createMetrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Transport } from '../../upstream/transport.ts';
import { Upstream } from '../../upstream/upstream.ts';
import { endpoint } from '../../upstream/upstream-query.ts';
import type { Quantities } from '../../wire/token-usage.ts';
import { type Route, RouteTable, type Target } from '../routes/route-table.ts';
import { checkMembers, withFoundMembers } from './member-edits.ts';
import type { RequestScan, Wanted } from './request-members.ts';
import { bodyFor, requestsUsage } from './request-rewrite.ts';
import { scanRequest } from './request-scan.ts';
import type { Estimate } from './token-estimate.ts';

/** Most of a body that is printed as text, in characters. */
const MAX_SHOWN = 16 * 1024;
const HIDDEN = '****';

/** What limits reserve for a request. */
interface Needs {
  readonly estimate: Estimate;
  readonly quantities?: Quantities | undefined;
}

/** The part of an endpoint that matters here. */
interface CalledEndpoint {
  readonly wanted: Wanted;
  readonly hasUsageOption?: boolean;
  readonly readFacts: (body: Buffer, scan: RequestScan) => Needs;
}

/** A request that some client could send. */
export class ExampleRequest {
  readonly #body: Buffer;
  readonly #endpoint: CalledEndpoint;
  readonly #scan: RequestScan;

  /** @throws GatewayError that a client would get for any model */
  constructor(body: Buffer, endpoint: CalledEndpoint) {
    this.#body = body;
    this.#endpoint = endpoint;
    this.#scan = scanRequest(body, endpoint.wanted);
  }

  get model(): string {
    return this.#scan.model;
  }

  get facts(): Needs {
    return this.#endpoint.readFacts(this.#body, this.#scan);
  }

  /** @throws GatewayError that a client would get for this model */
  check(route: Route): void {
    checkMembers(route, this.#body, withFoundMembers(route, this.#body, this.#scan));
  }

  /** The body for one target of a route that it has been checked for. */
  bodyFor(route: Route, target: Target): string {
    const scan = withFoundMembers(route, this.#body, this.#scan);
    const asksUsage = requestsUsage(target, scan, this.#endpoint.hasUsageOption === true);
    const body = bodyFor(target, this.#body, scan, asksUsage);
    return (body instanceof BodyPieces ? body.toBuffer() : body).toString();
  }
}

/** A request, or why it is rejected; neither without a body. */
interface ReadRequest {
  readonly example?: ExampleRequest;
  readonly model?: string;
  readonly rejected?: GatewayError;
}

/** @param route that it is checked for */
export function requestOf(body: Buffer | undefined, called: CalledEndpoint, route?: Route): ReadRequest {
  if (body === undefined) return {};
  try {
    const example = new ExampleRequest(body, called);
    if (route !== undefined) example.check(route);
    return { example, model: example.model };
  } catch (error) {
    if (error instanceof GatewayError) return { rejected: error };
    throw error;
  }
}

/** A body for a terminal: shortened, indented, without control characters. */
export function shownBody(text: string, indent: string): string {
  const short =
    text.length > MAX_SHOWN
      ? `${text.slice(0, MAX_SHOWN)}… (${Buffer.byteLength(text)} bytes; --json has all)`
      : text;
  return short
    .replaceAll(/[^\P{C}\n\t]/gu, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)
    .replaceAll('\n', `\n${indent}`);
}

/** Host, path and header names; empty for a built-in model. */
export function destinationOf(config: UpstreamConfig, below: string) {
  if (config.kind === 'builtin')
    return { builtin: config.builtin, scheme: null, host: null, path: null, headers: [] };
  const { protocol, host } = new URL(config.base_url);
  const { path } = endpoint(config.base_url, below, config.query);
  return {
    builtin: null,
    scheme: protocol.slice(0, -1),
    host,
    path: withoutValues(path),
    headers: [
      ...(config.api_key === undefined && config.auth === undefined ? [] : [credentialHeader(config)]),
      ...Object.keys(config.headers).map((name) => name.toLowerCase()),
    ],
  };
}

/** Hides query values. A parameter without a value or with an unusual name may be a credential, so it is hidden too. */
export function withoutValues(path: string): string {
  const at = path.indexOf('?');
  if (at === -1) return path;
  const names = Array.from(new URLSearchParams(path.slice(at)), ([name, value]) =>
    /^[\w.-]{1,40}$/.test(name) && !/^=*$/.test(value) ? `${name}=${HIDDEN}` : HIDDEN,
  );
  return `${path.slice(0, at)}?${names.join('&')}`;
}

/** The configuration without values of the environment and of files in its body rules. */
export function withoutHiddenValues({
  upstreams,
  models,
}: DynamicConfig): Pick<DynamicConfig, 'upstreams' | 'models'> {
  const hide = <T extends { readonly body?: readonly BodyRule[] }>(each: T): T =>
    each.body === undefined ? each : { ...each, body: each.body.map(hidden) };
  return {
    upstreams: mapped(upstreams, hide),
    models: mapped(models, (model) => ({ ...hide(model), targets: model.targets.map(hide) })),
  };
}

function hidden(rule: BodyRule): BodyRule {
  const isHidden = (rule.kind === 'set' || rule.kind === 'default') && rule.value.isHidden;
  return isHidden ? { ...rule, value: { json: JSON.stringify(HIDDEN), isHidden } } : rule;
}

function mapped<T>(entries: Readonly<Record<string, T>>, change: (each: T) => T): Record<string, T> {
  return Object.fromEntries(Object.entries(entries).map(([name, each]) => [name, change(each)]));
}

/** `explain` opens no connections to upstreams. */
const NO_TRANSPORT: Transport = {
  send: () => {
    throw new GatewayError('internal_error');
  },
  retire: async () => undefined,
  close: async () => undefined,
};

/** The gateway's own route table. */
export function routesOf(config: DynamicConfig): RouteTable {
  const { models, upstreams } = withoutHiddenValues(config);
  const metrics = createMetrics();
  return new RouteTable(
    models,
    new Map(
      Object.entries(upstreams).map(([name, upstream]) => [
        name,
        new Upstream(name, upstream, '', metrics, NO_TRANSPORT),
      ]),
    ),
    config.tiers,
    config.prices,
  );
}
