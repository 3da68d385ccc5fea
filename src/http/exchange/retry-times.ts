// When clients that are rejected together come back: at different times, because SDKs come back exactly when the header says.
import type { Socket } from 'node:net';

const RETRY_TIMES_MS = [2_000, 2_250, 2_500, 2_750, 3_000, 3_250, 3_500, 3_750] as const;
type RetryTime = (typeof RETRY_TIMES_MS)[number];

/** Milliseconds, by the client's port: systems give them out in turn, Linux every second one. */
export function retryTimeOf({ remotePort = 0 }: Pick<Socket, 'remotePort'>): RetryTime {
  return RETRY_TIMES_MS[(remotePort >> 1) % RETRY_TIMES_MS.length] ?? RETRY_TIMES_MS[0];
}

/** @returns a function that has prepared something for each time, and returns that for the client */
export function preparedByRetryTime<T>(
  prepare: (retryAfterMs: RetryTime) => T,
): (client: Pick<Socket, 'remotePort'>) => T {
  const prepared = new Map(RETRY_TIMES_MS.map((ms) => [ms, prepare(ms)]));
  return (client) => {
    const time = retryTimeOf(client);
    return prepared.get(time) ?? prepare(time);
  };
}
