// What reserve.lua is called with and what it returns. The script starts with the table of limits as Lua constants.
import { readFileSync } from 'node:fs';
import { type LimitRow, PLAIN_LIMITS, TOTAL_LIMITS } from '../config/limit-table.ts';
import { RedisCommandError } from '../redis/redis-client.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { utcDateAt } from './calendar.ts';
import type { LimitUsage } from './verdict.ts';

/** Names of fields in Redis from before the table: older versions share them. All others are named after their limit. */
const FIRST_FIELDS = new Map([
  ['requests_per_day', ['d', 'r']],
  ['tokens_per_month', ['m', 't']],
]);

/** The script for a table of limits. */
export function reserveScript(limits: readonly LimitRow[]): string {
  const totals = limits.filter(({ window }) => window === 'day' || window === 'month');
  const list = (texts: readonly string[]): string => `{ ${texts.map((text) => `'${text}'`).join(', ')} }`;
  return [
    `local WINDOWS = ${list(limits.map(({ window }) => window))}`,
    `local COUNTS = ${list(limits.map(({ counts }) => counts))}`,
    `local TOTALS = { ${totals.map((limit) => limits.indexOf(limit) + 1).join(', ')} }`,
    `local FIELDS = ${list(totals.flatMap(({ name }) => FIRST_FIELDS.get(name) ?? [`${name}:window`, name]))}`,
    readFileSync(new URL('./reserve.lua', import.meta.url), 'utf8'),
  ].join('\n');
}

export const LUA = reserveScript(PLAIN_LIMITS);

/** The state of one holder, as the script returns it. */
export interface ReserveAnswer {
  readonly usage: LimitUsage;
  /** The lease as Redis stores it; empty when nothing was reserved. */
  readonly member: string;
  readonly isAdmitted: boolean;
  readonly isProvisional: boolean;
}

/** All keys of a holder share a hash tag, so that a Cluster keeps them together. */
export function keysOf(holder: string): string[] {
  const stem = `tollgate:limit:{${holder}}`;
  return [`${stem}:minute`, `${stem}:totals`, `${stem}:leases`];
}

export function initialTotalsArgs(totals: HolderTotals | undefined): number[] {
  return [
    totals === undefined ? 0 : 1,
    ...TOTAL_LIMITS.filter(({ counts }) => counts !== 'cost').map(({ name }) => totals?.[name] ?? 0),
  ];
}

/** @returns undefined when the script needs totals */
export function readReserveAnswer(answer: unknown): ReserveAnswer | undefined {
  if (!Array.isArray(answer)) throw unexpected();
  if (answer.length === 0) return undefined;
  const member: unknown = answer[4];
  const [verdict = -1, wallMs = 0, windowLeftMs = 0, known] = answer.slice(0, 4).map(Number);
  const counts = answer.slice(5).map(Number);
  if (typeof member !== 'string' || counts.length !== PLAIN_LIMITS.length) throw unexpected();
  return {
    usage: { wallMs, date: utcDateAt(wallMs), windowLeftMs, counts },
    member,
    isAdmitted: verdict === 1,
    isProvisional: known === 0,
  };
}

export function unexpected(): RedisCommandError {
  return new RedisCommandError('REPLY', 'the script of the limits returned a reply of unknown form');
}
