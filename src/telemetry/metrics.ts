// Every Prometheus metric of the process, put together from its areas. It measures nothing itself; what each means is said
// in metrics/, and docs/metrics.md is written from there.
import { Catalogue } from './catalogue.ts';
import { droppedLines } from './logger.ts';
import { billingMetrics } from './metrics/billing.ts';
import { keyMetrics } from './metrics/keys.ts';
import { ledgerMetrics, limitMetrics, redisMetrics } from './metrics/limits.ts';
import { modelMetrics } from './metrics/models.ts';
import { configMetrics, overloadMetrics, workerMetrics } from './metrics/operation.ts';
import { processMetrics } from './metrics/process.ts';
import { realtimeMetrics } from './metrics/realtime.ts';
import { trafficMetrics } from './metrics/traffic.ts';
import { uploadMetrics } from './metrics/uploads.ts';
import { upstreamMetrics } from './metrics/upstreams.ts';

export type Metrics = ReturnType<typeof createMetrics>;

/** A fresh registry and its metrics; one per gateway, so that tests and embedders can run several in a process. */
export function createMetrics() {
  const catalogue = new Catalogue();
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
    ledger: ledgerMetrics(catalogue),
    redis: redisMetrics(catalogue),
    billing: billingMetrics(catalogue),
    ...processMetrics(catalogue),
    config: configMetrics(catalogue),
    overload: overloadMetrics(catalogue, droppedLines),
    workers: workerMetrics(catalogue),
  };
}
