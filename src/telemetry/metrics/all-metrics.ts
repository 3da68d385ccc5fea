// All Prometheus metrics of the process, from the files of this folder. docs/metrics.md is generated from them.

import { droppedLines } from '../log/logger.ts';
import { billingMetrics } from './billing-metrics.ts';
import { keyMetrics } from './keys-metrics.ts';
import { budgetMetrics, limitMetrics, outboxMetrics, redisMetrics } from './limits-metrics.ts';
import { MetricCatalogue } from './metric-catalogue.ts';
import { modelMetrics } from './models-metrics.ts';
import { configMetrics, overloadMetrics, processMetrics, workerMetrics } from './operation-metrics.ts';
import { realtimeMetrics, tlsMetrics, trafficMetrics, uploadMetrics } from './traffic-metrics.ts';
import { upstreamMetrics } from './upstreams-metrics.ts';

export type Metrics = ReturnType<typeof createMetrics>;

/** Creates the metrics of one gateway, in a registry of its own: several gateways may run in a process. */
export function createMetrics() {
  const catalogue = new MetricCatalogue();
  return {
    catalogue,
    registry: catalogue.registry,
    ...trafficMetrics(catalogue),
    tls: tlsMetrics(catalogue),
    ...uploadMetrics(catalogue),
    ...modelMetrics(catalogue),
    ...upstreamMetrics(catalogue),
    ...realtimeMetrics(catalogue),
    ...keyMetrics(catalogue),
    ...limitMetrics(catalogue),
    budgets: budgetMetrics(catalogue),
    outbox: outboxMetrics(catalogue),
    redis: redisMetrics(catalogue),
    billing: billingMetrics(catalogue),
    ...processMetrics(catalogue),
    config: configMetrics(catalogue),
    overload: overloadMetrics(catalogue, droppedLines),
    workers: workerMetrics(catalogue),
  };
}
