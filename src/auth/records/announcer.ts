// The interface for announcing key changes to other processes. key-broadcast.ts implements it.

import type { CheckableKey } from '../key/principal.ts';
import type { KeyNotice } from './key-cache.ts';

export interface Announcement extends KeyNotice {
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** Announces changes to other processes. */
export interface Announcer {
  /**
   * Announces one change. Never rejects, and does not block for long: processes that it cannot reach read the change feed.
   * @param record the record of an issued key
   */
  announce(change: Announcement, record?: CheckableKey): Promise<void>;

  /**
   * Announces a change of a holder in one message for all of its keys. Otherwise like `announce`.
   * @param records current records of its active keys
   * @param at RFC 3339, UTC
   */
  announceChanged(records: readonly CheckableKey[], at: string): Promise<void>;
}
