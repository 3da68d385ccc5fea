// Metrics of how the process is run: which configuration is in force, and what it refuses so that it can do the rest.
import { type MetricCatalogue, VALUES } from './metric-catalogue.ts';

type ReloadResult = 'applied' | 'unchanged' | 'rejected';

/** In the form in which the reloader tells them. */
export function configMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Configuration');
  const successful = catalogue.gauge({
    name: 'tollgate_config_last_reload_successful',
    across: 'min',
    meaning: 'Whether the configuration file, as it was last read, is in force: 1 or 0.',
    labels: {},
    action:
      '0: the last good configuration goes on. The log and `tollgate check` say what is wrong with the new one.',
  });
  const at = catalogue.gauge({
    name: 'tollgate_config_last_reload_success_timestamp_seconds',
    across: 'min',
    meaning: 'When the configuration file was last read and found good, at start or since; Unix time.',
    labels: {},
    action: 'Older than your last rollout: the file did not reach this replica.',
  });
  const reloads = catalogue.counter({
    name: 'tollgate_config_reloads_total',
    meaning:
      'Readings of the configuration file since the start: applied, unchanged (it means the same) or rejected (the last good one stays).',
    labels: { result: '`applied`, `unchanged`, `rejected`' },
    action: 'None is needed.',
  });
  const info = catalogue.gauge({
    name: 'tollgate_config_info',
    across: 'first',
    meaning: 'Always 1; the label is the hash of the configuration in force.',
    labels: { hash: '`config_hash` of `/health`' },
    action: 'Two hashes for longer than a rollout takes: replicas differ.',
  });
  const pending = catalogue.gauge({
    name: 'tollgate_config_restart_pending',
    across: 'max',
    meaning: 'Fields of the configuration file that differ from those in force and take a restart.',
    labels: {},
    action: 'Above 0: restart when it suits; the log names the fields.',
  });
  const fileReads = catalogue.counter({
    name: 'tollgate_config_file_values_total',
    meaning:
      'New contents of files that the configuration refers to: in force, or rejected, so that the last value stays.',
    labels: { result: '`changed`, `rejected`' },
    action: '`rejected`: the log names the file and what is wrong with it.',
  });
  for (const result of ['changed', 'rejected'] as const) fileReads.inc({ result }, 0);
  const stale = catalogue.counter({
    name: 'tollgate_upstream_stale_addresses_total',
    meaning:
      'Minutes in which connections went to addresses of an earlier lookup, because the name was not resolved.',
    labels: { upstream: VALUES.upstream },
    action: 'Any: look at the resolver of this machine.',
  });
  return {
    stale,
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

/** @param droppedLines how many lines of the log were dropped so far */
export function overloadMetrics(catalogue: MetricCatalogue, droppedLines: () => number) {
  catalogue.area('Overload');
  catalogue.readCounter(
    {
      name: 'tollgate_log_lines_dropped_total',
      meaning: 'Lines of the log that were dropped because nobody read them.',
      labels: {},
      action: 'Any: what collects the log is slower than the gateway, or stands still.',
    },
    droppedLines,
  );
  return {
    refused: catalogue.counter({
      name: 'tollgate_overload_refused_total',
      meaning:
        'Requests on /v1 answered 503 because the process had too much to do, by cause: event_loop, heap or accept_queue (the connection waited too long to be accepted).',
      labels: { cause: '`event_loop`, `heap`, `accept_queue`' },
      action:
        'Any: add replicas or processors. `heap`: or raise `--max-old-space-size`. `accept_queue`: the CPU quota is too small, or clients open too many connections.',
    }),
    share: catalogue.gauge({
      name: 'tollgate_overload_refused_share',
      across: 'max',
      meaning: 'Share of new requests on /v1 that is turned away at the moment, from 0 to 1.',
      labels: {},
      action: 'Above 0: see `tollgate_overload_refused_total`.',
    }),
    delay: catalogue.gauge({
      name: 'tollgate_event_loop_delay_seconds',
      across: 'max',
      meaning: 'By how much the event loop was late, on average over the last quarter of a second.',
      labels: {},
      action: 'Above 0.05 for long: this process has more to do than one processor can.',
    }),
    acceptWait: catalogue.gauge({
      name: 'tollgate_accept_wait_seconds',
      across: 'max',
      meaning:
        'Upper bound of the time that new connections waited to be accepted, in the last quarter of a second.',
      labels: {},
      action:
        'Above 0.5: clients of new connections wait, and health checks with them. Raise the CPU quota, add replicas, or let clients keep their connections.',
    }),
    heap: catalogue.gauge({
      name: 'tollgate_heap_share',
      across: 'max',
      meaning: 'Share of the heap limit of V8 that is in use, from 0 to 1.',
      labels: {},
      action: 'Above 0.8: requests are refused soon. Give the process more memory.',
    }),
    connectionsLimit: catalogue.gauge({
      name: 'tollgate_connections_limit',
      meaning: 'Most client connections on the public listener; more are refused.',
      labels: {},
      action: 'Compare `tollgate_connections`; raise `listen.max_connections` and the limit of open files.',
    }),
  };
}

/** Of the process above several; others have no samples of them. */
export function workerMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Workers');
  return {
    workers: catalogue.gauge({
      name: 'tollgate_workers',
      across: 'first',
      meaning:
        'Workers of this replica: how many are configured, and how many serve. None where `workers` is 1.',
      labels: { state: '`configured`, `serving`' },
      action:
        '`serving` below `configured` for longer than a start takes: see `tollgate_worker_restarts_total`.',
    }),
    restarts: catalogue.counter({
      name: 'tollgate_worker_restarts_total',
      meaning: 'Workers that ended and were replaced, by cause.',
      labels: {
        cause:
          '`signal` (killed from outside, out of memory among it), `exit`, `fault` (an exception that nothing caught), `hung`, `start` (it could not start), `late` (it did not start in time)',
      },
      action: 'Any: the log has the exit code or the signal, and what the worker said last.',
    }),
  };
}
