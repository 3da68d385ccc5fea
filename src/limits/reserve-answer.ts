// What reserve.lua returns, and what follows from it for the reservations of a call.
import { RedisCommandError } from '../redis/redis-client.ts';
import { utcDateAt } from './calendar.ts';
import type { Amounts, Rejected, ScopeStates } from './limiter.ts';
import { COUNT_OFFSETS, type NewLease, VALUE_BYTES, WINDOW_OFFSETS } from './reserve-script.ts';
import type { Scopes } from './scope.ts';
import { isFarFromLimits, type LimitUsage, rejectionOf, UsageStates, usageBefore } from './verdict.ts';

/** What the script returns of reservations, or of a change. */
export interface ReserveAnswer {
  /** One for each. `held`: rejected, and the lease that was to be changed is still there. */
  readonly verdicts: readonly Verdict[];
  /** Parts of the members of new leases. */
  readonly begun: string;
  readonly tags: string;
  /** With all that was admitted. */
  readonly scopes: readonly ScopeAnswer[];
}

type Verdict = (typeof VERDICTS)[number];

/** A lease as Redis stores it. */
export function leaseMemberOf(id: string, { tokens, cost }: Amounts, answer: ReserveAnswer): string {
  return `${id}:${answer.begun}:${tokens}:${cost}:${answer.tags}`;
}

interface ScopeAnswer {
  readonly usage: LimitUsage;
  readonly isProvisional: boolean;
}

const VERDICTS = ['refused', 'admitted', 'held'] as const;
/** The digit in ASCII. */
const ZERO = 48;
/** In place of a verdict. */
const NEEDS_TOTALS = 3;

/**
 * @param count of the scopes
 * @param windowMs length of the minute window
 * @returns the indexes of the scopes whose totals the script needs
 */
export function readReserveAnswer(
  answer: unknown,
  count: number,
  windowMs: number,
): ReserveAnswer | readonly number[] {
  if (!Array.isArray(answer)) throw unexpected();
  if (answer[0] === NEEDS_TOTALS) return answer.slice(1).map((index) => Number(index) - 1);
  const [digits, time, ofLeases, ...values]: unknown[] = answer;
  if (values.length !== count || !Buffer.isBuffer(digits) || !Buffer.isBuffer(ofLeases)) throw unexpected();
  const wallMs = Number(time);
  const date = utcDateAt(wallMs);
  const scopes = values.map((value): ScopeAnswer => {
    if (!Buffer.isBuffer(value) || value.length < VALUE_BYTES) throw unexpected();
    const start = integerAt(value, 0);
    const windowLeftMs = start > 0 ? start + windowMs - wallMs : 0;
    const counts = COUNT_OFFSETS.map((offset) => integerAt(value, offset));
    return { usage: { wallMs, date, windowLeftMs, counts }, isProvisional: isProvisional(value) };
  });
  const verdicts = Array.from(digits, (digit) => VERDICTS[digit - ZERO] ?? 'refused');
  const [begun = '', tags = ''] = ofLeases.toString('latin1').split(' ');
  return { verdicts, begun, tags, scopes };
}

/** Rounded above 2^53, as Lua has it. */
function integerAt(value: Buffer, offset: number): number {
  return value.readUInt32LE(offset) + value.readUInt32LE(offset + 4) * 0x1_0000_0000;
}

/** Whether totals are counted, and one of them without what was used before: its window is even. */
function isProvisional(value: Buffer): boolean {
  return WINDOW_OFFSETS.some((offset) => {
    const window = value.readUInt32LE(offset);
    return window > 0 && window % 2 === 0;
  });
}

/** What is left of the limits of each scope. */
export function statesOf({ list }: Scopes, usages: readonly LimitUsage[]): ScopeStates {
  return usages.map((usage, index) => new UsageStates(() => usage, (list[index] ?? list[0]).active));
}

/** What is used in each scope. */
export function usagesIn({ scopes }: ReserveAnswer): readonly LimitUsage[] {
  return scopes.map(({ usage }) => usage);
}

/** What the script has decided about one reservation of a batch. */
type Decision =
  | {
      readonly kind: 'admitted';
      readonly member: string;
      readonly amounts: Amounts;
      readonly states: ScopeStates;
      /** See `isFarFromLimits`. */
      readonly isFar: boolean;
    }
  | Rejected;

/** @returns for each reservation @throws RedisCommandError when the script has rejected what fits */
export function decisionsOf(
  scopes: Scopes,
  reservations: readonly NewLease[],
  answer: ReserveAnswer,
): Decision[] {
  // The script decides one after the other; the answer has the usage after the last.
  let usages = usagesIn(answer);
  const last = usages;
  const decisions = reservations.toReversed().map(({ id, amounts }, order): Decision => {
    const after = usages;
    const states = () => statesOf(scopes, after);
    const index = reservations.length - 1 - order;
    if (answer.verdicts[index] !== 'admitted') {
      const checks = after.map((usage) => ({ usage, hasSlot: false }));
      const rejection = rejectionOf(scopes, checks, amounts, states);
      if (rejection === undefined) throw unexpected();
      return rejection;
    }
    if (index > 0) usages = after.map((usage) => usageBefore(usage, amounts));
    const isFar = isFarFromLimits(scopes, last, amounts);
    return { kind: 'admitted', member: leaseMemberOf(id, amounts, answer), amounts, states: states(), isFar };
  });
  return decisions.reverse();
}

export function unexpected(): RedisCommandError {
  return new RedisCommandError('REPLY', 'the script of the limits returned a reply of unknown form');
}
