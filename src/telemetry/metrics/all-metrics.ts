// Every Prometheus metric of the process, put together from its areas. It measures nothing itself; what each means is said
// in metrics/, and docs/metrics.md is written from there.

import { droppedLines } from '../log/logger.ts';
import { billingMetrics } from './billing-metrics.ts';
import { keyMetrics } from './keys-metrics.ts';
import { limitMetrics, outboxMetrics, redisMetrics } from './limits-metrics.ts';
import { MetricCatalogue } from './metric-catalogue.ts';
import { modelMetrics } from './models-metrics.ts';
import { configMetrics, overloadMetrics, workerMetrics } from './operation-metrics.ts';
import { processMetrics } from './process-metrics.ts';
import { realtimeMetrics } from './realtime-metrics.ts';
import { trafficMetrics } from './traffic-metrics.ts';
import { uploadMetrics } from './uploads-metrics.ts';
import { upstreamMetrics } from './upstreams-metrics.ts';

export type Metrics = ReturnType<typeof createMetrics>;

/** A fresh registry and its metrics; one per gateway, so that tests and embedders can run several in a process. */
export function createMetrics() {
  const catalogue = new MetricCatalogue();
  return {
    catalogue,
    registry: catalogue.registry,
    ...trafficMetrics(catalogue),
    ...uploadMetrics(catalogue),
    ...modelMetrics(catalogue),
    ...upstreamMetrics(catalogue),
    ...realtimeMetrics(catalogue),
    ...keyMetrics(catalogue),
    ...limitMetrics(catalogue),
    outbox: outboxMetrics(catalogue),
    redis: redisMetrics(catalogue),
    billing: billingMetrics(catalogue),
    ...processMetrics(catalogue),
    config: configMetrics(catalogue),
    overload: overloadMetrics(catalogue, droppedLines),
    workers: workerMetrics(catalogue),
  };
}
