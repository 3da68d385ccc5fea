// How many connections this process can hold: from the limit on open files, which Node raises to the hard limit at its
// start and says nothing of when it is reached.
import { readFileSync } from 'node:fs';

/** Listeners, store, Redis, log, spool, and what libraries open for a moment. */
const RESERVED = 256;
/** Above it memory is the limit, not descriptors. */
const MOST = 16_384;
const FEWEST = 16;
/** What systems allow where they do not say. */
const COMMON_LIMIT = 1024;

/** The soft limit on open files of this process. */
export function descriptorLimit(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8');
    const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? [];
    if (soft !== undefined) return soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    // No Linux.
  }
  return reportedLimit() ?? COMMON_LIMIT;
}

/** As a report of Node has it, on all systems but Windows. It takes some milliseconds. */
function reportedLimit(): number | undefined {
  const report: unknown = process.report.getReport();
  const soft = ['userLimits', 'open_files', 'soft'].reduce<unknown>(
    (value, name) => (typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined),
    report,
  );
  if (soft === 'unlimited') return Number.POSITIVE_INFINITY;
  return typeof soft === 'number' ? soft : undefined;
}

/**
 * Most client connections for a limit on open files: half of what is free, because a request that is relayed has a connection
 * on either side.
 */
export function connectionsWithin(limit: number): number {
  return Math.max(FEWEST, Math.min(MOST, Math.floor((limit - RESERVED) / 2)));
}
