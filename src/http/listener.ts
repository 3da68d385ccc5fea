// Creates Node's HTTP server with the gateway's limits, timeouts and strict parsing.
import http from 'node:http';
import type https from 'node:https';
import { BACKLOG } from './accept/accept-queue.ts';
import { connectionsWithin, descriptorLimit } from './accept/descriptors.ts';
import { allowHalfOpen } from './exchange/node-internals.ts';
import { IncomingRequest } from './incoming-request.ts';

export interface ListenerLimits {
  /** Milliseconds that a response may wait for a client that does not read. Default 60 s. */
  readonly writeStall?: number;
  /** Milliseconds from the first byte of a request, or from the connection, to the end of its headers. Default 10 s. */
  readonly headersTimeout?: number;
  /** Milliseconds that an idle connection is kept. Default 75 s. */
  readonly keepAlive?: number;
  /** Maximum of connections. Default: derived from the limit on open files. */
  readonly maxConnections?: number;
}

export type Listener = http.Server<typeof IncomingRequest>;

const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than the 60 s idle timeout of most load balancers: the side that closes first can lose a request. */
const KEEP_ALIVE_MS = 75_000;
/** A client that reads nothing for this long is considered gone. */
const WRITE_STALL_MS = 60_000;

/**
 * @param shouldUpgrade whether a request is emitted as 'upgrade' instead of 'request'
 * @returns a server that is not listening. Its `timeout` is the write stall: 'timeout' means that no byte moved for that time
 */
export function createListener(
  { writeStall, headersTimeout, keepAlive, maxConnections }: ListenerLimits,
  shouldUpgrade: (request: http.IncomingMessage) => boolean,
): Listener {
  const server = http.createServer({
    IncomingMessage: IncomingRequest,
    shouldUpgradeCallback: shouldUpgrade,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: headersTimeout ?? HEADERS_TIMEOUT_MS,
    // read-body.ts has deadlines for the body; a large one on a slow line is valid.
    requestTimeout: 0,
    keepAliveTimeout: keepAlive ?? KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1_000, headersTimeout ?? 1_000),
    insecureHTTPParser: false,
    // edge.ts checks it, so that the rejection has a body.
    requireHostHeader: false,
    noDelay: true,
  });
  // Node would truncate silently; edge.ts enforces the limit.
  server.maxHeadersCount = 0;
  server.maxConnections = maxConnections ?? connectionsWithin(descriptorLimit());
  server.timeout = writeStall ?? WRITE_STALL_MS;
  allowHalfOpen(server);
  return server;
}

/**
 * @param port 0 picks a free one
 * @param onError called for later errors of accept(), such as EMFILE, which must not end the process
 * @throws the system's error (EADDRINUSE, EACCES)
 */
export function startListening(
  server: http.Server | https.Server,
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
