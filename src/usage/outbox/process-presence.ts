// Which process a file of the spool belongs to, and whether that process is still there.
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** One ledger: where it runs, in which process, and a name that it shares with no other. */
export interface Owner {
  readonly host: string;
  readonly pid: number;
  readonly token: string;
}

/** Ledgers that are open in this process: there may be several on one directory. */
const living = new Set<string>();
const HOST = hostId();

/** A new owner in this process, there until `leave`. */
export function enter(): Owner {
  const token = randomBytes(6).toString('hex');
  living.add(token);
  return { host: HOST, pid: process.pid, token };
}

export function leave({ token }: Owner): void {
  living.delete(token);
}

/**
 * Whether the owner has certainly gone. An owner on another machine, or in another container, is never known to have gone:
 * its beats must tell. The same holds for one whose process id another process has by now.
 */
export function isGone({ host, pid, token }: Owner): boolean {
  if (host !== HOST) return false;
  if (pid === process.pid) return !living.has(token);
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ESRCH';
  }
}

/** Process ids mean something within one boot of one machine and within one container. */
function hostId(): string {
  const parts = [
    hostname(),
    attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8')),
    attempt(() => readlinkSync('/proc/self/ns/pid')),
  ];
  return createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 12);
}

function attempt(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}
