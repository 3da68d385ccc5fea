// Usage of one holder, team or key: from the store, plus what this process has not sent yet.
import { eachTotal } from '../config/limit-table.ts';
import type { CountingStore } from '../store/store.ts';
import {
  type HolderTotals,
  totalAmount,
  type UsageRow,
  type UsageScope,
  type UsageSums,
  usageSums,
  windowPrefix,
} from '../store/usage-record.ts';
import { ReadBatches } from './read-batches.ts';
import { dayOf, daysBefore } from './records/utc-hours.ts';
import type { UsageOutbox } from './usage-outbox.ts';

interface UsageDay {
  /** `YYYY-MM-DD`, UTC. */
  readonly day: string;
  readonly model: string;
  readonly sums: UsageSums;
}

export interface HolderReport {
  /** The first and the last day, inclusive. */
  readonly from: string;
  readonly to: string;
  readonly totals: UsageSums;
  /** In order of day and model. */
  readonly days: readonly UsageDay[];
  /** Whether `days` is incomplete; the totals include everything. */
  readonly isTruncated: boolean;
}

const MAX_LINES = 10_000;

export class HolderUsage {
  readonly #outbox: UsageOutbox;
  readonly #store: CountingStore;
  readonly #clock: () => number;
  readonly #together = new ReadBatches((holders) => this.#totalsOfHolders(holders));

  /** @param clock milliseconds since 1970 */
  constructor(outbox: UsageOutbox, store: CountingStore, clock: () => number = Date.now) {
    this.#outbox = outbox;
    this.#store = store;
    this.#clock = clock;
  }

  /** As `totalsOf`, of a holder, read together with those of others: for reads that can wait. */
  totalsTogether(holderId: string): Promise<HolderTotals> {
    return this.#together.read(holderId);
  }

  async #totalsOfHolders(holders: readonly string[]): Promise<ReadonlyMap<string, HolderTotals>> {
    const day = dayOf(this.#clock());
    const { stored, pending } = await this.#outbox.withPending(
      { kind: 'holders', ids: new Set(holders) },
      () => this.#store.usageOfHolders(holders, day),
    );
    const rows = Map.groupBy(pending, ({ holderId }) => holderId);
    return new Map(holders.map((id) => [id, withRows(stored.get(id) ?? NOTHING, rows.get(id) ?? [], day)]));
  }

  /** Usage in the current UTC day and month. @throws GatewayError store_unavailable */
  async totalsOf(scope: UsageScope): Promise<HolderTotals> {
    const day = dayOf(this.#clock());
    const filter =
      scope.kind === 'key'
        ? ({ kind: 'prefixes', ...(await this.#store.keysOf(scope.lineage)) } as const)
        : scope;
    const { stored, pending } = await this.#outbox.withPending(filter, () => this.#store.usageOf(scope, day));
    return withRows(stored, pending, day);
  }

  /** @param days number of days including today, from 1 @throws GatewayError store_unavailable */
  async reportOf(holderId: string, days: number): Promise<HolderReport> {
    const to = dayOf(this.#clock());
    const from = dayOf(daysBefore(this.#clock(), days - 1));
    const { stored, pending } = await this.#outbox.withPending({ kind: 'holder', id: holderId }, async () => {
      const [totals, lines] = await Promise.all([
        this.#store.usageReport({ holderId, from, by: [], limit: 1 }),
        this.#store.usageReport({ holderId, from, by: ['day', 'model'], limit: MAX_LINES + 1 }),
      ]);
      return { totals: totals[0]?.sums, lines };
    });
    const recent = pending.filter(({ hour }) => hour >= from);
    const known = new Map<string, UsageDay>();
    const add = (day: string, model: string, sums: UsageSums) => {
      const name = `${day}\n${model}`;
      known.set(name, { day, model, sums: sumUsageDays(known.get(name)?.sums, sums) });
    };
    for (const { group, sums } of stored.lines.slice(0, MAX_LINES)) add(group[0] ?? '', group[1] ?? '', sums);
    for (const { hour, model, sums } of recent) add(hour.slice(0, 10), model, sums);
    return {
      from,
      to,
      totals: sumUsageDays(stored.totals, ...recent.map(({ sums }) => sums)),
      days: [...known].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, day]) => day),
      isTruncated: stored.lines.length > MAX_LINES,
    };
  }
}

const NOTHING = eachTotal(() => 0);

function withRows(stored: HolderTotals, pending: readonly UsageRow[], day: string): HolderTotals {
  if (pending.length === 0) return stored;
  return eachTotal((limit) => {
    const recent = pending.filter(({ hour }) => hour.startsWith(windowPrefix(limit, day)));
    return recent.reduce((total, { sums }) => total + totalAmount(limit, sums), stored[limit.name]);
  });
}

/** Adds sums; undefined counts as zero. */
function sumUsageDays(...parts: readonly (UsageSums | undefined)[]): UsageSums {
  return usageSums((name) =>
    Math.min(
      parts.reduce((total, part) => total + (part?.[name] ?? 0), 0),
      Number.MAX_SAFE_INTEGER,
    ),
  );
}
