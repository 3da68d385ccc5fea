// Reports of usage: sums by any of their dimensions, exact whatever their size, from the coarsest tables that have them.
import { setImmediate as nextTick } from 'node:timers/promises';
import { type RawBuilder, sql } from 'kysely';
import { type Periods, periodsOf } from '../../usage-period.ts';
import {
  type ExactLine,
  HOURLESS_DIMENSIONS,
  LABEL_DIMENSION,
  USAGE_SUMS,
  type UsageDimension,
  type UsageGroup,
  type UsageQuery,
  usageSums,
} from '../../usage-record.ts';
import { matchesLabel } from '../search/search-conditions.ts';
import type { SqlDatabase } from '../sql-database.ts';

/** All sums of a line are one text, because drivers are slow at many columns. It is empty without rows. */
const TOTALS = totals((column) => sql`sum(${column})`);

/** SQLite's sums end at 2^63: beyond it, the two parts of each number are summed apart. */
const HALF = 2n ** 30n;
const TOTALS_APART = totals((column) => {
  const half = sql.lit(Number(HALF));
  return sql`sum(${column} / ${half}) || ':' || sum(${column} % ${half})`;
});

const POSITIONS = usageSums((name) => USAGE_SUMS.indexOf(name));

/** Lines that are read before other work: a few milliseconds. */
const PORTION = 1000;

type Columns = Readonly<Record<UsageDimension, RawBuilder<unknown>>>;
type Table = keyof Periods;

/** What hours do not know is what the holder is now. */
const COLUMNS: Readonly<Record<Table, Columns>> = {
  months: columns({ month: sql`u.month` }),
  days: columns({ day: sql`u.day`, month: sql`substr(u.day, 1, 7)` }),
  hours: columns({
    hour: sql`u.hour`,
    day: sql`substr(u.hour, 1, 10)`,
    month: sql`substr(u.hour, 1, 7)`,
    team: sql`coalesce(h.team_id, '')`,
    tier: sql`coalesce(h.tier, '')`,
    target: sql`''`,
    endpoint: sql`''`,
  }),
};

const FROM: Readonly<Record<Table, RawBuilder<unknown>>> = {
  months: sql`usage_months as u`,
  days: sql`usage_days as u`,
  hours: sql`usage_hours as u left join holders as h on h.id = u.holder_id`,
};

/** Each line once, in the order of the groups. */
export async function readUsage({ reader }: SqlDatabase, query: UsageQuery): Promise<readonly ExactLine[]> {
  const { by, limit } = query;
  const periods = await periodsIn(reader, query);
  const reads = [
    ...(periods.months.length === 0 ? [] : [readTable('months', sql`u.month in (${list(periods.months)})`)]),
    ...dayConditions(periods.days, query).map((condition) => readTable('days', condition)),
    ...periods.hours.map(([from, to]) => readTable('hours', sql`u.hour >= ${from} and u.hour <= ${to}`)),
  ];
  const found = await Promise.all(reads);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const lines = new Map<string, ExactLine>(
    by.length === 0 ? [['', { group: [], sums: usageSums(() => 0n) }]] : [],
  );
  for (const line of found.flat()) {
    const { group, sums } = line;
    const name = group.join('\n');
    const known = lines.get(name)?.sums;
    lines.set(name, known ? { group, sums: usageSums((sum) => known[sum] + sums[sum]) } : line);
  }
  const sorted = [...lines].sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.slice(0, limit).map(([, line]) => line);

  async function readTable(table: Table, period: RawBuilder<unknown>): Promise<readonly ExactLine[]> {
    const own = COLUMNS[table];
    const names = by.map((_, index) => `group_${index}`);
    const groups = by.map((group, index) => sql`${groupOf(own, group)} as ${sql.ref(names[index] ?? '')}, `);
    const order = sql.raw(by.map((_, index) => index + 1).join(', '));
    const grouping =
      by.length === 0 ? sql`` : sql`group by ${order} order by ${order} limit ${sql.lit(limit)}`;
    const read = (sums: RawBuilder<unknown>) =>
      sql<Record<string, unknown>>`select ${sql.join(groups, sql``)}${sums} as sums from ${FROM[table]}
        where ${sql.join([period, ...conditionsOf(own, query)], sql` and `)} ${grouping}`.execute(reader);
    const { rows } = await read(TOTALS).catch((error: unknown) => {
      if (!isOverflow(error)) throw error;
      return read(TOTALS_APART);
    });
    const lines: ExactLine[] = [];
    for (const row of rows) {
      const texts = String(row['sums']).split(' ');
      lines.push({
        group: names.map((name) => String(row[name])),
        sums: usageSums((name) => exact(texts[POSITIONS[name]] ?? '')),
      });
      if (lines.length % PORTION === 0) await nextTick();
    }
    return lines;
  }
}

/** The periods of a report, within those that have usage. */
async function periodsIn(
  reader: SqlDatabase['reader'],
  { from, to = '9999-12-31', by, ...filter }: UsageQuery,
): Promise<Periods> {
  // Scalar subqueries: each reads one row of an index.
  const { rows } = await sql<Record<string, string | null>>`select
    (select min(hour) from usage_hours) as first_hour, (select max(hour) from usage_hours) as last_hour,
    (select min(month) from usage_months) as first_month, (select max(month) from usage_months) as last_month`.execute(
    reader,
  );
  const [known] = rows;
  const first = earliest(known?.['first_hour'], known?.['first_month']);
  const last = [known?.['last_hour'] ?? '', `${known?.['last_month'] ?? ''}-31T23`].reduce(later);
  if (first === undefined) return { months: [], days: [], hours: [] };
  const backlog = await reader.selectFrom('usage_backlog').select('day').execute();
  const finest = by.includes('hour') ? 'hour' : by.includes('day') ? 'day' : 'month';
  return periodsOf({
    from: later(padded(from), padded(first)),
    to: `${to}T23` < last ? `${to}T23` : last,
    finest,
    hasHours:
      filter.teamId === undefined &&
      filter.tier === undefined &&
      !by.some((group) => HOURLESS_DIMENSIONS.has(group)),
    backlog: new Set(backlog.map(({ day }) => day)),
  });
}

function earliest(...times: readonly (string | null | undefined)[]): string | undefined {
  return times.filter((time) => typeof time === 'string').toSorted()[0];
}

function later(a: string, b: string): string {
  return a > b ? a : b;
}

/** The first hour of a beginning of one, such as `2030`. */
function padded(time: string): string {
  return time + '0000-01-01T00'.slice(time.length);
}

/** One condition for each run of days; for a holder one for all of them, because the table is sorted by day and then by holder. */
function dayConditions(days: readonly string[], { holderId }: UsageQuery): readonly RawBuilder<unknown>[] {
  if (days.length === 0) return [];
  if (holderId !== undefined) return [sql`u.day in (${list(days)})`];
  const runs: [string, string][] = [];
  for (const day of days) {
    const run = runs.at(-1);
    if (run !== undefined && Date.parse(day) - Date.parse(run[1]) === 86_400_000) run[1] = day;
    else runs.push([day, day]);
  }
  return runs.map(([from, to]) => sql`u.day >= ${from} and u.day <= ${to}`);
}

function conditionsOf(own: Columns, query: UsageQuery): readonly RawBuilder<unknown>[] {
  const { holderId, teamId, tier, model, labels = {} } = query;
  const equal = { holder: holderId, team: teamId, tier, model };
  return [
    ...(['holder', 'team', 'tier', 'model'] as const).flatMap((name) =>
      equal[name] === undefined ? [] : [sql`${own[name]} = ${equal[name]}`],
    ),
    ...Object.entries(labels).map(([name, value]) => matchesLabel(labelOf(own, name), value)),
  ];
}

function groupOf(own: Columns, group: UsageGroup): RawBuilder<unknown> {
  return group.startsWith(LABEL_DIMENSION)
    ? labelOf(own, group.slice(LABEL_DIMENSION.length))
    : own[group as UsageDimension];
}

/** The label of the holder, or else of its team. */
function labelOf({ holder, team }: Columns, name: string): RawBuilder<unknown> {
  const value = (owner: RawBuilder<unknown>) =>
    sql`(select value from labels where owner_id = ${owner} and name = ${name})`;
  return sql`coalesce(${value(holder)}, ${value(team)}, '')`;
}

/** @param own those that have another name, or that not all tables have */
function columns(own: Partial<Columns>): Columns {
  return {
    hour: sql`''`,
    day: sql`''`,
    month: sql`''`,
    holder: sql`u.holder_id`,
    team: sql`u.team_id`,
    key: sql`u.prefix`,
    tier: sql`u.tier`,
    model: sql`u.model`,
    target: sql`u.target`,
    upstream: sql`u.upstream`,
    endpoint: sql`u.endpoint`,
    ...own,
  };
}

function list(texts: readonly string[]): RawBuilder<unknown> {
  return sql.join(texts.map((text) => sql`${text}`));
}

function totals(of: (column: RawBuilder<unknown>) => RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`concat_ws(' ', ${sql.join(USAGE_SUMS.map((name) => of(sql.ref(`u.${name}`))))})`;
}

/** Of SQLite; sums of PostgreSQL have no end. */
function isOverflow(error: unknown): boolean {
  return error instanceof Error && error.message === 'integer overflow';
}

function exact(text: string): bigint {
  const end = text.indexOf(':');
  return end === -1 ? BigInt(text) : BigInt(text.slice(0, end)) * HALF + BigInt(text.slice(end + 1));
}
