// How many connections wait in the kernel's accept queue of a listening socket. Linux alone says so, in /proc/net/tcp.
import { closeSync, openSync, readSync } from 'node:fs';
import type { AddressInfo } from 'node:net';

/** TCP_LISTEN. Listening sockets are listed first. */
const LISTEN = '0A';
/** A few lines: for a read that is not full, the kernel walks through its whole table of connections. */
const READ_BYTES = 600;
/** Listening sockets beyond it are not found. */
const MAX_BYTES = 32 * 1024;

/**
 * @param address of a server
 * @returns undefined where it does not listen on TCP, or the system does not say it
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
  let rest = '';
  for (let total = 0; total < MAX_BYTES; ) {
    const read = readSync(file, buffer, 0, READ_BYTES, null);
    if (read === 0) return undefined;
    total += read;
    const lines = (rest + buffer.toString('latin1', 0, read)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      // Number, local address, remote address, state, lengths of the queues for sending and receiving.
      const [, local, , state, queues] = line.trim().split(/\s+/, 5);
      if (local === undefined || queues === undefined || local === 'local_address') continue;
      if (state !== LISTEN) return undefined;
      if (local.endsWith(localEnd)) return Number.parseInt(queues.slice(queues.indexOf(':') + 1), 16);
    }
  }
  return undefined;
}
