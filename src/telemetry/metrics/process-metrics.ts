// Metrics of the process and of telemetry itself: what runs here, and what of the traces got out.
import { collectDefaultMetrics } from 'prom-client';
import type { MetricCatalogue } from './metric-catalogue.ts';

export function processMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Process');
  collectDefaultMetrics({ register: catalogue.registry });
  return {
    buildInfo: catalogue.gauge({
      name: 'tollgate_build_info',
      across: 'first',
      meaning: 'Always 1; what runs is in its labels.',
      labels: { version: 'of Tollgate', node: 'version of Node' },
      action: 'More than one version: a rollout is under way, or got stuck.',
    }),
    traceSpans: catalogue.counter({
      name: 'tollgate_trace_spans_total',
      meaning:
        'Spans of traces, where they are configured: exported, failed (the receiver did not take them), dropped (too many waited).',
      labels: { result: '`exported`, `failed`, `dropped`' },
      action: '`failed` or `dropped`: the receiver is away or slow. Requests do not wait for it.',
    }),
  };
}
