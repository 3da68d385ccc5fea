// Records of budget notices: that a scope has used a share of its budget, or all of it, told once in the whole fleet.

/** Identifies a notice: a second one with the same values is not made. */
export interface NoticeKey {
  /** The counters of the scope: of a holder, a key, a team, or a holder with one model. */
  readonly scope: string;
  /** `2026-10`, or `2026-10-31`, UTC. */
  readonly period: string;
  /** The budget in billionths of the currency. */
  readonly budget: number;
  /** The share that is used, in millionths; 1000000 for a spent budget; 0 for one near its end, of which no notice is sent. */
  readonly threshold: number;
}

/** A notice that is to be sent. */
export interface DueNotice {
  readonly id: number;
  /** JSON, as it is sent. */
  readonly body: string;
  /** Attempts to send it, with the one that is due. */
  readonly attempts: number;
}

/** Budget notices in the store. The guarantees of `Store` apply to its methods. */
export interface BudgetStore {
  /**
   * Records a notice unless it is known.
   * @param at RFC 3339, UTC
   * @param body of the message that is due now; null: none is sent
   * @returns whether this call recorded it
   */
  addNotice(notice: NoticeKey, at: string, body: string | null): Promise<boolean>;
  /** The latest notices, newest first. @param since RFC 3339, UTC @param periods as in `NoticeKey` */
  latestNotices(
    since: string,
    periods: readonly string[],
    limit: number,
  ): Promise<readonly Pick<NoticeKey, 'scope' | 'period'>[]>;
  /**
   * Takes notices that are due. Each is taken by one caller until `until`, and is then due again.
   * @param since those that have been due since before are left: nobody could send them
   * @param now RFC 3339, UTC, as the others
   */
  takeNotices(since: string, now: string, until: string, limit: number): Promise<readonly DueNotice[]>;
  /** @param dueAt of the next attempt, RFC 3339, UTC; null: it was sent, or is given up */
  settleNotice(id: number, dueAt: string | null): Promise<void>;
  /** Number of notices that are to be sent, now or later. @param since as of `takeNotices` */
  countDueNotices(since: string): Promise<number>;
  /** Deletes notices from before a time. @returns the number deleted */
  forgetNotices(before: string, limit: number): Promise<number>;
}
