// Keeps the tables of usage in order: adds usage from before there were days and months to them, and deletes hours and days that are
// older than the configuration keeps. One replica of the fleet does it, in small steps.
import { randomUUID } from 'node:crypto';
import { Repeat } from '../repeat.ts';
import type { BillingStore } from '../store/billing-record.ts';
import type { UsageStore } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { dayOf } from './records/utc-hours.ts';

interface UsageUpkeepOptions {
  readonly store: Pick<UsageStore, 'rollUp' | 'forgetUsage'>;
  readonly takeTask: BillingStore['takeTask'];
  /** Milliseconds; undefined: the default. */
  readonly keepHours?: number | undefined;
  readonly keepDays?: number | undefined;
  readonly logger: Logger;
  readonly metrics: {
    /** Rows of `hours` or `days` were deleted. */
    onForgotten(of: 'hours' | 'days', rows: number): void;
  };
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  /** In milliseconds: between two steps, and between two rounds. */
  readonly pauses?: { readonly step: number; readonly round: number };
}

const DAY_MS = 86_400_000;
/** More than the 90 days of `/admin/usage`, and than a month, which limits read. */
const KEEP_HOURS_MS = 100 * DAY_MS;
/** A year and a month. */
const KEEP_DAYS_MS = 400 * DAY_MS;
const PAUSES = { step: 200, round: 600_000 };
const TASK = 'usage upkeep';
const LEASE_MS = 60_000;
const ROWS_AT_ONCE = 2000;

export class UsageUpkeep {
  readonly #options: UsageUpkeepOptions;
  readonly #owner = randomUUID();
  readonly #pauses: { readonly step: number; readonly round: number };
  readonly #steps = new Repeat(async () => this.#pauses[(await this.#step()) ? 'step' : 'round']);

  constructor(options: UsageUpkeepOptions) {
    this.#options = options;
    this.#pauses = options.pauses ?? PAUSES;
  }

  start(): void {
    this.#steps.start(this.#pauses.step);
  }

  /** Resolves when the running step has ended. */
  stop(): Promise<void> {
    return this.#steps.stop();
  }

  /** Never rejects. @returns whether there is more to do at once */
  async #step(): Promise<boolean> {
    const { store, takeTask, keepHours, keepDays, now = Date.now, logger, metrics } = this.#options;
    try {
      const at = now();
      const until = new Date(at + LEASE_MS).toISOString();
      if (!(await takeTask(TASK, this.#owner, new Date(at).toISOString(), until))) return false;
      if (await store.rollUp()) return true;
      let hasMore = false;
      for (const [of, keep] of [
        ['hours', keepHours ?? KEEP_HOURS_MS],
        ['days', keepDays ?? KEEP_DAYS_MS],
      ] as const) {
        const rows = await store.forgetUsage(of, dayOf(at - keep), ROWS_AT_ONCE);
        if (rows > 0) metrics.onForgotten(of, rows);
        hasMore ||= rows === ROWS_AT_ONCE;
      }
      return hasMore;
    } catch (error) {
      logger.warn({ err: error }, 'failed to keep the usage tables in order; retrying');
      return false;
    }
  }
}
