// What reserve.lua is called with and what it returns. The script starts with the table of limits as Lua constants.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { LIMITS, type LimitRow, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import { RedisCommandError } from '../redis/redis-client.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { utcDateAt } from './calendar.ts';
import type { Scope, Scopes } from './scope.ts';
import type { LimitUsage } from './verdict.ts';

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

function inFields<Row extends { readonly name: string }>(totals: readonly Row[]): Row[] {
  const rank = ({ name }: Row) =>
    FIRST_FIELDS.includes(name) ? FIRST_FIELDS.indexOf(name) : FIRST_FIELDS.length;
  return totals.toSorted((one, other) => rank(one) - rank(other));
}

/** The totals of the table in the order of their fields. */
const STORED: readonly TotalLimit[] = inFields(TOTAL_LIMITS);

/** The script for a table of limits. */
export function reserveScript(limits: readonly LimitRow[]): string {
  const totals = inFields(
    limits.flatMap(({ name, counts, window }) =>
      window === 'day' || window === 'month' ? [{ name, kind: KINDS[counts], window: WINDOWS[window] }] : [],
    ),
  );
  const list = (numbers: readonly number[]): string => `{ ${numbers.join(', ')} }`;
  const position = ({ name, counts, window }: LimitRow): number => {
    if (window === 'concurrent') return 4;
    if (window === 'minute') return counts === 'requests' ? 2 : 3;
    return HEAD + 2 * (totals.findIndex((total) => total.name === name) + 1);
  };
  return [
    `local POSITIONS = ${list(limits.map(position))}`,
    `local KINDS = ${list(limits.map(({ counts }) => KINDS[counts]))}`,
    `local TOTAL_KINDS = ${list(totals.map(({ kind }) => kind))}`,
    `local TOTAL_WINDOWS = ${list(totals.map(({ window }) => window))}`,
    `local SIZE = ${HEAD + 2 * totals.length}`,
    readFileSync(new URL('./reserve.lua', import.meta.url), 'utf8'),
  ].join('\n');
}

export const LUA = reserveScript(LIMITS);

/** What the calls for some scopes have in common. */
export interface ScriptScopes {
  /** The leases, and each scope. They share a hash tag, so that a Cluster keeps them together. */
  readonly keys: readonly string[];
  /** The ends of the scopes' keys, by which the members of the leases name them. */
  readonly tags: readonly string[];
  readonly limits: Buffer;
}

/** By the objects of the request's scopes, which stay the same while a key is cached. */
const known = new WeakMap<Scopes, ScriptScopes>();

export function scriptScopesOf(scopes: Scopes): ScriptScopes {
  const found = known.get(scopes);
  if (found !== undefined) return found;
  const stem = `tollgate:limit:{${scopes.slot}}:`;
  const tags = scopes.list.map((scope) => tagOf(scope, scopes.slot));
  const made = {
    keys: [`${stem}leases`, ...tags.map((tag) => stem + tag)],
    tags,
    limits: packedLimits(
      scopes.list.map(({ active }) => active.list.map(({ limit, max }) => [limit.index + 1, max])),
    ),
  };
  known.set(scopes, made);
  return made;
}

/** @param limits for each scope, the position of each limit in the table, from 1, and its maximum */
export function packedLimits(limits: readonly (readonly (readonly number[])[])[]): Buffer {
  const numbers = limits.flatMap((ofScope) => [ofScope.length, ...ofScope.flat()]);
  const packed = Buffer.alloc(numbers.length * DOUBLE);
  for (const [index, number] of numbers.entries()) packed.writeDoubleLE(number, index * DOUBLE);
  return packed;
}

/** Short, because each lease has those of its scopes; in small letters and digits, which patterns of Lua read as themselves. */
function tagOf({ kind, id }: Scope, slot: string): string {
  return id === slot ? kind : kind + createHash('sha256').update(id).digest('hex').slice(0, 16);
}

/** The state of the scopes of a request, as the script returns it. */
export interface ReserveAnswer {
  /** `held`: rejected, and the lease that was to be changed is still there. */
  readonly verdict: 'admitted' | 'refused' | 'held';
  /** The lease as Redis stores it; empty when nothing was reserved. */
  readonly member: string;
  readonly wallMs: number;
  readonly scopes: readonly ScopeAnswer[];
}

export interface ScopeAnswer {
  readonly usage: LimitUsage;
  readonly isProvisional: boolean;
}

/** @param index of the scope */
export function initialTotalsArgs(index: number, totals: HolderTotals | undefined): number[] {
  return [index + 1, totals === undefined ? 0 : 1, ...STORED.map(({ name }) => totals?.[name] ?? 0)];
}

const VERDICTS = ['refused', 'admitted', 'held'] as const;
/** In place of a verdict. */
const NEEDS_TOTALS = 3;

/** @returns the indexes of the scopes whose totals the script needs */
export function readReserveAnswer(answer: unknown, count: number): ReserveAnswer | readonly number[] {
  if (!Array.isArray(answer)) throw unexpected();
  if (answer[0] === NEEDS_TOTALS) return answer.slice(1).map((index) => Number(index) - 1);
  const size = 2 + LIMITS.length;
  if (answer.length !== 3 + count * size) throw unexpected();
  const member: unknown = answer[2];
  const [verdict = -1, wallMs = 0] = answer.slice(0, 2).map(Number);
  const name = VERDICTS[verdict];
  if (typeof member !== 'string' || name === undefined) throw unexpected();
  const date = utcDateAt(wallMs);
  const scopes: ScopeAnswer[] = [];
  for (let start = 3; start < answer.length; start += size) {
    const [windowLeftMs = 0, isKnown, ...counts] = answer.slice(start, start + size).map(Number);
    scopes.push({ usage: { wallMs, date, windowLeftMs, counts }, isProvisional: isKnown === 0 });
  }
  return { verdict: name, member, wallMs, scopes };
}

export function unexpected(): RedisCommandError {
  return new RedisCommandError('REPLY', 'the script of the limits returned a reply of unknown form');
}
