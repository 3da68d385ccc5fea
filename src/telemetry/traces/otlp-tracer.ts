// Tracing with OpenTelemetry: one server span per request and one client span per upstream request, exported in batches over OTLP.
// Attributes follow the stable HTTP conventions and the GenAI conventions. The name of a model is the only client input in spans.

import { randomUUID } from 'node:crypto';
import {
  type Attributes,
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { withDeadline } from '../../deadline.ts';
import { isServerFault } from '../../errors.ts';
import { holdsKey } from '../log/key-mask.ts';
import type { Logger } from '../log/logger.ts';
import { GENAI_OPERATIONS } from '../metrics/genai-operations.ts';
import { type AgentFactory, type SpanCounter, SpanQueue } from './span-queue.ts';
import { formatTraceParent, parseTraceParent } from './trace-parent.ts';
import type { SamplerSettings, TraceSettings } from './trace-settings.ts';
import type {
  AttemptEnding,
  AttemptSpan,
  AttemptStart,
  RequestEnd,
  RequestHead,
  RequestSpan,
  TraceContext,
  Tracing,
} from './tracer.ts';

interface OtlpOptions {
  readonly version: string;
  readonly logger: Logger;
  readonly metrics: { readonly traceSpans: SpanCounter };
  /** For the connections to the collector. */
  readonly agent: AgentFactory;
}

/** How long shutdown waits for the collector. */
const FLUSH_MS = 2_000;

/** Maximum length of an attribute value, in characters. */
const MAX_VALUE = 256;

/** By the conventions, other methods are `_OTHER`. */
const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE']);

/** Outcomes that are no errors: success, a client that left, or another attempt that was faster. */
const PEACEFUL = new Set(['ok', 'client_closed', 'superseded']);

export function startOtlp(
  settings: TraceSettings,
  { version, logger, metrics, agent }: OtlpOptions,
): Tracing {
  const attributes = {
    'service.version': version,
    // Distinguishes replicas, which have the same name.
    'service.instance.id': randomUUID(),
    ...settings.attributes,
  };
  const provider = new TracerProvider({
    sampler: samplerOf(settings.sampler),
    resource: defaultResource().merge(resourceFromAttributes(attributes)),
    spanProcessors: [new SpanQueue(settings, metrics.traceSpans, logger, agent)],
    spanLimits: { attributeValueLengthLimit: MAX_VALUE },
  });
  const tracer = provider.getTracer('tollgate', version);
  logger.info({ host: new URL(settings.url).host }, 'exporting traces');
  return {
    begin: (request) => new ServerSpan(tracer, request),
    async close() {
      const late = () => new Error(`not within ${FLUSH_MS} ms`);
      await withDeadline(provider.shutdown(), FLUSH_MS, late).catch((error: unknown) => {
        const cause = error instanceof Error ? error.message : String(error);
        logger.warn({ cause }, 'failed to export the last traces');
      });
    },
  };
}

function samplerOf({ root, ratio, isParentBased }: SamplerSettings): Sampler {
  const sampler =
    root === 'always_off'
      ? new AlwaysOffSampler()
      : root === 'always_on'
        ? new AlwaysOnSampler()
        : new TraceIdRatioBasedSampler(ratio);
  return isParentBased ? new ParentBasedSampler({ root: sampler }) : sampler;
}

/** The client's span as the parent; the root context without a valid one. */
function parentOf({ headers }: RequestHead): Context {
  const parent = parseTraceParent(headers['traceparent']);
  if (parent === undefined) return ROOT_CONTEXT;
  const { traceId, spanId, isSampled } = parent;
  // Trace ids have the form of a key. A client may have sent its key as one.
  const keys = [headers.authorization, headers['api-key'], headers['x-api-key']];
  if (keys.some((value) => value?.includes(traceId) === true)) return ROOT_CONTEXT;
  const state = headers['tracestate'];
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: isSampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
    isRemote: true,
    ...(typeof state === 'string' && !holdsKey(state) ? { traceState: createTraceState(state) } : {}),
  });
}

class ServerSpan implements RequestSpan {
  readonly traceId: string;
  readonly #tracer: Tracer;
  readonly #span: Span;
  readonly #context: Context;
  readonly #method: string;

  constructor(tracer: Tracer, request: RequestHead) {
    const { method = '', httpVersion } = request;
    const isKnown = METHODS.has(method);
    this.#method = isKnown ? method : 'HTTP';
    this.#tracer = tracer;
    const parent = parentOf(request);
    const attributes: Attributes = {
      'http.request.method': isKnown ? method : '_OTHER',
      'url.scheme': 'http',
      'network.protocol.version': httpVersion,
    };
    // Without the path until the route is known: a path may contain anything.
    this.#span = tracer.startSpan(this.#method, { kind: SpanKind.SERVER, attributes }, parent);
    this.#context = trace.setSpan(parent, this.#span);
    this.traceId = this.#span.spanContext().traceId;
  }

  attempt(start: AttemptStart): AttemptSpan {
    return new ClientSpan(this.#tracer, this.#context, start);
  }

  end({ route, status, outcome, requestId }: RequestEnd): void {
    const span = this.#span;
    if (route !== undefined) {
      span.updateName(`${this.#method} ${route}`);
      span.setAttribute('http.route', route);
    }
    span.setAttributes({ 'tollgate.request_id': requestId, 'tollgate.outcome': outcome });
    // 499 is never sent.
    if (outcome !== 'client_closed') span.setAttribute('http.response.status_code', status);
    // A rejection is the client's error; a response that broke after its 200 is not.
    if (!PEACEFUL.has(outcome) && (status < 400 || isServerFault(status))) fail(span, outcome);
    span.end();
  }
}

class ClientSpan implements AttemptSpan {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
  readonly #span: Span;
  readonly #began = performance.now();
  readonly #isStream: boolean;

  constructor(tracer: Tracer, parent: Context, start: AttemptStart) {
    const { upstream, provider, model, stream, endpoint, server, number } = start;
    const operation = GENAI_OPERATIONS[endpoint];
    this.#isStream = stream;
    const attributes: Attributes = {
      'gen_ai.operation.name': operation,
      'gen_ai.provider.name': provider,
      'gen_ai.request.model': model,
      'gen_ai.request.stream': stream,
      'tollgate.upstream': upstream,
    };
    if (server !== undefined) {
      attributes['server.address'] = server.address;
      attributes['server.port'] = server.port;
    }
    if (number > 1) attributes['http.request.resend_count'] = number - 1;
    this.#span = tracer.startSpan(`${operation} ${model}`, { kind: SpanKind.CLIENT, attributes }, parent);
    const { traceparent, tracestate } = contextOf(this.#span);
    this.traceparent = traceparent;
    this.tracestate = tracestate;
  }

  firstOutput(): void {
    // Only a stream has a first chunk.
    if (!this.#isStream) return;
    this.#span.addEvent('first_token');
    const seconds = (performance.now() - this.#began) / 1000;
    this.#span.setAttribute('gen_ai.response.time_to_first_chunk', seconds);
  }

  end({ outcome, status, usage }: AttemptEnding): void {
    const span = this.#span;
    span.setAttribute('tollgate.outcome', outcome);
    if (status !== undefined) span.setAttribute('http.response.status_code', status);
    if (usage !== null) {
      span.setAttributes({
        'gen_ai.usage.input_tokens': usage.prompt,
        'gen_ai.usage.output_tokens': usage.completion,
        'gen_ai.usage.cache_read.input_tokens': usage.cached,
        'gen_ai.usage.reasoning.output_tokens': usage.reasoning,
      });
    }
    if (!PEACEFUL.has(outcome)) fail(span, outcome);
    span.end();
  }
}

function contextOf(span: Span): TraceContext {
  const { traceId, spanId, traceFlags, traceState } = span.spanContext();
  const isSampled = (traceFlags & TraceFlags.SAMPLED) !== 0;
  const tracestate = traceState?.serialize();
  return {
    traceparent: formatTraceParent({ traceId, spanId, isSampled }),
    tracestate: tracestate === '' ? undefined : tracestate,
  };
}

function fail(span: Span, outcome: string): void {
  span.setAttribute('error.type', outcome);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
