// Months that are closed, usage that is too late for them, usage from before there were days and months, and the end of old rows.
import { type RawBuilder, sql, type Transaction } from 'kysely';
import type { Tables } from '../../schema/tables.ts';
import type { UsageStore } from '../../store.ts';
import { nextMonth } from '../../usage-period.ts';
import {
  MONTH_TEXTS,
  type MonthEvent,
  USAGE_SUMS,
  type UsageBatch,
  type UsageRow,
  usageSums,
} from '../../usage-record.ts';
import { defer } from '../deferred-statements.ts';
import { deleteBefore, queryOfTexts, type SqlDatabase, transact } from '../sql-database.ts';

type UsageMonths = Pick<
  UsageStore,
  'rollUp' | 'forgetUsage' | 'usageKept' | 'months' | 'monthRows' | 'closeMonth' | 'setDigest' | 'reopenMonth'
>;

/** Holders of a day in one step of `rollUp`. */
const HOLDERS_AT_ONCE = 500;
const KEPT = { hours: 'usage_hours_from', days: 'usage_days_from' } as const;
const PRUNED = {
  hours: { table: 'usage_hours', key: ['holder_id', 'hour', 'prefix', 'model', 'upstream'], age: 'hour' },
  days: { table: 'usage_days', key: ['day', ...MONTH_TEXTS], age: 'day' },
} as const;

/** The key of a row of hours without its time. */
const OWNER = ['holder_id', 'prefix', 'model', 'upstream'].map((name) => sql.ref(name));
const TEXTS = MONTH_TEXTS.map((name) => sql.ref(name));
const SUMS = USAGE_SUMS.map((name) => sql.ref(name));

export function sqlUsageMonths(database: SqlDatabase): UsageMonths {
  const { reader, writer } = database;

  return {
    rollUp() {
      return transact(database, async (trx) => {
        // The latest day first. The update locks it, so that no two processes add the same difference.
        const { rows } = await sql<
          Tables['usage_backlog']
        >`update usage_backlog set after_holder = after_holder
          where day = (select max(day) from usage_backlog) returning day, after_holder`.execute(trx);
        const [next] = rows;
        if (next === undefined) return false;
        const { day, after_holder: after } = next;
        const inDay = sql`hour >= ${`${day}T00`} and hour <= ${`${day}T23`}`;
        const holders = await sql<{ holder_id: string }>`select distinct holder_id from usage_hours
          where ${inDay} and holder_id > ${after} order by holder_id limit ${sql.lit(HOLDERS_AT_ONCE)}`.execute(
          trx,
        );
        const last = holders.rows.at(-1)?.holder_id;
        if (last !== undefined) {
          const range = sql`holder_id > ${after} and holder_id <= ${last}`;
          // Months first: what is added to the days is no difference any more. Batches change both sides of it alike.
          for (const period of ['month', 'day'] as const) await addDifference(trx, period, day, inDay, range);
        }
        const isDone = holders.rows.length < HOLDERS_AT_ONCE;
        if (isDone) await trx.deleteFrom('usage_backlog').where('day', '=', day).execute();
        else
          await trx
            .updateTable('usage_backlog')
            .set({ after_holder: last ?? '' })
            .where('day', '=', day)
            .execute();
        return true;
      });
    },

    async forgetUsage(of, before, limit) {
      const { table, key, age } = PRUNED[of];
      const first = await reader
        .selectFrom('usage_backlog')
        .select((eb) => eb.fn.min('day').as('day'))
        .executeTakeFirst();
      const end = typeof first?.day === 'string' && first.day < before ? first.day : before;
      const value = Buffer.from(end);
      // Before the first row, so that no report counts what is left of a day.
      await writer
        .insertInto('settings')
        .values({ name: KEPT[of], value })
        .onConflict((conflict) =>
          conflict.column('name').doUpdateSet({ value }).where('settings.value', '<', value),
        )
        .execute();
      return deleteBefore(writer, table, key, age, end, limit);
    },

    async usageKept() {
      const query = reader.selectFrom('settings').select(['name', 'value']);
      const rows = await query.where('name', 'in', Object.values(KEPT)).execute();
      const dayOf = (name: string) =>
        Buffer.from(rows.find((row) => row.name === name)?.value ?? '').toString();
      return { hours: dayOf(KEPT.hours), days: dayOf(KEPT.days) };
    },

    async months() {
      const closings = await reader.selectFrom('usage_closings').selectAll().execute();
      // Each step reads one row of the index.
      const used = await sql<{ month: string }>`with recursive months (month) as (
          select min(month) from usage_months
          union all
          select (select min(later.month) from usage_months as later where later.month > months.month) from months
          where months.month is not null
        ) select month from months where month is not null`.execute(reader);
      const late = await sql<{ month: string; requests: string; cost: string }>`
        select month, cast(sum(requests) as text) as requests, cast(sum(cost) as text) as cost
        from usage_late group by month`.execute(reader);
      const events = closings.filter((closing) => eventsOf(closing).length > 0);
      const names = new Set([...used.rows, ...events].map(({ month }) => month));
      return [...names].sort().map((month) => {
        const closing = closings.find((each) => each.month === month);
        const missed = late.rows.find((each) => each.month === month);
        return {
          month,
          closedAt: closing?.closed_at ?? null,
          digest: closing?.digest ?? null,
          events: eventsOf(closing),
          late: { requests: Number(missed?.requests ?? 0), cost: BigInt(missed?.cost ?? 0) },
        };
      });
    },

    async monthRows(month, limit, after) {
      const from =
        after === undefined
          ? sql``
          : sql`and (${sql.join(TEXTS)}) > (${sql.join(after.map((text) => sql`${text}`))})`;
      const counts = sql.join(
        USAGE_SUMS.map((name) => sql`cast(${sql.ref(name)} as text) as ${sql.ref(name)}`),
      );
      const { rows } = await sql<
        Record<string, string>
      >`select ${sql.join(TEXTS)}, ${counts} from usage_months
        where month = ${month} ${from} order by ${sql.join(TEXTS)} limit ${sql.lit(limit)}`.execute(reader);
      return rows.map((row) => ({
        texts: MONTH_TEXTS.map((name) => row[name] ?? ''),
        sums: usageSums((name) => BigInt(row[name] ?? 0)),
      }));
    },

    closeMonth(month, by) {
      return transact(database, async (trx) => {
        const { closing, change } = await lock(trx, month);
        if (closing.closed_at !== null) return 'already';
        const waiting = await trx
          .selectFrom('usage_backlog')
          .select('day')
          .where('day', '>=', month)
          .where('day', '<', `${month}-99`)
          .executeTakeFirst();
        if (waiting !== undefined) return 'backlog';
        await change(by.at, { what: 'closed', ...by, digest: null });
        return 'closed';
      });
    },

    async setDigest(month, digest) {
      const query = writer.updateTable('usage_closings').set({ digest });
      await query.where('month', '=', month).where('closed_at', 'is not', null).execute();
    },

    reopenMonth(month, by) {
      return transact(database, async (trx) => {
        const { closing, change } = await lock(trx, month);
        if (closing.closed_at === null) return 'open';
        await change(null, { what: 'reopened', ...by, digest: closing.digest });
        return 'reopened';
      });
    },
  };
}

/** The closing of a month, which no batch reads until the end of the transaction. */
async function lock(trx: Transaction<Tables>, month: string) {
  const closing = await trx
    .insertInto('usage_closings')
    .values({ month, closed_at: null, digest: null })
    .onConflict((conflict) => conflict.column('month').doUpdateSet({ month }))
    .returningAll()
    .executeTakeFirstOrThrow();
  const change = async (
    closed_at: string | null,
    { what, at, actor, reason, digest }: MonthEvent,
  ): Promise<void> => {
    const events = JSON.stringify([...eventsOf(closing), { what, at, actor, reason, digest }]);
    const query = trx.updateTable('usage_closings').set({ closed_at, digest: null, events });
    await query.where('month', '=', month).execute();
  };
  return { closing, change };
}

function eventsOf(closing: { readonly events: string } | undefined): readonly MonthEvent[] {
  // Only this file writes it.
  return closing === undefined ? [] : (JSON.parse(closing.events) as readonly MonthEvent[]);
}

/**
 * Reads the closings of the months of a batch, which do not change until the end of the transaction.
 * @returns rows that are there once the next statement has been awaited
 */
export async function readClosings(
  database: SqlDatabase,
  trx: Transaction<Tables>,
  { rows, at }: UsageBatch,
): Promise<readonly Closing[]> {
  if (rows.length === 0) return [];
  // Late usage goes to the month of the batch, which is closed where the clock of this process is behind.
  const months = [...new Set([at, ...rows.map(({ hour }) => hour)].map((time) => time.slice(0, 7)))].sort();
  // There has to be a row that can be locked.
  const adding = sql`insert into usage_closings (month)
    ${queryOfTexts(database, months)} on conflict do nothing`;
  const reading = sql<Closing>`select month, closed_at from usage_closings
    where month in (${sql.join(months.map((month) => sql`${month}`))}) order by month ${database.forShare}`;
  await defer(trx, { compile: () => adding.compile(trx) });
  return defer(trx, { compile: () => reading.compile(trx) });
}

type Closing = Pick<Tables['usage_closings'], 'month' | 'closed_at'>;

/** Moves the rows of closed months to the hour of the batch, and notes them. */
export async function placeLate(
  trx: Transaction<Tables>,
  { id: batch_id, rows, at }: UsageBatch,
  closings: readonly Closing[],
): Promise<{ readonly rows: readonly UsageRow[]; readonly isLate: boolean }> {
  const closed = closings.flatMap(({ month, closed_at }) => (closed_at === null ? [] : [month]));
  const isOf = (month: string) => (row: UsageRow) => row.hour.startsWith(month);
  const late = closed.filter((month) => rows.some(isOf(month)));
  if (late.length === 0) return { rows, isLate: false };
  const now = at.slice(0, 7);
  // The clock of this process may be behind that of the process that closed the month.
  const hour = closed.includes(now) ? `${nextMonth(now)}-01T00` : at.slice(0, 'YYYY-MM-DDTHH'.length);
  for (const month of late) {
    const sum = (name: 'requests' | 'cost') =>
      rows.filter(isOf(month)).reduce((total, { sums }) => total + sums[name], 0);
    const cost = Math.min(sum('cost'), Number.MAX_SAFE_INTEGER);
    await defer(
      trx,
      trx.insertInto('usage_late').values({ batch_id, month, requests: sum('requests'), cost }),
    );
  }
  return {
    rows: rows.map((row) => (late.some((month) => isOf(month)(row)) ? { ...row, hour } : row)),
    isLate: true,
  };
}

/**
 * Adds what hours have of a day beyond what days have of it, for the team and the tier that holders have now.
 * @param inDay @param range conditions on hours of the day, and on holders
 */
async function addDifference(
  trx: Transaction<Tables>,
  period: 'day' | 'month',
  day: string,
  inDay: RawBuilder<unknown>,
  range: RawBuilder<unknown>,
): Promise<void> {
  const table = `usage_${period}s`;
  const key = sql.join([sql.ref(period), ...TEXTS]);
  const totals = sql.join(USAGE_SUMS.map((name) => sql`sum(${sql.ref(name)}) as ${sql.ref(name)}`));
  const owner = sql.join(OWNER);
  const pairs = USAGE_SUMS.map(
    (name) => [sql.ref(`a.${name}`), sql`coalesce(${sql.ref(`k.${name}`)}, 0)`] as const,
  );
  const more = pairs.map(
    ([all, known]) => sql`cast(case when ${all} > ${known} then ${all} - ${known} else 0 end as bigint)`,
  );
  const differs = pairs.map(([all, known]) => sql`${all} > ${known}`);
  const raised = USAGE_SUMS.map(
    (name) => sql`${sql.ref(name)} = ${sql.ref(`${table}.${name}`)} + ${sql.ref(`excluded.${name}`)}`,
  );
  await sql`insert into ${sql.table(table)} (${key}, ${sql.join(SUMS)})
    select ${period === 'day' ? day : day.slice(0, 7)}, a.holder_id, a.prefix, a.model, a.upstream,
      coalesce(h.team_id, ''), coalesce(h.tier, ''), '', '', ${sql.join(more)}
    from (select ${owner}, ${totals} from usage_hours where ${inDay} and ${range} group by ${owner}) as a
    left join (select ${owner}, ${totals} from usage_days where day = ${day} and ${range} group by ${owner}) as k
      on k.holder_id = a.holder_id and k.prefix = a.prefix and k.model = a.model and k.upstream = a.upstream
    left join holders as h on h.id = a.holder_id
    where ${sql.join(differs, sql` or `)}
    on conflict (${key}) do update set ${sql.join(raised)}`.execute(trx);
}
