// Metrics of operation: configuration, overload control, workers, the process and trace export.
import { collectDefaultMetrics } from 'prom-client';
import type { MetricCatalogue } from './metric-catalogue.ts';

type ReloadResult = 'applied' | 'unchanged' | 'rejected';

/** The events of the reloader. */
export function configMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Configuration');
  const successful = catalogue.gauge('tollgate_config_last_reload_successful', {
    across: 'min',
    meaning: 'Whether the configuration file last read is in force: 1 or 0.',
    action:
      '0: the file is invalid and the last valid one stays in force. The log and `tollgate check` list the faults.',
  });
  const at = catalogue.gauge('tollgate_config_last_reload_success_timestamp_seconds', {
    across: 'min',
    meaning: 'Unix time of the last valid read of the configuration file.',
    action: 'Older than your last rollout: the file did not reach this replica.',
  });
  const reloads = catalogue.counter('tollgate_config_reloads_total', {
    meaning: 'Reloads of the configuration file since the start, by result.',
    labels: { result: '`applied`, `unchanged` (same meaning), `rejected` (invalid)' },
    action: 'None is needed.',
  });
  const info = catalogue.gauge('tollgate_config_info', {
    across: 'first',
    meaning: 'Always 1; the label is the hash of the configuration in force.',
    labels: { hash: '`config_hash` of `/health`' },
    action: 'Two hashes for longer than a rollout: replicas differ.',
  });
  const pending = catalogue.gauge('tollgate_config_restart_pending', {
    across: 'max',
    meaning: 'Changed fields of the configuration file that need a restart.',
    action: 'Above 0: the log names the fields; restart the process to apply them.',
  });
  const fileReads = catalogue.counter('tollgate_config_file_values_total', {
    meaning: 'New values of files that the configuration refers to, by result.',
    labels: { result: '`changed`: in force; `rejected`: the last value stays' },
    action: '`rejected`: the log names the file and the cause.',
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
    meaning: 'Log lines dropped because stdout was not read in time.',
    action: 'Any: the log collector is slower than the gateway, or blocked.',
  });
  return {
    refused: catalogue.counter('tollgate_overload_refused_total', {
      meaning: 'Requests on /v1 rejected with 503 by overload control, by cause.',
      labels: {
        cause: '`event_loop`, `heap`, `accept_queue` (the connection waited too long to be accepted)',
      },
      action:
        'Any: add replicas or CPUs. `heap`: or raise `--max-old-space-size`. `accept_queue`: the CPU quota is too small, or clients open too many connections.',
    }),
    share: catalogue.gauge('tollgate_overload_refused_share', {
      across: 'max',
      meaning: 'Share of new requests on /v1 that is rejected now, from 0 to 1.',
      action: 'Above 0: see `tollgate_overload_refused_total`.',
    }),
    delay: catalogue.gauge('tollgate_event_loop_delay_seconds', {
      across: 'max',
      meaning: 'Mean event loop delay over the last quarter of a second.',
      action: 'Above 0.05 for long: this process needs more than one CPU; add replicas or workers.',
    }),
    acceptWait: catalogue.gauge('tollgate_accept_wait_seconds', {
      across: 'max',
      meaning: 'Upper bound of the accept queue wait of new connections, in the last quarter of a second.',
      action:
        'Above 0.5: new connections wait, also those of health checks. Raise the CPU quota, add replicas, or let clients reuse connections.',
    }),
    heap: catalogue.gauge('tollgate_heap_share', {
      across: 'max',
      meaning: 'Used share of the V8 heap limit, from 0 to 1.',
      action: 'Above 0.8: requests will soon be rejected. Give the process more memory.',
    }),
    connectionsLimit: catalogue.gauge('tollgate_connections_limit', {
      meaning: 'Maximum client connections on the public listener.',
      action: 'Compare with `tollgate_connections`; raise `listen.max_connections` and the open file limit.',
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
      action: '`serving` below `configured` for longer than a start: see `tollgate_worker_restarts_total`.',
    }),
    restarts: catalogue.counter('tollgate_worker_restarts_total', {
      meaning: 'Exited workers that were replaced, by cause.',
      labels: {
        cause:
          '`signal` (killed, such as out of memory), `exit`, `fault` (an uncaught exception), `hung`, `start` (failed to start), `late` (did not start in time)',
      },
      action: 'Any: the log has the exit code or signal and the last error of the worker.',
    }),
  };
}

export function processMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Process');
  collectDefaultMetrics({ register: catalogue.registry });
  return {
    buildInfo: catalogue.gauge('tollgate_build_info', {
      across: 'first',
      meaning: 'Always 1; the labels are the running versions.',
      labels: { version: 'of Tollgate', node: 'of Node' },
      action: 'More than one version: a rollout is in progress or stuck.',
    }),
    traceSpans: catalogue.counter('tollgate_trace_spans_total', {
      meaning: 'Trace spans, by result.',
      labels: { result: '`exported`, `failed` (rejected by the collector), `dropped` (the queue was full)' },
      action: '`failed` or `dropped`: the collector is unavailable or slow. Requests do not wait for it.',
    }),
  };
}
