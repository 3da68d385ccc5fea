// The configuration that one request uses from beginning to end. routing.ts replaces it on reload.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { RouteTable } from './route-table.ts';

/** One loaded configuration. A request keeps the snapshot that it started with. */
export interface ConfigSnapshot {
  readonly config: DynamicConfig;
  readonly routes: RouteTable;
  /** A request that may use the upstreams starts: they stay open until `leave`. */
  enter(): void;
  leave(): void;
}

/** Keeps the snapshot's upstreams open while `work` runs. */
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
