// `tollgate check`: validates a configuration and summarizes it.
import type { Writable } from 'node:stream';
import { describeConfig } from '../config/check/summary.ts';
import { ConfigError, formatFault, loadConfig } from '../config/load-config.ts';
import { earlierStoreWarning } from '../store/earlier-store.ts';
import { outboxDirectory } from '../usage/outbox/default-directory.ts';

/**
 * @returns the exit code: 0 when the gateway would start with this file, otherwise 1
 */
export function runCheck(
  file: string,
  env: NodeJS.ProcessEnv,
  io: { readonly stdout: Writable; readonly stderr: Writable },
): number {
  try {
    const config = loadConfig(file, env);
    io.stdout.write(`${describeConfig(config)}\n`);
    const { store } = config.static;
    const warning = earlierStoreWarning(store, { spool: outboxDirectory(config.static) });
    const path = 'path' in store ? store.path : '';
    if (warning !== undefined) io.stderr.write(`warning: the store ${path}: ${warning}\n`);
    return 0;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    io.stderr.write(`${faultReport(error)}\n`);
    return 1;
  }
}

/** All faults and their count, for a terminal. */
export function faultReport(error: ConfigError): string {
  const count = error.faults.length;
  return [...error.faults.map(formatFault), `${count} ${count === 1 ? 'fault' : 'faults'}`].join('\n');
}
