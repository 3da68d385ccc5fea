// Single-flight: callers that want the same while it is under way share one call and its result.

export interface SingleFlight<A extends readonly unknown[], V> {
  (...args: A): Promise<V>;
  /** The call under way for a key. */
  running(key?: A[0]): Promise<V> | undefined;
}

/**
 * @param work rejects instead of throwing. Its first argument is the key of the call; the others are those of the first caller
 * @returns a function that calls `work` unless a call for the same key is under way
 */
export function singleFlight<A extends readonly unknown[], V>(
  work: (...args: A) => Promise<V>,
): SingleFlight<A, V> {
  const flights = new Map<unknown, Promise<V>>();
  const run = (...args: A): Promise<V> => {
    const key = args[0];
    const running = flights.get(key);
    if (running !== undefined) return running;
    const flight = work(...args).finally(() => flights.delete(key));
    flights.set(key, flight);
    return flight;
  };
  return Object.assign(run, { running: (key?: A[0]) => flights.get(key) });
}
