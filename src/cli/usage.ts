// `tollgate usage`: what was used, for support. It reads the store alone: what a running gateway has recorded in the last
// second, or keeps in its spool, is not in it yet.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { Key, maskKeys } from '../auth/key.ts';
import { ConfigError } from '../config/fault.ts';
import { loadConfig } from '../config/load.ts';
import { TIERS } from '../config/schema.ts';
import { readDuration } from '../config/units.ts';
import { GatewayError } from '../errors.ts';
import { openStore, StoreOpenError } from '../store/open.ts';
import { isPrefix, type Prefix } from '../store/record.ts';
import type { Store } from '../store/store.ts';
import type { UsageQuery } from '../store/usage-record.ts';
import { dayOf, hourOf } from '../usage/hours.ts';
import { oneOf, readArguments, UsageError } from './arguments.ts';
import type { CommandIo } from './keys.ts';
import { csvOf, jsonOf, tableOf, type UsageTable } from './usage-table.ts';

const GROUPS = ['model', 'day', 'hour', 'upstream', 'key', 'tier'] as const;

export const USAGE_USAGE = `Usage: tollgate usage [--key PREFIX] [--tier TIER] [--since TIME] [--by GROUP] [--json | --csv] [--config FILE]

  --key PREFIX    of the holder of this key, with all of its keys
  --tier TIER     of holders in ${TIERS.join(', ')}
  --since TIME    a duration before now, such as 36h or 7d, or a day, such as 2030-01-31; the default is 7d
  --by GROUP      ${GROUPS.join(', ')}; the default is model
  --json, --csv   for programs

Hours and days are in UTC. --config names the configuration file; the default is ./config.yaml.
`;

const OPTIONS = {
  config: 'text',
  key: 'text',
  tier: 'text',
  since: 'text',
  by: 'text',
  json: 'flag',
  csv: 'flag',
} as const;
/** More lines than anybody reads; a program that wants more asks for less time. */
const MAX_LINES = 100_000;

/**
 * @param argv what follows `tollgate usage`
 * @param now milliseconds since 1970
 * @returns the exit code: 0 told, also when there is nothing to tell; 1 failed or no such key; 2 wrong usage
 */
export async function runUsage(
  argv: readonly string[],
  io: CommandIo,
  now: () => number = Date.now,
): Promise<number> {
  try {
    if (argv.includes('--help') || argv.includes('-h')) {
      await write(io.stdout, USAGE_USAGE);
      return 0;
    }
    return await report(argv, io, now());
  } catch (error) {
    if (error instanceof UsageError) {
      await write(io.stderr, `tollgate usage: ${maskKeys(error.message)}\n\n${USAGE_USAGE}`);
      return 2;
    }
    await write(io.stderr, `tollgate usage: ${maskKeys(explain(error))}\n`);
    return 1;
  }
}

async function report(argv: readonly string[], io: CommandIo, now: number): Promise<number> {
  const given = readArguments(argv, OPTIONS);
  const [key, tier] = [given.text('key'), given.text('tier')];
  if (given.flag('json') && given.flag('csv')) throw new UsageError('give either --json or --csv');
  const prefix = key === undefined ? undefined : prefixIn(key);
  if (prefix !== undefined && key?.length !== prefix.length) {
    await write(
      io.stderr,
      `Warning: a whole key was given. It now stands in the history of the shell and was in the list of processes; ` +
        `regard it as leaked. ${prefix} is enough.\n`,
    );
  }
  const by = oneOf(given.text('by') ?? 'model', GROUPS, 'group');
  const query: UsageQuery = {
    ...(tier !== undefined && { tier: oneOf(tier, TIERS, 'tier') }),
    from: sinceOf(given.text('since') ?? '7d', now),
    by: [by],
    limit: MAX_LINES,
  };
  const config = loadConfig(given.text('config') ?? './config.yaml', io.env);
  const address = config.static.store;
  if (address.kind === 'sqlite' && !existsSync(resolve(address.path))) {
    throw new StoreOpenError(`there is no store at ${resolve(address.path)}`);
  }
  const store = await openStore(address);
  try {
    const table = await read(store, query, prefix, by, hourOf(now));
    if (table === undefined) {
      await write(io.stderr, 'tollgate usage: there is no key with this prefix\n');
      return 1;
    }
    await write(
      io.stdout,
      given.flag('json') ? jsonOf(table) : given.flag('csv') ? csvOf(table) : tableOf(table),
    );
    if (table.lines.length === MAX_LINES) {
      await write(
        io.stderr,
        `tollgate usage: only the first ${MAX_LINES} lines are shown; the totals have all\n`,
      );
    }
    return 0;
  } finally {
    await store.close();
  }
}

/** Undefined when there is no such key. */
async function read(
  store: Store,
  query: UsageQuery,
  prefix: Prefix | undefined,
  by: string,
  to: string,
): Promise<UsageTable | undefined> {
  const holderId = prefix === undefined ? undefined : (await store.findKey(prefix))?.holderId;
  if (prefix !== undefined && holderId === undefined) return undefined;
  const asked = { ...query, ...(holderId !== undefined && { holderId }) };
  const lines = await store.usage.usageReport(asked);
  const [total] = await store.usage.usageReport({ ...asked, by: [], limit: 1 });
  if (total === undefined) throw new Error('the store gave no totals');
  return { by, from: query.from, to, lines, totals: total.sums };
}

/** @throws UsageError */
function sinceOf(text: string, now: number): string {
  if (/^\d{4}-\d\d-\d\d$/.test(text)) {
    const at = Date.parse(`${text}T00:00:00Z`);
    // A day that a month does not have is taken for one of the next month.
    if (at >= 0 && dayOf(at) === text) return `${text}T00`;
  }
  const duration = readDuration(text);
  if (!duration.ok || duration.value <= 0) {
    throw new UsageError('--since is a duration, such as 36h or 7d, or a day, such as 2030-01-31');
  }
  return hourOf(now - duration.value);
}

/** @throws UsageError. The text is not quoted: it may be most of a key. */
function prefixIn(text: string): Prefix {
  const lower = text.toLowerCase();
  const prefix = isPrefix(lower) ? lower : Key.parse(lower)?.prefix;
  if (prefix === undefined) {
    throw new UsageError('a key is named by its first 8 characters, 0-9 and a-f');
  }
  return prefix;
}

function explain(error: unknown): string {
  if (error instanceof ConfigError || error instanceof StoreOpenError) return error.message;
  if (error instanceof GatewayError && error.cause instanceof Error) {
    return `${error.message} (${error.cause.message})`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** Resolves when the text is out, so that a process that exits next has lost nothing. */
function write(stream: Writable, text: string): Promise<void> {
  return new Promise((done, failed) => {
    stream.once('error', failed);
    stream.write(text, (error) => {
      if (error) return failed(error);
      stream.off('error', failed);
      done();
    });
  });
}
