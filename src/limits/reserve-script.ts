// What reserve.lua is called with, and where its values have what. The script starts with the table of limits as Lua constants.
// reserve-answer.ts reads what it returns.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { LIMITS, type LimitRow, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import { packageFile } from '../package-files.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { type UtcDate, utcDateAt } from './calendar.ts';
import type { Amounts } from './limiter.ts';
import type { PendingRelease } from './pending-releases.ts';
import type { Scope, Scopes } from './scope.ts';

/** The first fields of totals in a value. All versions have them in this order; other totals follow in the order of the table. */
const FIRST_FIELDS = [
  'requests_per_day',
  'tokens_per_day',
  'tokens_per_month',
  'cost_per_day',
  'cost_per_month',
];
/** Fields before those of the totals. */
const HEAD = 7;
const KINDS = { requests: 1, tokens: 2, cost: 3, running: 4 } as const;
const WINDOWS = { day: 1, month: 2 } as const;
const DOUBLE = 8;
/** Bytes of a field. */
const INTEGER = 8;

function inFields<Row extends { readonly name: string }>(totals: readonly Row[]): Row[] {
  const rank = ({ name }: Row) =>
    FIRST_FIELDS.includes(name) ? FIRST_FIELDS.indexOf(name) : FIRST_FIELDS.length;
  return totals.toSorted((one, other) => rank(one) - rank(other));
}

/** The totals of the table in the order of their fields. */
const STORED: readonly TotalLimit[] = inFields(TOTAL_LIMITS);

/** The position of a limit's count in a value, from 1. @param totals in the order of their fields */
function fieldOf({ name, counts, window }: LimitRow, totals: readonly { readonly name: string }[]): number {
  if (window === 'concurrent') return 4;
  if (window === 'minute') return counts === 'requests' ? 2 : 3;
  return HEAD + 2 * (totals.findIndex((total) => total.name === name) + 1);
}

/** Where a value has the count of each limit, in the order of the table, and the window of each total: in bytes. */
export const COUNT_OFFSETS = LIMITS.map((limit) => (fieldOf(limit, STORED) - 1) * INTEGER);
export const WINDOW_OFFSETS = STORED.map((_, order) => (HEAD + 2 * order) * INTEGER);
export const VALUE_BYTES = (HEAD + 2 * STORED.length) * INTEGER;

/** The script for a table of limits. */
export function reserveScript(limits: readonly LimitRow[]): string {
  const totals = inFields(
    limits.flatMap(({ name, counts, window }) =>
      window === 'day' || window === 'month' ? [{ name, kind: KINDS[counts], window: WINDOWS[window] }] : [],
    ),
  );
  const list = (numbers: readonly number[]): string => `{ ${numbers.join(', ')} }`;
  return [
    `local POSITIONS = ${list(limits.map((limit) => fieldOf(limit, totals)))}`,
    `local KINDS = ${list(limits.map(({ counts }) => KINDS[counts]))}`,
    `local TOTAL_KINDS = ${list(totals.map(({ kind }) => kind))}`,
    `local TOTAL_WINDOWS = ${list(totals.map(({ window }) => window))}`,
    `local SIZE = ${HEAD + 2 * totals.length}`,
    `local FORMAT = '<${'I8'.repeat(HEAD + 2 * totals.length)}'`,
    totalFunctions(totals),
    readFileSync(packageFile('limits/reserve.lua'), 'utf8'),
  ].join('\n');
}

export const LUA = reserveScript(LIMITS);

/** Lua functions about all totals of a value. They run for each scope of each call, where loops take several times as long. */
function totalFunctions(totals: readonly { readonly kind: number; readonly window: number }[]): string {
  const names = ['', 'requests', 'tokens', 'cost'];
  const windows = ['', 'day', 'month'];
  const rows = totals.map(({ kind, window }, order) => {
    const field = HEAD + 2 * (order + 1);
    return {
      kind,
      window: windows[window],
      own: `values[${field - 1}]`,
      count: `values[${field}]`,
      name: names[kind],
    };
  });
  const lines = (of: (row: (typeof rows)[number]) => string) => rows.map(of).join('\n');
  return `
-- @param day, month the windows with what was used before: odd
local function isCurrent(values, day, month)
  return ${rows.map(({ own, window }) => `${own} == ${window}`).join(' and ')}
end
local function isUncounted(values)
  return ${rows.map(({ own }) => `${own} == 0`).join(' and ')}
end
local function addToTotals(values, requests, tokens, cost)
${lines(({ count, name }) => `  ${count} = ${count} + ${name}`)}
end
-- Takes amounts out of the totals of these windows: they are even.
local function takeFromTotals(values, day, month, tokens, cost)
  local own
${lines(({ kind, own, window, count, name }) =>
  kind === KINDS.requests
    ? ''
    : `  own = ${own}
  if own == ${window} or own == ${window} + 1 then ${count} = ${count} > ${name} and ${count} - ${name} or 0 end`,
)}
end`;
}

/** What the calls for some scopes have in common. */
export interface ScriptScopes {
  /** The leases, and each scope. They share a hash tag, so that a Cluster keeps them together. */
  readonly keys: readonly string[];
  /** The ends of the scopes' keys, by which the members of the leases name them. */
  readonly tags: readonly string[];
  readonly limits: Buffer;
  /** The same for all scopes with these keys and limits. */
  readonly name: string;
}

/** By the objects of the request's scopes, which stay the same while a key is cached. */
const known = new WeakMap<Scopes, ScriptScopes>();

export function scriptScopesOf(scopes: Scopes): ScriptScopes {
  const found = known.get(scopes);
  if (found !== undefined) return found;
  const stem = `tollgate:limit:{${scopes.slot}}:`;
  const tags = scopes.list.map((scope) => tagOf(scope, scopes.slot));
  const keys = [`${stem}leases`, ...tags.map((tag) => stem + tag)];
  const limits = packedLimits(
    scopes.list.map(({ active }) => active.list.map(({ limit, max }) => [limit.index + 1, max])),
  );
  const made = { keys, tags, limits, name: `${keys.join(' ')} ${limits.toString('latin1')}` };
  known.set(scopes, made);
  return made;
}

/** @param limits for each scope, the position of each limit in the table, from 1, and its maximum */
export function packedLimits(limits: readonly (readonly (readonly number[])[])[]): Buffer {
  return packedNumbers(limits.flatMap((ofScope) => [ofScope.length, ...ofScope.flat()]));
}

function packedNumbers(numbers: readonly number[]): Buffer {
  const packed = Buffer.allocUnsafe(numbers.length * DOUBLE);
  for (let index = 0; index < numbers.length; index += 1)
    packed.writeDoubleLE(numbers[index] ?? 0, index * DOUBLE);
  return packed;
}

export interface NewLease {
  readonly id: string;
  readonly amounts: Amounts;
}

const MODES = { none: 0, real: 1, use: 2 } as const;

/**
 * The arguments of a batch. What the script needs for nearly all batches is summed up here, because Redis has one thread for the fleet.
 * @param now monotonic milliseconds
 */
export function batchArgs(
  scopes: Scopes,
  releases: readonly PendingRelease[],
  leases: readonly NewLease[],
  now: number,
): (string | number | Buffer)[] {
  const { limits, tags } = scriptScopesOf(scopes);
  const { date, groups, others } = groupEnded(releases, tags);
  const ended = { count: 0, tokens: 0, cost: 0, usedTokens: 0, usedCost: 0 };
  const reserved = { tokens: 0, cost: 0 };
  const inWindows: number[] = [];
  const details: number[] = [];
  const members: string[] = [];
  for (const group of groups) {
    let usedTokens = 0;
    for (const { member, amounts } of group.releases) {
      usedTokens += amounts.tokens;
      ended.usedCost += amounts.cost;
      details.push(amounts.tokens, amounts.cost);
      members.push(member);
    }
    inWindows.push(group.tokens, usedTokens, ...group.starts);
    ended.count += group.releases.length;
    ended.tokens += group.tokens;
    ended.cost += group.cost;
    ended.usedTokens += usedTokens;
  }
  for (const { member, amounts, requests, orElse, recent } of others) {
    const age = Math.max(0, Math.round(now - recent.since));
    details.push(amounts.tokens, amounts.cost, requests, MODES[orElse]);
    details.push(age, recent.requests, recent.amounts.tokens);
    members.push(member);
  }
  for (const { id, amounts } of leases) {
    reserved.tokens += amounts.tokens;
    reserved.cost += amounts.cost;
    details.push(amounts.tokens, amounts.cost);
    members.push(id, `${amounts.tokens}:${amounts.cost}`);
  }
  const sums = packedNumbers([
    date.day,
    date.month,
    others.length,
    ended.count,
    ended.tokens,
    ended.cost,
    ended.usedTokens,
    ended.usedCost,
    leases.length,
    reserved.tokens,
    reserved.cost,
    groups.length,
    ...inWindows,
  ]);
  const all = leases.length === 0 ? sums : Buffer.concat([sums, limits]);
  return ['batch', all, packedNumbers(details), ...members];
}

/** Leases that end, which began in the same minute windows. */
interface EndedGroup {
  /** Of the windows, in the order of the scopes. */
  readonly starts: readonly number[];
  readonly releases: PendingRelease[];
  /** What the leases reserved. */
  tokens: number;
  cost: number;
}

interface EndedLeases {
  /** On which all of them began. */
  readonly date: UtcDate;
  readonly groups: readonly EndedGroup[];
  /** Releases that the script treats one by one. */
  readonly others: readonly PendingRelease[];
}

/** @param tags of the scopes */
function groupEnded(releases: readonly PendingRelease[], tags: readonly string[]): EndedLeases {
  const groups = new Map<string, EndedGroup>();
  const others: PendingRelease[] = [];
  let ofAll: UtcDate | undefined;
  for (const release of releases) {
    const [, begun = '', tokens, cost, windows = ''] = release.member.split(':');
    const starts = groups.get(windows)?.starts ?? windowStarts(windows, tags);
    const isLate = release.recent.since > 0;
    if (isLate || release.requests !== 0 || release.orElse !== 'real' || starts === undefined) {
      others.push(release);
      continue;
    }
    const date = utcDateAt(Number(begun) / 1000);
    ofAll ??= date;
    if (date !== ofAll) {
      others.push(release);
      continue;
    }
    const group = groups.get(windows) ?? { starts, releases: [], tokens: 0, cost: 0 };
    groups.set(windows, group);
    group.releases.push(release);
    group.tokens += Number(tokens);
    group.cost += Number(cost);
  }
  return { date: ofAll ?? utcDateAt(Date.now()), groups: [...groups.values()], others };
}

/** The starts of the minute windows that a lease names. @returns undefined unless it names those of all `tags`, in their order */
function windowStarts(windows: string, tags: readonly string[]): number[] | undefined {
  const parts = windows.split(',');
  if (parts.length !== tags.length) return undefined;
  const starts = parts.map((part, index) => {
    const tag = `${tags[index]}=`;
    return part.startsWith(tag) ? Number(part.slice(tag.length)) : Number.NaN;
  });
  return starts.some(Number.isNaN) ? undefined : starts;
}

/** Short, because each lease has those of its scopes; in small letters and digits, which patterns of Lua read as themselves. */
function tagOf({ kind, id }: Scope, slot: string): string {
  return id === slot ? kind : kind + createHash('sha256').update(id).digest('hex').slice(0, 16);
}

/**
 * @param index of the scope
 * @param known the number of the day since 1970 where the totals are read anew
 */
export function initialTotalsArgs(index: number, totals: HolderTotals | undefined, known = 1): number[] {
  return [index + 1, totals === undefined ? 0 : known, ...STORED.map(({ name }) => totals?.[name] ?? 0)];
}
