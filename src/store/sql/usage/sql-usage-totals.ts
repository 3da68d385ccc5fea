// The totals that limits count from: usage of a day and its month, of holders, teams, keys and models.
import { type RawBuilder, sql } from 'kysely';
import { eachTotal, TOTAL_LIMITS } from '../../../config/limit-table.ts';
import type { UsageStore } from '../../store.ts';
import { type HolderTotals, patternParts, type UsageScope } from '../../usage-record.ts';
import { queryOfTexts, type SqlDatabase } from '../sql-database.ts';

/** JavaScript numbers are inexact beyond it, so sums are capped. */
const MAX = sql.lit(Number.MAX_SAFE_INTEGER);

/** Totals of scopes, and the keys of a lineage. */
export function sqlUsageTotals(
  database: SqlDatabase,
): Pick<UsageStore, 'usageOf' | 'usageOfHolders' | 'keysOf'> {
  const { reader } = database;
  return {
    async usageOf(scope, day) {
      const { rows } = await sql<Record<string, unknown>>`
      select ${HOLDER_TOTALS} from (${periodsOf(scope, day)}) as u`.execute(reader);
      return holderTotals(rows[0]);
    },

    async usageOfHolders(ids, day) {
      const whose = sql`holder_id in (${queryOfTexts(database, ids)})`;
      const { rows } = await sql<Record<string, unknown>>`select u.holder_id, ${HOLDER_TOTALS}
        from (${hoursOf(whose, day)}) as u group by u.holder_id`.execute(reader);
      return new Map(rows.map((row) => [String(row['holder_id']), holderTotals(row)]));
    },

    async keysOf(lineage) {
      const { rows } = await sql<{ prefix: string; holder_id: string }>`
        select prefix, holder_id from keys where prefix in (${prefixes(lineage)})`.execute(reader);
      return { holderId: rows[0]?.holder_id ?? '', prefixes: rows.map(({ prefix }) => prefix) };
    },
  };
}

const AMOUNTS = { requests: sql`u.requests`, tokens: sql`u.prompt + u.completion`, cost: sql`u.cost` };
const COUNTED = sql`requests, prompt, completion, cost`;
/** Of the rows of `periodsOf`. */
const HOLDER_TOTALS = sql.join(
  TOTAL_LIMITS.map(({ name, window, counts }) => {
    const amount = AMOUNTS[counts];
    const counted = sql`case when ${sql.ref(`u.in_${window}`)} = 0 then 0 when ${amount} > ${MAX} then ${MAX} else ${amount} end`;
    return sql`${total(counted)} as ${sql.ref(name)}`;
  }),
);

function holderTotals(row: Readonly<Record<string, unknown>> = {}): HolderTotals {
  return eachTotal(({ name }) => Number(row[name] ?? 0));
}

/**
 * Usage of a day and its month, each row with whether it counts for the day and for the month. Hours have all usage, days and months
 * that from before the migration only when `rollUp` is done, but a team has many holders.
 */
function periodsOf(scope: UsageScope, day: string): RawBuilder<unknown> {
  const month = day.slice(0, 7);
  if (scope.kind === 'team')
    return sql`select 1 as in_day, 0 as in_month, ${COUNTED} from usage_days where team_id = ${scope.id} and day = ${day}
      union all
      select 0, 1, ${COUNTED} from usage_months where team_id = ${scope.id} and month = ${month}`;
  const whose =
    scope.kind === 'holder'
      ? sql`holder_id = ${scope.id}`
      : scope.kind === 'model'
        ? sql`holder_id = ${scope.holderId} and ${isOfModel(scope.model)} and not ${isOfAny(scope.except)}`
        : sql`holder_id = (select holder_id from keys where prefix = ${scope.lineage})
          and prefix in (${prefixes(scope.lineage)})`;
  return hoursOf(whose, day);
}

function hoursOf(whose: RawBuilder<unknown>, day: string): RawBuilder<unknown> {
  const month = day.slice(0, 7);
  return sql`select holder_id, case when substr(hour, 1, 10) = ${day} then 1 else 0 end as in_day, 1 as in_month, ${COUNTED}
    from usage_hours where ${whose} and hour >= ${month} and substr(hour, 1, 7) = ${month}`;
}

/** As `countsFor`. */
function isOfModel(entry: string): RawBuilder<unknown> {
  const isEntry = sql`model = ${entry}`;
  const isOther = isOfPattern(entry);
  return isOther === undefined ? isEntry : sql`(${isEntry} or ${isOther})`;
}

function isOfPattern(entry: string): RawBuilder<unknown> | undefined {
  const [beginning, end] = patternParts(entry) ?? [];
  if (beginning === undefined || end === undefined) return undefined;
  // In characters, as the databases count.
  const [first, last] = [Array.from(beginning).length, Array.from(end).length];
  return sql`(length(model) > ${sql.lit(first + last)}
    and substr(model, 1, ${sql.lit(first)}) = ${beginning}
    and substr(model, length(model) - ${sql.lit(last - 1)}) = ${end})`;
}

function isOfAny(entries: readonly string[] = []): RawBuilder<unknown> {
  if (entries.length === 0) return sql`(1 = 0)`;
  const names = sql.join(entries.map((entry) => sql`${entry}`));
  return sql`(model in (${names}) or ${anyOf(entries.flatMap((entry) => isOfPattern(entry) ?? []))})`;
}

/** As a balanced tree: SQLite bounds the depth of an expression, and a chain of a thousand is too deep. */
function anyOf(conditions: readonly RawBuilder<unknown>[]): RawBuilder<unknown> {
  const [first = sql`1 = 0`] = conditions;
  if (conditions.length < 2) return first;
  const half = Math.ceil(conditions.length / 2);
  return sql`(${anyOf(conditions.slice(0, half))} or ${anyOf(conditions.slice(half))})`;
}

function prefixes(lineage: string): RawBuilder<unknown> {
  return sql`select prefix from keys where prefix = ${lineage}
    union select prefix from key_lineages where first = ${lineage}`;
}

function total(of: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`cast(case when sum(${of}) > ${MAX} then ${MAX} else coalesce(sum(${of}), 0) end as bigint)`;
}
