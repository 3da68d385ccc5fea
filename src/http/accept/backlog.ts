// Length of the kernel's accept queue of a listening socket, from /proc/net/tcp; Linux only.
import { closeSync, openSync, readSync } from 'node:fs';
import type { AddressInfo } from 'node:net';

/** TCP_LISTEN. Listening sockets are listed first. */
const LISTEN = '0A';
/** A few lines: with a larger buffer the kernel walks its whole connection table. */
const READ_BYTES = 600;
/** Listening sockets beyond this offset are not found. */
const MAX_BYTES = 32 * 1024;

/**
 * @param address of a listening server
 * @returns undefined if it does not listen on TCP, or the system does not report it
 */
export function backlogLength(address: AddressInfo | string | null): number | undefined {
  if (address === null || typeof address === 'string') return undefined;
  const { port, family } = address;
  try {
    const file = openSync(family === 'IPv6' ? '/proc/net/tcp6' : '/proc/net/tcp', 'r');
    try {
      return find(file, `:${port.toString(16).toUpperCase().padStart(4, '0')}`);
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

function find(file: number, localEnd: string): number | undefined {
  const buffer = Buffer.alloc(READ_BYTES);
  let partial = '';
  for (let total = 0; total < MAX_BYTES; ) {
    const read = readSync(file, buffer, 0, READ_BYTES, null);
    if (read === 0) return undefined;
    total += read;
    const lines = (partial + buffer.toString('latin1', 0, read)).split('\n');
    partial = lines.pop() ?? '';
    for (const line of lines) {
      // Columns: number, local address, remote address, state, send and receive queue lengths.
      const [, local, , state, queues] = line.trim().split(/\s+/, 5);
      if (local === undefined || queues === undefined || local === 'local_address') continue;
      if (state !== LISTEN) return undefined;
      if (local.endsWith(localEnd)) return Number.parseInt(queues.slice(queues.indexOf(':') + 1), 16);
    }
  }
  return undefined;
}
