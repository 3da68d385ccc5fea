// Metrics of generation, named by OpenTelemetry's GenAI conventions in Prometheus' form: tokens, duration, time to the first token
// and per token. The gateway is the server of its clients and the client of its upstreams.
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import { GENAI_OPERATIONS } from './genai-operations.ts';
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';
import { ByLabel } from './metric-children.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

const TOKEN_BUCKETS = [
  1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
] as const;
const FIRST_TOKEN_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
] as const;
const PER_TOKEN_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5] as const;

export interface UsedTokens {
  readonly prompt: number;
  readonly completion: number;
}

/** A finished request that was admitted. */
export interface Generation {
  readonly endpoint: EndpointName;
  /** The entry of the route table: a name or a pattern. */
  readonly model: string;
  /** The upstream of the attempt that answered, or of the last one. */
  readonly upstream: string;
  /** The vendor of its API, as the conventions name it. */
  readonly provider: string;
  /** `ok` or an error code. */
  readonly outcome: string;
  /** Seconds from the request line to the end of the answer. */
  readonly seconds: number;
  /** Seconds from the request line to the first output; undefined unless the response was a stream. */
  readonly firstToken: number | undefined;
  /** As the upstream reported them; undefined without a report. Estimates are excluded. */
  readonly tokens: UsedTokens | undefined;
}

export function modelMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Models');
  const labels = {
    gen_ai_operation_name: [...new Set(Object.values(GENAI_OPERATIONS))]
      .map((name) => `\`${name}\``)
      .join(', '),
    gen_ai_provider_name:
      'by the host of the upstream: `openai`, `azure.ai.openai`, `anthropic` and others, else its name',
    gen_ai_request_model: VALUES.model,
    upstream: VALUES.upstream,
  };
  const duration = catalogue.childHistogram('gen_ai_server_request_duration_seconds', {
    meaning: 'Requests that reached an upstream: from the request line to the end of the response.',
    labels: { ...labels, error_type: 'an error code; absent for successful requests' },
    buckets: DURATION_BUCKETS,
  });
  const firstToken = catalogue.childHistogram('gen_ai_server_time_to_first_token_seconds', {
    meaning: 'Successful streams: from the request line to the first output sent to the client.',
    labels,
    buckets: FIRST_TOKEN_BUCKETS,
  });
  const perToken = catalogue.childHistogram('gen_ai_server_time_per_output_token_seconds', {
    meaning: 'Successful streams with reported usage: time per token after the first.',
    labels,
    buckets: PER_TOKEN_BUCKETS,
  });
  const tokens = catalogue.childHistogram('gen_ai_client_token_usage', {
    meaning:
      'Tokens that upstreams reported, per upstream request, lost attempts included. Estimates are excluded.',
    labels: { ...labels, gen_ai_token_type: '`input`, `output`' },
    buckets: TOKEN_BUCKETS,
  });
  const seriesFor = (operation: string) =>
    new ByLabel(
      (model) =>
        new ByLabel((upstream) => {
          return new ByLabel((provider) => {
            const own = {
              gen_ai_operation_name: operation,
              gen_ai_provider_name: provider,
              gen_ai_request_model: model,
              upstream,
            };
            return {
              endings: new ByLabel((outcome) =>
                duration.child(outcome === 'ok' ? own : { ...own, error_type: outcome }),
              ),
              firstToken: firstToken.child(own),
              perToken: perToken.child(own),
              input: tokens.child({ ...own, gen_ai_token_type: 'input' }),
              output: tokens.child({ ...own, gen_ai_token_type: 'output' }),
            };
          });
        }),
    );
  const operations = new ByLabel(seriesFor);
  const seriesOf = (endpoint: EndpointName, model: string, upstream: string, provider: string) =>
    operations.of(GENAI_OPERATIONS[endpoint]).of(model).of(upstream).of(provider);
  const recordTokens = (
    endpoint: EndpointName,
    model: string,
    upstream: string,
    provider: string,
    used: UsedTokens,
  ) => {
    const { input, output } = seriesOf(endpoint, model, upstream, provider);
    input.observe(used.prompt);
    output.observe(used.completion);
  };
  return {
    /** Tokens of an attempt that did not answer the client. */
    recordTokens,
    recordGeneration(generation: Generation): void {
      const { endpoint, model, upstream, provider, outcome, seconds } = generation;
      const own = seriesOf(endpoint, model, upstream, provider);
      own.endings.of(outcome).observe(seconds);
      if (generation.tokens !== undefined) {
        own.input.observe(generation.tokens.prompt);
        own.output.observe(generation.tokens.completion);
      }
      const { firstToken: first } = generation;
      if (outcome !== 'ok' || first === undefined) return;
      own.firstToken.observe(first);
      const following = (generation.tokens?.completion ?? 0) - 1;
      if (following > 0) own.perToken.observe(Math.max(0, seconds - first) / following);
    },
  };
}
