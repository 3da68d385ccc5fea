// `tollgate usage`: usage reports from the store. Usage of the last second, or still in a gateway's outbox, is not included.
import { setImmediate as nextTick } from 'node:timers/promises';
import { TIERS } from '../../config/schema/config-schema.ts';
import type { Store } from '../../store/store.ts';
import {
  countsFor,
  type ExactLine,
  HOURLESS_DIMENSIONS,
  LABEL_DIMENSION,
  USAGE_DIMENSIONS,
  type UsageGroup,
  type UsageQuery,
  usageSums,
} from '../../store/usage-record.ts';
import { hourOf } from '../../usage/records/utc-hours.ts';
import { requireCurrency } from '../../usage/store-currency.ts';
import { holderId, LABEL_FILTER, labelOptions, requireLabels, teamNamed } from '../owners/owner-options.ts';
import { countUpTo, didYouMean, oneOf, UsageError } from '../program/arguments.ts';
import { CONFIG, choice, command, flag, group, JSON_OUTPUT, text } from '../program/command.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { noSuchKey, readPrefix } from '../support-command.ts';
import { withStore } from '../support-desk.ts';
import { closeMonth, exportMonth, listMonths } from './month-commands.ts';
import { keptPeriod, PERIOD_OPTIONS, readPeriod } from './report-period.ts';
import { csvOf, jsonOf, textOf } from './usage-table.ts';

/** Maximum lines of a report. */
const MAX_LINES = 100_000;
/** Of a table that a gateway makes: its columns need all lines at once. */
const MAX_TABLE_LINES = 2000;
const MAX_GROUPS = 3;
/** In one turn of the event loop, which a gateway needs for requests. */
const NAMES_AT_ONCE = 5000;
const SUMMED_AT_ONCE = 5000;

const report = command('usage', 'report usage, and close months', {
  detail:
    'Without a command, it reports usage. Team and tier are those that the holder had at that time. Hours, days and months are in UTC. JSON and CSV have exact costs.',
  options: {
    ...PERIOD_OPTIONS,
    by: text(
      'GROUPS',
      `one to three of ${USAGE_DIMENSIONS.join(', ')}, label:NAME, with commas; the default is model`,
    ),
    team: text('NAME', 'only of this team, by its name or id; it may have been removed'),
    holder: text('HOLDER', 'only of this holder, by its id or the prefix of one of its keys'),
    key: text('PREFIX', 'only of the holder of this key, with all its keys'),
    tier: choice(TIERS, 'TIER', 'only in this tier'),
    model: text('NAME', 'only of this model'),
    label: LABEL_FILTER,
    limit: {
      about: `at most so many lines; the totals include all; the default is ${MAX_LINES}`,
      value: 'N',
      initial: MAX_LINES,
      read: countUpTo(MAX_LINES, '--limit'),
    },
    json: JSON_OUTPUT,
    csv: flag('print CSV', ['json']),
    config: CONFIG,
  },
  examples: [
    'usage --since 30d --by team,model',
    'usage --month 2030-01 --by holder --csv',
    'usage --key 0123abcd --by day --json',
  ],
  run: async (given, io) => {
    const now = io.now?.() ?? Date.now();
    const by = groupsOf(given.by ?? 'model');
    const { tier, model, key } = given;
    const labels = labelOptions(given);
    const filter = { ...(tier && { tier }), ...(model && { model }), labels };
    const hourless = [
      ...by,
      ...(tier === undefined ? [] : ['tier']),
      ...(given.team === undefined ? [] : ['team']),
    ];
    const hasHours = !hourless.some((group) => HOURLESS_DIMENSIONS.has(group as UsageGroup));
    if (by.includes('hour') && !hasHours)
      throw new UsageError(
        `hours are kept without ${[...HOURLESS_DIMENSIONS].join(', ')}: use day instead of hour`,
      );
    const asked = readPeriod(given, now);
    const isTable = !given.json && !given.csv;
    const limit = isTable && io.desk !== undefined ? Math.min(given.limit, MAX_TABLE_LINES) : given.limit;
    const prefix = key === undefined ? undefined : await readPrefix(key, io);
    return withStore(given, io, 'must exist', async (store, config) => {
      requireCurrency(config.dynamic.currency, await store.pinned('currency'));
      await requireLabels(store, [...Object.keys(labels), ...labelsIn(by)]);
      const owner = await ownerOf(store, given, prefix, io);
      const period = keptPeriod(asked, by, hasHours, await store.usage.usageKept());
      const query = {
        ...filter,
        ...owner,
        from: period.from,
        ...(period.to !== undefined && { to: period.to }),
        by,
        limit: limit + 1,
      };
      const found = await store.usage.exactReport(query);
      if (model !== undefined && found.length === 0)
        await requireModel(store, model, Object.keys(config.dynamic.models));
      const lines = found.slice(0, limit);
      const isCut = found.length > lines.length;
      const names = await namesIn(store, by, lines);
      const nameOf = ({ group }: ExactLine) => group.map((id) => names.get(id) ?? id).join('\n');
      const table = {
        by,
        from: period.from,
        to: period.to === undefined ? hourOf(now) : `${period.to}T23`,
        currency: config.dynamic.currency,
        lines: names.size === 0 ? lines : sortedBy(nameOf, lines),
        totals: await sumOf(isCut ? await store.usage.exactReport({ ...query, by: [], limit: 1 }) : lines),
        names,
        isCut,
      };
      for (const piece of given.json ? jsonOf(table) : given.csv ? csvOf(table) : [textOf(table, io)]) {
        await write(io.stdout, piece);
        await nextTick();
      }
      if (isCut) {
        await write(
          io.stderr,
          `tollgate usage: only the first ${limit} lines are shown; the totals include all\n`,
        );
      }
      return 0;
    });
  },
});

/** @throws UsageError */
function groupsOf(given: string): readonly UsageGroup[] {
  const names = given.split(',').map((name) => name.trim());
  if (names.length > MAX_GROUPS) throw new UsageError(`--by takes at most ${MAX_GROUPS} groups`);
  const groups = names.map((name): UsageGroup => {
    if (name.startsWith(LABEL_DIMENSION) && name.length > LABEL_DIMENSION.length)
      return `${LABEL_DIMENSION}${name.slice(LABEL_DIMENSION.length)}`;
    if (name === 'label' || name === LABEL_DIMENSION) throw new UsageError('a group of labels is label:NAME');
    return oneOf(name, USAGE_DIMENSIONS, 'group of --by');
  });
  if (new Set(groups).size < groups.length) throw new UsageError('--by names a group twice');
  return groups;
}

function labelsIn(by: readonly UsageGroup[]): readonly string[] {
  return by.flatMap((group) =>
    group.startsWith(LABEL_DIMENSION) ? [group.slice(LABEL_DIMENSION.length)] : [],
  );
}

/** @throws Error that names the nearest model */
async function requireModel(store: Store, name: string, configured: readonly string[]): Promise<void> {
  if (configured.some((entry) => countsFor(entry, name))) return;
  const lines = await store.usage.exactReport({ from: '0000', by: ['model'], limit: MAX_LINES });
  const used = lines.flatMap(({ group }) => group);
  if (!used.includes(name))
    throw new Error(
      `no model has this name, and none with usage had it${didYouMean(name, [...configured, ...used])}`,
    );
}

async function ownerOf(
  store: Store,
  { team, holder }: { readonly team: string | undefined; readonly holder: string | undefined },
  prefix: Awaited<ReturnType<typeof readPrefix>> | undefined,
  io: CommandIo,
): Promise<Pick<UsageQuery, 'holderId' | 'teamId'>> {
  const teamOnly = team === undefined ? {} : { teamId: await teamIdOf(store, team, io) };
  if (prefix !== undefined && holder !== undefined) throw new UsageError('give either --holder or --key');
  if (prefix === undefined && holder === undefined) return teamOnly;
  const id =
    prefix === undefined ? await holderId(store, holder ?? '') : (await store.findKey(prefix))?.holderId;
  if (id !== undefined) return { ...teamOnly, holderId: id };
  throw prefix === undefined ? new Error('there is no holder with this id or key') : noSuchKey();
}

/** @param given the name or the id of a team, which may have been removed @throws Error */
async function teamIdOf(store: Store, given: string, { stderr }: CommandIo): Promise<string> {
  const { organisation } = store;
  const found =
    (await organisation.findTeam({ name: given })) ?? (await organisation.findTeam({ id: given }));
  const removed = await organisation.removedTeams(given);
  if (found !== undefined) {
    const other = `tollgate usage: a removed team had this name, too: for its usage give its id, ${removed.join(' or ')}\n`;
    if (removed.length > 0) await write(stderr, other);
    return found.id;
  }
  const [first, ...others] = removed;
  if (first === undefined) return (await teamNamed(store, given)).id;
  if (others.length === 0) return first;
  throw new Error(
    `several removed teams had this name: give the id of one, ${[first, ...others].join(' or ')}`,
  );
}

function sortedBy(nameOf: (line: ExactLine) => string, lines: readonly ExactLine[]): readonly ExactLine[] {
  const named = lines.map((line) => [nameOf(line), line] as const);
  return named.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, line]) => line);
}

async function sumOf(lines: readonly ExactLine[]) {
  let total = usageSums(() => 0n);
  for (let from = 0; from < lines.length; from += SUMMED_AT_ONCE) {
    const [before, portion] = [total, lines.slice(from, from + SUMMED_AT_ONCE)];
    total = usageSums((name) => portion.reduce((sum, { sums }) => sum + sums[name], before[name]));
    await nextTick();
  }
  return total;
}

/** Names of the holders and teams in the lines. */
async function namesIn(
  store: Store,
  by: readonly UsageGroup[],
  lines: readonly ExactLine[],
): Promise<ReadonlyMap<string, string>> {
  const named = by.flatMap((group, index) => (group === 'team' || group === 'holder' ? [index] : []));
  const ids = [...new Set(lines.flatMap(({ group }) => named.map((index) => group[index] ?? '')))];
  const names = new Map<string, string>();
  for (let from = 0; from < ids.length; from += NAMES_AT_ONCE)
    for (const [id, name] of await store.usage.namesOf(ids.slice(from, from + NAMES_AT_ONCE)))
      names.set(id, name);
  return names;
}

export const USAGE = group(
  'usage',
  'report usage, and close months',
  [listMonths, closeMonth, exportMonth],
  report,
);
