// What reserve.lua is called with and what it answers.
import { readFileSync } from 'node:fs';
import { RedisCommandError } from '../redis/redis-client.ts';
import type { HolderTotals, TierLimits } from './limiter.ts';
import type { Used } from './verdict.ts';

export const LUA = readFileSync(new URL('./reserve.lua', import.meta.url), 'utf8');

/** What the script says of one holder. */
export interface ReserveAnswer {
  readonly used: Used;
  /** The lease as Redis has it; empty when nothing was reserved. */
  readonly member: string;
  readonly isAdmitted: boolean;
  readonly isProvisional: boolean;
}

/** All of one holder have one hash tag, so that they lie together in a Cluster. */
export function keysOf(holder: string): string[] {
  const stem = `tollgate:limit:{${holder}}`;
  return [`${stem}:minute`, `${stem}:totals`, `${stem}:leases`];
}

export function limitArgs(limits: TierLimits): number[] {
  return [
    limits.requests_per_minute ?? -1,
    limits.tokens_per_minute ?? -1,
    limits.requests_per_day ?? -1,
    limits.tokens_per_month ?? -1,
    limits.concurrency ?? -1,
  ];
}

export function initialTotalsArgs(totals: HolderTotals | undefined): number[] {
  return totals === undefined ? [0, 0, 0] : [1, totals.dayRequests, totals.monthTokens];
}

/** @returns undefined when the script needs totals */
export function readReserveAnswer(answer: unknown): ReserveAnswer | undefined {
  if (!Array.isArray(answer)) throw unexpected();
  if (answer.length === 0) return undefined;
  const numbers = answer.slice(0, 9).map(Number);
  const [verdict, wallMs, windowLeftMs, requests, tokens, dayRequests, monthTokens, running, known] = numbers;
  const member: unknown = answer[9];
  if (
    typeof member !== 'string' ||
    verdict === undefined ||
    wallMs === undefined ||
    windowLeftMs === undefined ||
    requests === undefined ||
    tokens === undefined ||
    dayRequests === undefined ||
    monthTokens === undefined ||
    running === undefined ||
    known === undefined
  ) {
    throw unexpected();
  }
  return {
    used: { wallMs, windowLeftMs, requests, tokens, dayRequests, monthTokens, running },
    member,
    isAdmitted: verdict === 1,
    isProvisional: known === 0,
  };
}

export function unexpected(): RedisCommandError {
  return new RedisCommandError('REPLY', 'the script of the limits gave an answer that is none of its own');
}
