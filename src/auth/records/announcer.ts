// How changes of keys are told to other processes: what is said, and what may be expected of it. Who says it in which way is
// key-broadcast.ts.

import type { CheckableKey } from '../key/principal.ts';
import type { KeyNotice } from './key-cache.ts';

export interface Announcement extends KeyNotice {
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** Tells other processes of changes. */
export interface Announcer {
  /**
   * Never rejects, and takes a moment at most: who cannot be told now finds out from the store.
   * @param record of an issued key
   */
  announce(change: Announcement, record?: CheckableKey): Promise<void>;

  /**
   * Tells of keys of one holder that has changed, all in one message. As `announce`.
   * @param records active keys as they are now
   * @param at RFC 3339, UTC
   */
  announceChanged(records: readonly CheckableKey[], at: string): Promise<void>;
}
