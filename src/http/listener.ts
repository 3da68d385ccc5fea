// Node's HTTP server with the gateway's limits, timeouts and strictness, and nothing of what requests mean.
import http from 'node:http';
import { BACKLOG } from './accept/accept-queue.ts';
import { connectionsWithin, descriptorLimit } from './accept/descriptors.ts';

export interface ListenerLimits {
  /** Milliseconds that an answer may wait for a client that does not read. Default 60 s. */
  readonly writeStall?: number;
  /** Milliseconds from the first byte of a request, or from the connection, to the end of its headers. Default 10 s. */
  readonly headersTimeout?: number;
  /** Milliseconds that an idle connection is kept between two requests. Default 75 s. */
  readonly keepAlive?: number;
  /** Most connections at one time. Default: by the limit on open files. */
  readonly maxConnections?: number;
}

const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than the 60 s after which most load balancers close idle connections: the side that closes first can lose a request. */
const KEEP_ALIVE_MS = 75_000;
/** A client that takes nothing of its answer for this long has left without saying so. */
const WRITE_STALL_MS = 60_000;

/**
 * @param shouldUpgrade whether a request becomes 'upgrade' instead of 'request'
 * @returns a server that does not listen yet. Its `timeout` is the write stall: on 'timeout' no byte moved for as long
 */
export function createListener(
  { writeStall, headersTimeout, keepAlive, maxConnections }: ListenerLimits,
  shouldUpgrade: (request: http.IncomingMessage) => boolean,
): http.Server {
  const server = http.createServer({
    shouldUpgradeCallback: shouldUpgrade,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: headersTimeout ?? HEADERS_TIMEOUT_MS,
    // The body has its own deadlines (read-body.ts); a large one on a slow line is no fault.
    requestTimeout: 0,
    keepAliveTimeout: keepAlive ?? KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1_000, headersTimeout ?? 1_000),
    insecureHTTPParser: false,
    // Checked at the edge, where the refusal gets a body.
    requireHostHeader: false,
    noDelay: true,
  });
  // Otherwise Node truncates silently; the edge counts and refuses.
  server.maxHeadersCount = 0;
  server.maxConnections = maxConnections ?? connectionsWithin(descriptorLimit());
  server.timeout = writeStall ?? WRITE_STALL_MS;
  // A client that half-closed may still read its answer. Node's property for this has no type.
  Object.assign(server, { httpAllowHalfOpen: true });
  return server;
}

/**
 * @param port 0 takes a free one
 * @param onError what accept() reports later (no descriptors left, say), which ends no process
 * @throws the system's error (EADDRINUSE, EACCES)
 */
export function startListening(
  server: http.Server,
  host: string,
  port: number,
  onError: (error: Error) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, backlog: BACKLOG }, () => {
      server.off('error', reject).on('error', onError);
      resolve();
    });
  });
}
