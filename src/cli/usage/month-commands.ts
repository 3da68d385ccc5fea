// `tollgate usage months`, `close` and `export`: months that do not change any more, and the digests that prove it.
import { createHash } from 'node:crypto';
import type { Store } from '../../store/store.ts';
import { nextMonth } from '../../store/usage-period.ts';
import {
  type ExactSums,
  MONTH_TEXTS,
  type MonthRow,
  USAGE_SUMS,
  type UsageMonth,
  usageSums,
} from '../../store/usage-record.ts';
import { exactAmount, exactPublicSums } from '../../usage/records/public-sums.ts';
import { dayOf } from '../../usage/records/utc-hours.ts';
import { requireCurrency } from '../../usage/store-currency.ts';
import { actorOf, CHANGE_OPTIONS } from '../owners/owner-options.ts';
import { UsageError } from '../program/arguments.ts';
import { CONFIG, command, flag, type Operand, SHOW_OPTIONS } from '../program/command.ts';
import { print, type TableCell, tableOf } from '../program/table.ts';
import { write } from '../program/terminal.ts';
import { withStore } from '../support-desk.ts';
import { readMonth } from './report-period.ts';
import { csvField } from './usage-table.ts';

const PAGE = 2000;
/** The sums of the first version: a later one does not change the digest of a month. */
const DIGESTED_SUMS = USAGE_SUMS.slice(0, 13);
/** The header of the canonical form; costs are in billionths. */
const HEAD = ['month', 'holder', 'key', ...MONTH_TEXTS.slice(2), ...DIGESTED_SUMS];

const MONTH: Operand = { name: 'MONTH', about: 'a month, such as 2030-01' };

export const closeMonth = command(
  'close',
  'close a past month: its usage does not change any more; print its totals and a digest',
  {
    operand: MONTH,
    options: {
      reopen: flag('open a closed month again, with --reason', ['force']),
      force: flag('close a month before the first one with usage, too'),
      ...CHANGE_OPTIONS,
    },
    examples: ['usage close 2030-01', 'usage close 2030-01 --reopen --reason "late import"'],
    run: async (given, io, operand) => {
      const month = readMonth(operand);
      const now = io.now?.() ?? Date.now();
      const reason = given.reason ?? null;
      const by = { actor: actorOf(given, io), reason, at: new Date(now).toISOString() };
      if (given.reopen && reason === null) throw new UsageError('--reopen needs --reason');
      if (month >= dayOf(now).slice(0, 7))
        throw new Error(`${month} is not over: it can be closed from ${nextMonth(month)}-01 on`);
      return withStore(given, io, 'must exist', async (store, config) => {
        const currency = config.dynamic.currency ?? null;
        requireCurrency(config.dynamic.currency, await store.pinned('currency'));
        if (given.reopen) {
          if ((await store.usage.reopenMonth(month, by)) === 'open')
            throw new Error(`${month} is not closed`);
          const text = given.json ? JSON.stringify({ month, closed_at: null }) : `Reopened ${month}.`;
          await write(io.stdout, `${text}\n`);
          return 0;
        }
        const outcome = await close(store, month, by, given.force);
        const { digest, totals } = await digestOf(store, month);
        const known = await stateOf(store, month);
        if (known?.digest === null) await store.usage.setDigest(month, digest);
        else if (known?.digest !== digest)
          throw new Error(
            `the rows of ${month} are not those that it was closed with: its digest was ${known?.digest}`,
          );
        const closedAt = known?.closedAt ?? by.at;
        const shown = exactPublicSums(totals);
        const isEmpty = shown.requests === 0n;
        const said = [
          outcome === 'closed' ? `Closed ${month}.` : `${month} was closed at ${closedAt}.`,
          ...(isEmpty ? ['There is no usage in it.'] : []),
        ].join(' ');
        if (given.json) {
          const texts = Object.entries(shown).map(([name, value]) => [name, value?.toString() ?? null]);
          const fields = { month, closed_at: closedAt, digest, currency, totals: Object.fromEntries(texts) };
          await write(io.stdout, `${JSON.stringify(fields)}\n`);
          return 0;
        }
        const lines = [
          said,
          ...(['requests', 'failed', 'prompt_tokens', 'completion_tokens', 'cost'] as const).map(
            (name) => `${name.replace('_', ' ').padEnd(19)}${shown[name] ?? '-'}`,
          ),
          ...(currency === null ? [] : [`${'currency'.padEnd(19)}${currency}`]),
          `${'digest'.padEnd(19)}${digest}`,
        ];
        await write(io.stdout, `${lines.join('\n')}\n`);
        return 0;
      });
    },
  },
);

export const listMonths = command('months', 'list the months, and which are closed', {
  options: SHOW_OPTIONS,
  examples: ['usage months', 'usage months --json'],
  run: (given, io) =>
    withStore(given, io, 'must exist', async (store) => {
      const months = await store.usage.months();
      const fields = months.map(({ month, closedAt, digest, late, events }) => ({
        month,
        closed_at: closedAt,
        digest,
        late_requests: late.requests,
        late_cost: exactAmount(late.cost),
        events,
      }));
      const current = dayOf(io.now?.() ?? Date.now()).slice(0, 7);
      const stateText = ({ month, closedAt }: UsageMonth) =>
        closedAt === null ? (month >= current ? 'running' : 'open') : 'closed';
      const rows = months.map((each): TableCell[] => [
        each.month,
        stateText(each),
        each.closedAt,
        each.digest,
        each.late.requests,
      ]);
      const names = ['month', 'state', 'closed_at', 'digest', 'late_requests'];
      return print(io, given.json, fields, tableOf(names, rows, io));
    }),
});

/** Its canonical form. */
export const exportMonth = command(
  'export',
  'print the rows of a month as CSV, whose SHA-256 is the digest',
  {
    operand: MONTH,
    options: { config: CONFIG },
    examples: ['usage export 2030-01 > 2030-01.csv'],
    run: async (given, io, operand) => {
      const month = readMonth(operand);
      if (month > dayOf(io.now?.() ?? Date.now()).slice(0, 7))
        throw new UsageError(`${month} is in the future`);
      return withStore(given, io, 'must exist', async (store) => {
        while (await store.usage.rollUp());
        await write(io.stdout, line(HEAD));
        for await (const rows of pagesOf(store, month))
          await write(io.stdout, rows.map((row) => rowLine(month, row)).join(''));
        return 0;
      });
    },
  },
);

/** @throws Error for a month with nothing in it and nothing before it, which is probably mistyped, unless it is forced */
async function close(
  store: Store,
  month: string,
  by: Parameters<Store['usage']['closeMonth']>[1],
  isForced: boolean,
) {
  for (;;) {
    while (await store.usage.rollUp());
    const [first] = await store.usage.exactReport({ from: '0000', by: ['month'], limit: 1 });
    const since = first?.group[0] ?? month;
    if (!isForced && month < since && (await stateOf(store, month)) === undefined)
      throw new Error(
        `there is no usage in ${month}, nor before it: the first is in ${since}; give --force to close it all the same`,
      );
    const outcome = await store.usage.closeMonth(month, by);
    if (outcome !== 'backlog') return outcome;
  }
}

async function stateOf(store: Store, month: string): Promise<UsageMonth | undefined> {
  return (await store.usage.months()).find((each) => each.month === month);
}

/** SHA-256 of the canonical form: the bytes that `export` prints. */
async function digestOf(
  store: Store,
  month: string,
): Promise<{ readonly digest: string; readonly totals: ExactSums }> {
  const hash = createHash('sha256').update(line(HEAD));
  let totals = usageSums(() => 0n);
  for await (const rows of pagesOf(store, month))
    for (const row of rows) {
      hash.update(rowLine(month, row));
      const before = totals;
      totals = usageSums((name) => before[name] + row.sums[name]);
    }
  return { digest: hash.digest('hex'), totals };
}

async function* pagesOf(store: Store, month: string): AsyncGenerator<readonly MonthRow[]> {
  for (let after: readonly string[] | undefined; ; ) {
    const rows = await store.usage.monthRows(month, PAGE, after);
    yield rows;
    if (rows.length < PAGE) return;
    after = rows.at(-1)?.texts;
  }
}

function rowLine(month: string, { texts, sums }: MonthRow): string {
  return line([month, ...texts, ...DIGESTED_SUMS.map((name) => String(sums[name]))]);
}

function line(cells: readonly string[]): string {
  return `${cells.map((cell) => csvField(cell, false)).join(',')}\r\n`;
}
