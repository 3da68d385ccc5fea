// Records of what operators do with upstreams, and of how their states change.
import type { Authorship } from './key-record.ts';

/** An upstream that an operator has taken out of service. */
export interface UpstreamDrain {
  /** Its name in the configuration. */
  readonly upstream: string;
  /** RFC 3339, UTC. */
  readonly at: string;
  /** When it is in service again by itself, RFC 3339, UTC; null for never. */
  readonly until: string | null;
  readonly actor: string;
  readonly reason: string | null;
}

/** A change of the state of an upstream, or of one of its models. */
export interface UpstreamEvent {
  readonly id: number;
  /** RFC 3339, UTC. */
  readonly at: string;
  readonly upstream: string;
  /** Null for the upstream as a whole. */
  readonly model: string | null;
  /** Such as `breaker open`, `unhealthy` or `drained`. */
  readonly what: string;
  readonly reason: string | null;
  /** The process that saw it; null for what an operator did. */
  readonly replica: string | null;
  readonly actor: string | null;
}

/** Drains and events in the store. The guarantees of `Store` apply to its methods. */
export interface UpstreamStore {
  /** The drains that were not ended, also those whose time is over. */
  drains(): Promise<readonly UpstreamDrain[]>;
  /** Begins a drain, or replaces the present one, with its event. */
  drain(drain: UpstreamDrain): Promise<void>;
  /** Ends a drain, with its event. @returns the one that was ended; undefined if there was none */
  resume(upstream: string, by: Authorship): Promise<UpstreamDrain | undefined>;
  /** Ends a drain whose time is over, with its event, unless another process has done so. */
  expire(drain: UpstreamDrain): Promise<void>;
  /** Adds events, and deletes the oldest beyond the last 10,000. */
  addEvents(events: readonly Omit<UpstreamEvent, 'id'>[]): Promise<void>;
  /** Newest first. */
  events(filter: {
    readonly upstream?: string | undefined;
    /** Only older ones than the event with this id. */
    readonly before?: number | undefined;
    readonly limit: number;
  }): Promise<readonly UpstreamEvent[]>;
}
