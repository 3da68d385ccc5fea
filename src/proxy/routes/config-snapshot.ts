// The configuration as one request sees it, from its beginning to its end. How one follows another is routing.ts.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { RouteTable } from './route-table.ts';

/** All that one loaded configuration means to requests. A request ends with the snapshot that it began with. */
export interface ConfigSnapshot {
  readonly config: DynamicConfig;
  readonly routes: RouteTable;
  /** A request that may ask its upstreams has begun: they stay until it says `leave`. */
  enter(): void;
  leave(): void;
}

/** Keeps the upstreams of a snapshot for as long as `work` takes. */
export async function whileHeld(
  snapshot: ConfigSnapshot,
  work: (held: ConfigSnapshot) => Promise<void>,
): Promise<void> {
  snapshot.enter();
  try {
    await work(snapshot);
  } finally {
    snapshot.leave();
  }
}
