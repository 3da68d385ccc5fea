// The queries for use: batches that count once, and reports. When a batch is made, and what is done when it cannot be
// written, is usage/'s.
import { type Kysely, type RawBuilder, sql } from 'kysely';
import { eachTotal, TOTAL_LIMITS } from '../../config/limit-table.ts';
import type { Tables } from '../schema/tables.ts';
import type { UsageStore } from '../store.ts';
import { guarded } from '../store-errors.ts';
import {
  type HolderTotals,
  USAGE_SUMS,
  type UsageBatch,
  type UsageDimension,
  type UsageLine,
  type UsageQuery,
  type UsageRow,
  type UsageSums,
  usageSums,
  windowPrefix,
} from '../usage-record.ts';

export interface UsageOptions {
  readonly reader: Kysely<Tables>;
  readonly writer: Kysely<Tables>;
  /** A table expression with one row for each element of a JSON array, in a column `value`; it is named `e`. */
  readonly elementsOf: (json: string) => RawBuilder<unknown>;
}

/** Beyond it a number in JavaScript is not exact. A sum stops there rather than being wrong or failing. */
const MAX = sql.lit(Number.MAX_SAFE_INTEGER);

const KEY = ['holder_id', 'hour', 'prefix', 'model', 'upstream'] as const;
const KEY_LIST = sql.join(KEY.map((name) => sql.ref(name)));
const SUM_LIST = sql.join(USAGE_SUMS.map((name) => sql.ref(name)));
/** One parameter holds all rows, so that there is one statement for every number of them. */
const VALUES = sql.join([
  ...KEY.map((name) => sql`cast(e.value ->> ${sql.lit(name)} as text)`),
  ...USAGE_SUMS.map((name) => sql`cast(e.value ->> ${sql.lit(name)} as bigint)`),
]);
const ADDED = sql.join(
  USAGE_SUMS.map((name) => {
    const [column, old, more] = [sql.ref(name), sql.ref(`usage_hours.${name}`), sql.ref(`excluded.${name}`)];
    return sql`${column} = case when ${old} > ${MAX} - ${more} then ${MAX} else ${old} + ${more} end`;
  }),
);
const TOTALS = sql.join(USAGE_SUMS.map((name) => sql`${total(sql.ref(`h.${name}`))} as ${sql.ref(name)}`));

const DIMENSIONS: Readonly<Record<UsageDimension, RawBuilder<unknown>>> = {
  hour: sql`h.hour`,
  day: sql`substr(h.hour, 1, 10)`,
  model: sql`h.model`,
  upstream: sql`h.upstream`,
  key: sql`h.prefix`,
  tier: sql`coalesce(holders.tier, '')`,
};

/** Far below what a statement of either database may have as parameters. */
const IDS_AT_ONCE = 500;

export class SqlUsage implements UsageStore {
  readonly #reader: Kysely<Tables>;
  readonly #writer: Kysely<Tables>;
  readonly #elementsOf: UsageOptions['elementsOf'];

  constructor({ reader, writer, elementsOf }: UsageOptions) {
    this.#reader = reader;
    this.#writer = writer;
    this.#elementsOf = elementsOf;
  }

  addUsage(batch: UsageBatch): Promise<'written' | 'known'> {
    return guarded(() =>
      this.#writer.transaction().execute(async (trx) => {
        // A second writer of the same batch waits here for the first one to commit or to fail.
        const marked = await trx
          .insertInto('usage_batches')
          .values({ id: batch.id, at: batch.at })
          .onConflict((conflict) => conflict.column('id').doNothing())
          .returning('id')
          .executeTakeFirst();
        if (marked === undefined) return 'known';
        if (batch.rows.length === 0) return 'written';
        // In one order always: two batches that share rows would otherwise wait for each other.
        const elements = this.#elementsOf(JSON.stringify(batch.rows.map(columnsOf).sort(byKey)));
        await sql`insert into usage_hours (${KEY_LIST}, ${SUM_LIST}) select ${VALUES} from ${elements} where true
          on conflict (${KEY_LIST}) do update set ${ADDED}`.execute(trx);
        return 'written';
      }),
    );
  }

  forgetBatches(before: string, limit: number): Promise<number> {
    return guarded(async () => {
      const { numDeletedRows } = await this.#writer
        .deleteFrom('usage_batches')
        .where('id', 'in', (eb) =>
          eb.selectFrom('usage_batches').select('id').where('at', '<', before).orderBy('at').limit(limit),
        )
        .executeTakeFirst();
      return Number(numDeletedRows);
    });
  }

  knownBatches(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return guarded(async () => {
      const known = new Set<string>();
      for (let from = 0; from < ids.length; from += IDS_AT_ONCE) {
        const some = ids.slice(from, from + IDS_AT_ONCE);
        const rows = await this.#reader
          .selectFrom('usage_batches')
          .select('id')
          .where('id', 'in', some)
          .execute();
        for (const { id } of rows) known.add(id);
      }
      return known;
    });
  }

  usageReport({ holderId, tier, from, by, limit }: UsageQuery): Promise<readonly UsageLine[]> {
    return guarded(async () => {
      const groups = by.map((dimension) => DIMENSIONS[dimension]);
      const columns = groups.map((group, index) => sql`${group} as ${sql.ref(`group_${index}`)}, `);
      const conditions = [
        sql`h.hour >= ${from}`,
        ...(holderId === undefined ? [] : [sql`h.holder_id = ${holderId}`]),
        ...(tier === undefined ? [] : [sql`holders.tier = ${tier}`]),
      ];
      const grouping =
        groups.length === 0 ? sql`` : sql`group by ${sql.join(groups)} order by ${sql.join(groups)}`;
      const { rows } = await sql<Record<string, unknown>>`
        select ${sql.join(columns, sql``)}${TOTALS}
        from usage_hours as h left join holders on holders.id = h.holder_id
        where ${sql.join(conditions, sql` and `)} ${grouping} limit ${sql.lit(limit)}`.execute(this.#reader);
      return rows.map((row) => ({
        group: by.map((_, index) => String(row[`group_${index}`])),
        sums: sumsOf(row),
      }));
    });
  }

  usageOf(holderId: string, day: string): Promise<HolderTotals> {
    const month = day.slice(0, 7);
    const totals = TOTAL_LIMITS.map((limit) => {
      const prefix = windowPrefix(limit, day);
      const amount = limit.counts === 'tokens' ? sql`h.prompt + h.completion` : sql`h.requests`;
      const counted = sql`case when substr(h.hour, 1, ${sql.lit(prefix.length)}) = ${prefix} then ${amount} else 0 end`;
      return sql`${total(counted)} as ${sql.ref(limit.name)}`;
    });
    return guarded(async () => {
      const { rows } = await sql<Record<string, unknown>>`
        select ${sql.join(totals)} from usage_hours as h
        where h.holder_id = ${holderId} and h.hour >= ${month} and substr(h.hour, 1, 7) = ${month}`.execute(
        this.#reader,
      );
      return eachTotal(({ name }) => Number(rows[0]?.[name] ?? 0));
    });
  }
}

function total(of: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`cast(case when sum(${of}) > ${MAX} then ${MAX} else coalesce(sum(${of}), 0) end as bigint)`;
}

type Columns = Readonly<Record<(typeof KEY)[number], string>> & UsageSums;

function columnsOf({ holderId, hour, prefix, model, upstream, sums }: UsageRow): Columns {
  return { holder_id: holderId, hour, prefix, model, upstream, ...sums };
}

function byKey(a: Columns, b: Columns): number {
  for (const name of KEY) {
    if (a[name] !== b[name]) return a[name] < b[name] ? -1 : 1;
  }
  return 0;
}

function sumsOf(row: Readonly<Record<string, unknown>>): UsageSums {
  return usageSums((name) => Number(row[name]));
}
