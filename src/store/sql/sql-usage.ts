// The queries for usage: batches that count once, and reports. usage/ makes the batches and handles failed writes.
import { type RawBuilder, sql } from 'kysely';
import { eachTotal, TOTAL_LIMITS } from '../../config/limit-table.ts';
import type { Tables } from '../schema/tables.ts';
import type { UsageStore } from '../store.ts';
import {
  USAGE_SUMS,
  type UsageDimension,
  type UsageRow,
  type UsageSums,
  usageSums,
  windowPrefix,
} from '../usage-record.ts';
import { deleteBefore, type SqlDatabase, transact } from './sql-database.ts';

/** JavaScript numbers are inexact beyond it, so sums are capped. */
const MAX = sql.lit(Number.MAX_SAFE_INTEGER);

const KEY = ['holder_id', 'hour', 'prefix', 'model', 'upstream'] as const;
const KEY_LIST = sql.join(KEY.map((name) => sql.ref(name)));
const SUM_LIST = sql.join(USAGE_SUMS.map((name) => sql.ref(name)));
/** One parameter holds all rows, so the statement is the same for any number of them. */
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

/** Far below the maximum number of parameters of a statement. */
const IDS_AT_ONCE = 500;

export function sqlUsage(database: SqlDatabase): UsageStore {
  const { reader, writer, elementsOf } = database;
  return {
    addUsage(batch) {
      return transact(database, async (trx) => {
        // A second writer of the same batch waits here until the first one commits or fails.
        const marked = await trx
          .insertInto('usage_batches')
          .values({ id: batch.id, at: batch.at })
          .onConflict((conflict) => conflict.column('id').doNothing())
          .returning('id')
          .executeTakeFirst();
        if (marked === undefined) return 'known';
        if (batch.rows.length === 0) return 'written';
        // A fixed order prevents a deadlock of two batches that share rows.
        const elements = elementsOf(JSON.stringify(batch.rows.map(columnsOf).sort(byKey)));
        await sql`insert into usage_hours (${KEY_LIST}, ${SUM_LIST}) select ${VALUES} from ${elements} where true
        on conflict (${KEY_LIST}) do update set ${ADDED}`.execute(trx);
        return 'written';
      });
    },

    forgetBatches(before, limit) {
      return deleteBefore(writer, 'usage_batches', ['id'], 'at', before, limit);
    },

    async knownBatches(ids) {
      const known = new Set<string>();
      for (let from = 0; from < ids.length; from += IDS_AT_ONCE) {
        const some = ids.slice(from, from + IDS_AT_ONCE);
        const rows = await reader.selectFrom('usage_batches').select('id').where('id', 'in', some).execute();
        for (const { id } of rows) known.add(id);
      }
      return known;
    },

    async usageReport({ holderId, tier, from, by, limit }) {
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
      where ${sql.join(conditions, sql` and `)} ${grouping} limit ${sql.lit(limit)}`.execute(reader);
      return rows.map((row) => ({
        group: by.map((_, index) => String(row[`group_${index}`])),
        sums: sumsOf(row),
      }));
    },

    async usageOf(holderId, day) {
      const month = day.slice(0, 7);
      const totals = TOTAL_LIMITS.map((limit) => {
        const prefix = windowPrefix(limit, day);
        const amount = limit.counts === 'tokens' ? sql`h.prompt + h.completion` : sql`h.requests`;
        const counted = sql`case when substr(h.hour, 1, ${sql.lit(prefix.length)}) = ${prefix} then ${amount} else 0 end`;
        return sql`${total(counted)} as ${sql.ref(limit.name)}`;
      });
      const { rows } = await sql<Record<string, unknown>>`
      select ${sql.join(totals)} from usage_hours as h
      where h.holder_id = ${holderId} and h.hour >= ${month} and substr(h.hour, 1, 7) = ${month}`.execute(
        reader,
      );
      return eachTotal(({ name }) => Number(rows[0]?.[name] ?? 0));
    },
  };
}

function total(of: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`cast(case when sum(${of}) > ${MAX} then ${MAX} else coalesce(sum(${of}), 0) end as bigint)`;
}

function columnsOf({ holderId, hour, prefix, model, upstream, sums }: UsageRow): Tables['usage_hours'] {
  return { holder_id: holderId, hour, prefix, model, upstream, ...sums };
}

function byKey(a: Tables['usage_hours'], b: Tables['usage_hours']): number {
  for (const name of KEY) if (a[name] !== b[name]) return a[name] < b[name] ? -1 : 1;
  return 0;
}

function sumsOf(row: Readonly<Record<string, unknown>>): UsageSums {
  return usageSums((name) => Number(row[name]));
}
