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
