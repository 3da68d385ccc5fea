// The number of connections that fit into the limit on open files. Node raises the soft limit to the hard one at start, and does not
// report exhaustion.
import { readFileSync } from 'node:fs';
import type { StaticConfig } from '../../config/schema/config-schema.ts';
import type { Logger } from '../../telemetry/log/logger.ts';

/** For listeners, store, Redis, log, spool, and temporary use by libraries. */
const RESERVED = 256;
/** Above this, memory is the limit. */
const MAX_CONNECTIONS = 16_384;
const MIN_CONNECTIONS = 16;
/** Usual default, if the system does not report its limit. */
const COMMON_LIMIT = 1024;

/** The soft limit on open files of this process. */
export function descriptorLimit(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8');
    const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? [];
    if (soft !== undefined) return soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    // Not Linux.
  }
  return reportedLimit() ?? COMMON_LIMIT;
}

/** From Node's diagnostic report, on all systems but Windows. Takes some milliseconds. */
function reportedLimit(): number | undefined {
  const report: unknown = process.report.getReport();
  const soft = ['userLimits', 'open_files', 'soft'].reduce<unknown>(
    (value, name) => (typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined),
    report,
  );
  if (soft === 'unlimited') return Number.POSITIVE_INFINITY;
  return typeof soft === 'number' ? soft : undefined;
}

/** Client connections for a limit on open files: half of the free ones, because a relayed request uses one on either side. */
export function connectionsWithin(limit: number): number {
  return Math.max(MIN_CONNECTIONS, Math.min(MAX_CONNECTIONS, Math.floor((limit - RESERVED) / 2)));
}

/** This process's share of `listen.max_connections`. It warns when the limit on open files is too low for it. */
export function maxConnections(
  { listen }: Pick<StaticConfig, 'listen'>,
  workers: number,
  logger: Pick<Logger, 'warn'>,
): { maxConnections?: number } {
  if (listen.max_connections === undefined) return {};
  const max_connections = Math.ceil(listen.max_connections / workers);
  const open_files = descriptorLimit();
  const advised = connectionsWithin(open_files);
  if (max_connections > advised) {
    const text = 'listen.max_connections leaves too few open files for connections to upstreams';
    logger.warn({ max_connections, open_files, advised }, text);
  }
  return { maxConnections: max_connections };
}
