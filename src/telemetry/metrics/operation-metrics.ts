// Metrics of operation: configuration, overload control, workers, the process and trace export.
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { MetricCatalogue } from './metric-catalogue.ts';

type ReloadResult = 'applied' | 'unchanged' | 'rejected';

/** The events of the reloader. */
export function configMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Configuration');
  const successful = catalogue.gauge('tollgate_config_last_reload_successful', {
    across: 'min',
    meaning: 'Whether the configuration file last read is in force: 1 or 0.',
  });
  const at = catalogue.gauge('tollgate_config_last_reload_success_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time of the last valid read of the configuration file.',
  });
  const reloads = catalogue.counter('tollgate_config_reloads_total', {
    meaning: 'Reloads of the configuration file since the start, by result.',
    labels: { result: '`applied`, `unchanged` (same meaning), `rejected` (invalid)' },
  });
  const info = catalogue.gauge('tollgate_config_info', {
    across: 'first',
    meaning: 'Always 1; the label is the hash of the configuration in force.',
    labels: { hash: '`config_hash` of `/health`' },
  });
  const pending = catalogue.gauge('tollgate_config_restart_pending', {
    across: 'max',
    meaning: 'Changed fields of the configuration file that need a restart.',
  });
  const fileReads = catalogue.counter('tollgate_config_file_values_total', {
    meaning: 'New values of files that the configuration refers to, by result.',
    labels: { result: '`changed`: in force; `rejected`: the last value stays' },
  });
  for (const result of ['changed', 'rejected'] as const) fileReads.inc({ result }, 0);
  return {
    onReload: (result: ReloadResult) => reloads.inc({ result }),
    onFileRead: (result: 'changed' | 'rejected') => fileReads.inc({ result }),
    onState: (isGood: boolean, hash: string, pendingFields: number) => {
      successful.set(isGood ? 1 : 0);
      if (isGood) at.setToCurrentTime();
      info.reset();
      info.set({ hash }, 1);
      pending.set(pendingFields);
    },
  };
}

/** @param droppedLines returns the log lines dropped since the start */
export function overloadMetrics(catalogue: MetricCatalogue, droppedLines: () => number) {
  catalogue.area('Overload');
  catalogue.readCounter('tollgate_log_lines_dropped_total', droppedLines, {
    meaning: 'Log lines dropped because stdout was not read in time or could not be written.',
  });
  return {
    refused: catalogue.counter('tollgate_overload_refused_total', {
      meaning: 'Requests on /v1 rejected with 503 by overload control, by cause.',
      labels: {
        cause:
          '`event_loop`, `heap`, `accept_queue` (the connection waited too long to be accepted), `decode_queue` (too many compressed bodies waited to be decoded)',
      },
    }),
    share: catalogue.gauge('tollgate_overload_refused_share', {
      across: 'max',
      meaning: 'Share of new requests on /v1 that is rejected now, from 0 to 1.',
    }),
    delay: catalogue.gauge('tollgate_event_loop_delay_seconds', {
      across: 'max',
      meaning: 'Mean event loop delay over the last quarter of a second.',
    }),
    acceptWait: catalogue.gauge('tollgate_accept_wait_seconds', {
      across: 'max',
      meaning: 'Longest accept queue wait of a new connection, in the last quarter of a second.',
    }),
    decodeWait: catalogue.gauge('tollgate_decode_wait_seconds', {
      across: 'max',
      meaning: 'Longest wait of a compressed request body to be decoded, in the last quarter of a second.',
    }),
    heap: catalogue.gauge('tollgate_heap_share', {
      across: 'max',
      meaning: 'Used share of the V8 heap limit, from 0 to 1.',
    }),
    connectionsLimit: catalogue.gauge('tollgate_connections_limit', {
      meaning: 'Maximum client connections on the public listener.',
    }),
  };
}

/** Only a primary process sets them. */
export function workerMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Workers');
  return {
    workers: catalogue.gauge('tollgate_workers', {
      across: 'first',
      meaning: 'Workers of this replica. Absent with a single process.',
      labels: { state: '`configured`, `serving`' },
    }),
    restarts: catalogue.counter('tollgate_worker_restarts_total', {
      meaning: 'Exited workers that were replaced, by cause.',
      labels: {
        cause:
          '`signal` (killed, such as out of memory), `exit`, `fault` (an uncaught exception), `hung`, `start` (failed to start), `late` (did not start in time)',
      },
    }),
  };
}

/** Metrics of Node. They describe the process, and their collectors never stop, so all catalogues share them. */
const NODE_METRICS = new Registry();

export function processMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Process');
  if (NODE_METRICS.getMetricsAsArray().length === 0) collectDefaultMetrics({ register: NODE_METRICS });
  for (const { name } of NODE_METRICS.getMetricsAsArray()) {
    const metric = NODE_METRICS.getSingleMetric(name);
    if (metric !== undefined) catalogue.registry.registerMetric(metric);
  }
  return {
    buildInfo: catalogue.gauge('tollgate_build_info', {
      across: 'first',
      meaning: 'Always 1; the labels are the running versions.',
      labels: { version: 'of Tollgate', node: 'of Node' },
    }),
    traceSpans: catalogue.counter('tollgate_trace_spans_total', {
      meaning: 'Trace spans, by result.',
      labels: { result: '`exported`, `failed` (rejected by the collector), `dropped` (the queue was full)' },
    }),
  };
}
