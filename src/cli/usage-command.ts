// `tollgate usage`: usage reports from the store. Usage of the last second, or still in a gateway's outbox, is not included.
import { TIERS } from '../config/schema/config-schema.ts';
import { readDuration } from '../config/schema/units.ts';
import type { Prefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { UsageQuery } from '../store/usage-record.ts';
import { dayOf, hourOf } from '../usage/records/utc-hours.ts';
import { oneOf, readArguments, UsageError } from './arguments.ts';
import { type CommandIo, noSuchKey, readPrefix, runCommand, write } from './support-command.ts';
import { withStore } from './support-desk.ts';
import { csvOf, jsonOf, tableOf, type UsageTable } from './usage-table.ts';

const GROUPS = ['model', 'day', 'hour', 'upstream', 'key', 'tier'] as const;

const USAGE_USAGE = `Usage: tollgate usage [--key PREFIX] [--tier TIER] [--since TIME] [--by GROUP] [--json | --csv] [--config FILE]

  --key PREFIX    only the holder of this key, with all its keys
  --tier TIER     only holders with the tier ${TIERS.join(', ')}
  --since TIME    a duration before now, such as 36h or 7d, or a day, such as 2030-01-31; the default is 7d
  --by GROUP      ${GROUPS.join(', ')}; the default is model
  --json, --csv   machine-readable output

Hours and days are in UTC. --config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'usage', usage: USAGE_USAGE };

const OPTIONS = {
  config: 'text',
  key: 'text',
  tier: 'text',
  since: 'text',
  by: 'text',
  json: 'flag',
  csv: 'flag',
} as const;
/** Maximum lines of a report. */
const MAX_LINES = 100_000;

/**
 * @param argv arguments after `tollgate usage`
 * @param now milliseconds since 1970
 * @returns the exit code: 0 also for an empty report; 1 failed or no such key; 2 wrong usage
 */
export function runUsage(
  argv: readonly string[],
  io: CommandIo,
  now: () => number = Date.now,
): Promise<number> {
  return runCommand(TEXT, argv, io, () => report(argv, io, now()));
}

async function report(argv: readonly string[], io: CommandIo, now: number): Promise<number> {
  const given = readArguments(argv, OPTIONS);
  const [key, tier] = [given.text('key'), given.text('tier')];
  if (given.flag('json') && given.flag('csv')) throw new UsageError('give either --json or --csv');
  const prefix = key === undefined ? undefined : await readPrefix(key, io);
  const by = oneOf(given.text('by') ?? 'model', GROUPS, 'group');
  const query: UsageQuery = {
    ...(tier !== undefined && { tier: oneOf(tier, TIERS, 'tier') }),
    from: sinceOf(given.text('since') ?? '7d', now),
    by: [by],
    limit: MAX_LINES,
  };
  return withStore(given, io, 'must exist', async (store) => {
    const table = await read(store, query, prefix, by, hourOf(now));
    const format = given.flag('json') ? jsonOf : given.flag('csv') ? csvOf : tableOf;
    await write(io.stdout, format(table));
    if (table.lines.length === MAX_LINES) {
      await write(
        io.stderr,
        `tollgate usage: only the first ${MAX_LINES} lines are shown; the totals include all\n`,
      );
    }
    return 0;
  });
}

async function read(
  store: Store,
  query: UsageQuery,
  prefix: Prefix | undefined,
  by: string,
  to: string,
): Promise<UsageTable> {
  const holderId = prefix === undefined ? undefined : (await store.findKey(prefix))?.holderId;
  if (prefix !== undefined && holderId === undefined) throw noSuchKey();
  const filtered = { ...query, ...(holderId !== undefined && { holderId }) };
  const lines = await store.usage.usageReport(filtered);
  const [total] = await store.usage.usageReport({ ...filtered, by: [], limit: 1 });
  if (total === undefined) throw new Error('the store returned no totals');
  return { by, from: query.from, to, lines, totals: total.sums };
}

/** @throws UsageError */
function sinceOf(text: string, now: number): string {
  if (/^\d{4}-\d\d-\d\d$/.test(text)) {
    const at = Date.parse(`${text}T00:00:00Z`);
    // `Date.parse` moves a day beyond the month's end into the next month.
    if (at >= 0 && dayOf(at) === text) return `${text}T00`;
  }
  const duration = readDuration(text);
  if (!duration.ok || duration.value <= 0) {
    throw new UsageError('--since is a duration, such as 36h or 7d, or a day, such as 2030-01-31');
  }
  return hourOf(now - duration.value);
}
