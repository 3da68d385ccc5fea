// The metrics of the process itself: which configuration is in force, and what it refuses to stay alive. They are part of
// metrics.ts; they measure nothing themselves.
import { Counter, Gauge, type Registry } from 'prom-client';

export type ReloadResult = 'applied' | 'unchanged' | 'rejected';

/** In the form in which the reloader tells them. */
export function configMetrics(registers: Registry[]) {
  const successful = new Gauge({
    name: 'tollgate_config_last_reload_successful',
    help: 'Whether the configuration file, as it was last read, is in force: 1 or 0.',
    registers,
  });
  const at = new Gauge({
    name: 'tollgate_config_last_reload_success_timestamp_seconds',
    help: 'When the configuration file was last read and found good, at start or since; Unix time.',
    registers,
  });
  const reloads = new Counter({
    name: 'tollgate_config_reloads_total',
    help: 'Readings of the configuration file since the start: applied, unchanged (it means the same) or rejected (the last good one stays).',
    labelNames: ['result'],
    registers,
  });
  const info = new Gauge({
    name: 'tollgate_config_info',
    help: 'Always 1; the label is the hash of the configuration in force.',
    labelNames: ['hash'],
    registers,
  });
  const pending = new Gauge({
    name: 'tollgate_config_restart_pending',
    help: 'Fields of the configuration file that differ from those in force and take a restart.',
    registers,
  });
  const stale = new Counter({
    name: 'tollgate_upstream_stale_addresses_total',
    help: 'Minutes in which connections went to addresses of an earlier lookup, because the name was not resolved.',
    labelNames: ['upstream'],
    registers,
  });
  return {
    stale,
    onReload: (result: ReloadResult) => reloads.inc({ result }),
    onState: (isGood: boolean, hash: string, pendingFields: number) => {
      successful.set(isGood ? 1 : 0);
      if (isGood) at.setToCurrentTime();
      info.reset();
      info.set({ hash }, 1);
      pending.set(pendingFields);
    },
  };
}

/** What the process refuses so that it can do the rest. */
export function overloadMetrics(registers: Registry[], droppedLines: () => number) {
  new Counter({
    name: 'tollgate_log_lines_dropped_total',
    help: 'Lines of the log that were dropped because nobody read them.',
    registers,
    collect() {
      const known = droppedLines();
      this.reset();
      this.inc(known);
    },
  });
  return {
    refused: new Counter({
      name: 'tollgate_overload_refused_total',
      help: 'Requests on /v1 answered 503 because the process had too much to do, by cause: event_loop or heap.',
      labelNames: ['cause'],
      registers,
    }),
    share: new Gauge({
      name: 'tollgate_overload_refused_share',
      help: 'Share of new requests on /v1 that is turned away at the moment, from 0 to 1.',
      registers,
    }),
    delay: new Gauge({
      name: 'tollgate_event_loop_delay_seconds',
      help: 'By how much the event loop was late, on average over the last quarter of a second.',
      registers,
    }),
    heap: new Gauge({
      name: 'tollgate_heap_share',
      help: 'Share of the heap limit of V8 that is in use, from 0 to 1.',
      registers,
    }),
    connectionsLimit: new Gauge({
      name: 'tollgate_connections_limit',
      help: 'Most client connections on the public listener; more are refused.',
      registers,
    }),
  };
}
