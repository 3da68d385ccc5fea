// The queries for usage: batches that count once, and reports. usage/ makes the batches and handles failed writes.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CompiledQuery, type RawBuilder, sql, type Transaction } from 'kysely';
import type { Tables } from '../../schema/tables.ts';
import type { UsageStore } from '../../store.ts';
import { addSums, MONTH_TEXTS, USAGE_SUMS, type UsageRow, usageSums } from '../../usage-record.ts';
import { deleteBefore, queryOfTexts, type SqlDatabase, transact } from '../sql-database.ts';
import { placeLate, readClosings, sqlUsageMonths } from './sql-usage-months.ts';
import { readUsage } from './sql-usage-report.ts';
import { sqlUsageTotals } from './sql-usage-totals.ts';

/** JavaScript numbers are inexact beyond it, so sums are capped. */
const MAX = sql.lit(Number.MAX_SAFE_INTEGER);
/** Days and months are read as text. Two of it are below the end of 64 bits. */
const MAX_EXACT = sql.raw(String(2n ** 61n));

/** The tables with sums: their time, and what else identifies a row. */
const HOURS = ['holder_id', 'hour', 'prefix', 'model', 'upstream'] as const;

const TABLES = [
  additionTo('usage_hours', HOURS, ({ hour, holderId, prefix, model, upstream }) => [
    holderId,
    hour,
    prefix,
    model,
    upstream,
  ]),
  additionTo('usage_days', ['day', ...MONTH_TEXTS], (row) => [row.hour.slice(0, 10), ...monthTexts(row)]),
  additionTo('usage_months', ['month', ...MONTH_TEXTS], (row) => [row.hour.slice(0, 7), ...monthTexts(row)]),
];

/** The columns of `batch_rows`, a temporary table where rows are bound once for all tables. It is empty between transactions. */
const BATCH = ['hour', ...MONTH_TEXTS, ...USAGE_SUMS];
/** Rows of a statement that binds them. There are few sizes, so that the connection keeps the statements prepared. */
const ROWS_AT_ONCE = [64, 8, 1];
/** Rows of a table after which others have their turn: some milliseconds. */
const ROWS_OF_TURN = 256;

export function sqlUsage(database: SqlDatabase): UsageStore {
  const { reader, writer } = database;
  return {
    ...sqlUsageMonths(database),
    ...sqlUsageTotals(database),

    addUsage(batch) {
      return transact(database, async (trx) => {
        const closings = await readClosings(database, trx, batch);
        // A second writer of the same batch waits here until the first one commits or fails.
        const marked = await trx
          .insertInto('usage_batches')
          .values({ id: batch.id, at: batch.at })
          .onConflict((conflict) => conflict.column('id').doNothing())
          .returning('id')
          .executeTakeFirst();
        if (marked === undefined) return 'known';
        if (batch.rows.length === 0) return 'written';
        const placed = await placeLate(trx, batch, closings);
        const rows = await withOwners(trx, placed.rows);
        if (database.bindsRows) await addBound(trx, rows);
        else for (const { addJson } of TABLES) await addJson(trx, rows, database);
        return placed.isLate ? 'late' : 'written';
      });
    },

    forgetBatches: (before, limit) => deleteBefore(writer, 'usage_batches', ['id'], 'at', before, limit),

    async knownBatches(ids) {
      const { rows } = await sql<{ id: string }>`
        select id from usage_batches where id in (${queryOfTexts(database, ids)})`.execute(reader);
      return new Set(rows.map(({ id }) => id));
    },

    async usageReport(query) {
      const lines = await readUsage(database, query);
      return lines.map(({ group, sums }) => ({ group, sums: usageSums((name) => capped(sums[name])) }));
    },

    exactReport: (query) => readUsage(database, query),

    async namesOf(ids) {
      const wanted = queryOfTexts(database, ids);
      const { rows } = await sql<{ id: string; name: string }>`
        select id, name from teams where id in (${wanted})
        union all select id, label from holders where label is not null and id in (${wanted})
        union all select team_id, substr(what, 9) from team_events where what like 'removed %' and team_id in (${wanted})`.execute(
        reader,
      );
      return new Map(rows.map(({ id, name }) => [id, name]));
    },
  };
}

/** Where an earlier version wrote a row, the holder has the tier and the team of the present. */
async function withOwners(trx: Transaction<Tables>, rows: readonly UsageRow[]): Promise<readonly UsageRow[]> {
  const ids = [...new Set(rows.flatMap(({ tier, holderId }) => (tier === '' ? [holderId] : [])))];
  if (ids.length === 0) return rows;
  const query = trx.selectFrom('holders').select(['id', 'tier', 'team_id']).where('id', 'in', ids);
  const owners = new Map((await query.execute()).map((owner) => [owner.id, owner]));
  return rows.map((row) => {
    const owner = row.tier === '' ? owners.get(row.holderId) : undefined;
    return owner === undefined ? row : { ...row, tier: owner.tier, teamId: owner.team_id ?? '' };
  });
}

/** In the order of `MONTH_TEXTS`. */
function monthTexts({ holderId, prefix, model, upstream, teamId, tier, target, endpoint }: UsageRow) {
  return [holderId, prefix, model, upstream, teamId, tier, target, endpoint];
}

/**
 * The values of rows, those of the key first. Each key is there once, because a statement may raise a row once, and in a fixed order, which
 * prevents a deadlock of two batches that share rows.
 */
function valuesOf(
  rows: readonly UsageRow[],
  textsOf: (row: UsageRow) => readonly string[],
): readonly (readonly (string | number)[])[] {
  const sorted = rows.map((row) => ({ texts: textsOf(row), sums: row.sums }));
  sorted.sort((a, b) => compareTexts(a.texts, b.texts));
  const merged: typeof sorted = [];
  for (const row of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && compareTexts(last.texts, row.texts) === 0) {
      const both = { ...last.sums };
      addSums(both, row.sums);
      last.sums = both;
    } else merged.push(row);
  }
  return merged.map(({ texts, sums }) => [...texts, ...USAGE_SUMS.map((name) => sums[name])]);
}

/** Of as many texts. */
function compareTexts(a: readonly string[], b: readonly string[]): number {
  for (let index = 0; index < a.length; index += 1) {
    const [one = '', other = ''] = [a[index], b[index]];
    if (one !== other) return one < other ? -1 : 1;
  }
  return 0;
}

/**
 * How rows are added to a table: as elements of one parameter, so that one round trip is enough, or from `batch_rows`.
 * @param textsOf the key of a row, in the order of the columns
 */
function additionTo(table: string, key: readonly string[], textsOf: (row: UsageRow) => readonly string[]) {
  const rolledUp = table === 'usage_hours';
  const names = sql.join(key.map((name) => sql.ref(name)));
  const sums = sql.join(USAGE_SUMS.map((name) => sql.ref(name)));
  // Arrays: a member of an object takes a database twice as long to find.
  const values = sql.join([
    ...key.map((_, index) => sql`cast(e.value ->> ${sql.lit(index)} as text)`),
    ...USAGE_SUMS.map((_, index) => sql`cast(e.value ->> ${sql.lit(key.length + index)} as bigint)`),
  ]);
  const max = rolledUp ? MAX : MAX_EXACT;
  const raised = sql.join(
    USAGE_SUMS.map((name) => {
      const [column, old, more] = [sql.ref(name), sql.ref(`${table}.${name}`), sql.ref(`excluded.${name}`)];
      return sql`${column} = case when ${old} > ${max} - ${more} then ${max} else ${old} + ${more} end`;
    }),
  );
  const marked = sql.raw(rolledUp ? ', rolled_up' : '');
  const mark = sql.raw(rolledUp ? ', 1' : '');
  const raisedMark = sql.raw(rolledUp ? `, rolled_up = ${table}.rolled_up + 1` : '');
  const adding = (
    source: RawBuilder<unknown>,
  ) => sql`insert into ${sql.table(table)} (${names}, ${sums}${marked})
    ${source} on conflict (${names}) do update set ${raised}${raisedMark}`;
  const times: Readonly<Record<string, RawBuilder<unknown>>> = {
    day: sql`substr(hour, 1, 10)`,
    month: sql`substr(hour, 1, 7)`,
  };
  let text: string | undefined;
  const own = sql.join(key.map((name) => times[name] ?? sql.ref(name)));
  return {
    async addJson(
      trx: Transaction<Tables>,
      rows: readonly UsageRow[],
      { elementsOf }: Pick<SqlDatabase, 'elementsOf'>,
    ): Promise<void> {
      const elements = elementsOf(JSON.stringify(valuesOf(rows, textsOf)));
      await adding(sql`select ${values}${mark} from ${elements} where true`).execute(trx);
    },
    /** Adds the rows of `batch_rows` after one, up to another. */
    async addBatch(trx: Transaction<Tables>, after: number, last: number): Promise<void> {
      const source = sql`select ${own}, ${sums}${mark} from batch_rows where rowid > ? and rowid <= ?`;
      text ??= adding(source).compile(trx).sql;
      await trx.executeQuery(CompiledQuery.raw(text, [after, last]));
    },
  };
}

/** A key may occur in several rows: each raises it. In the order of holders, neighbours share pages of the tables. */
async function addBound(trx: Transaction<Tables>, rows: readonly UsageRow[]): Promise<void> {
  const sorted = rows.toSorted(({ holderId: a }, { holderId: b }) => (a < b ? -1 : a > b ? 1 : 0));
  await trx.executeQuery(CompiledQuery.raw(BATCH_ROWS));
  let from = 0;
  for (const count of ROWS_AT_ONCE) {
    for (; from + count <= sorted.length; from += count) {
      const parameters: (string | number)[] = [];
      for (const row of sorted.slice(from, from + count))
        parameters.push(row.hour, ...monthTexts(row), ...USAGE_SUMS.map((name) => row.sums[name]));
      await trx.executeQuery(CompiledQuery.raw(BINDING.get(count) ?? '', parameters));
    }
  }
  for (const { addBatch } of TABLES) {
    for (let after = 0; after < sorted.length; after += ROWS_OF_TURN) {
      if (after > 0) await nextTurn();
      await addBatch(trx, after, after + ROWS_OF_TURN);
    }
  }
  await trx.executeQuery(CompiledQuery.raw('delete from batch_rows'));
}

const BATCH_ROWS = `create temporary table if not exists batch_rows (${BATCH.map((name) => `${name} ${isSum(name) ? 'integer' : 'text'}`).join(', ')})`;

function isSum(name: string): boolean {
  return USAGE_SUMS.some((sum) => sum === name);
}

/** The text of statements that bind so many rows. */
const BINDING = new Map(
  ROWS_AT_ONCE.map((count) => {
    const row = `(${BATCH.map(() => '?').join(', ')})`;
    return [count, `insert into batch_rows values ${Array.from({ length: count }, () => row).join(', ')}`];
  }),
);

function capped(sum: bigint): number {
  return Math.min(Number(sum), Number.MAX_SAFE_INTEGER);
}
