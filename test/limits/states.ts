// The states of limits as tests compare and make them: records by the names of the limits.
import { LIMITS, type LimitName } from '../../src/config/limit-table.ts';
import { activeLimits } from '../../src/limits/active-limits.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import type { LimitState, LimitStates, ScopeStates } from '../../src/limits/limiter.ts';

const MISSING: LimitState = {
  limit: Number.NaN,
  used: Number.NaN,
  remaining: Number.NaN,
  resetMs: Number.NaN,
};

export type StateRecord = { readonly [Name in LimitName]?: LimitState };

export function recordOf(states: LimitStates): StateRecord {
  return Object.fromEntries(states.active.list.map(({ limit: { name } }) => [name, states.of(name)]));
}

export const recordsOf = (states: ScopeStates): readonly StateRecord[] => states.map(recordOf);

export function statesOf(record: StateRecord): LimitStates {
  const active = activeLimits(
    Object.fromEntries(LIMITS.flatMap(({ name }) => (record[name] ? [[name, record[name].limit]] : []))),
  );
  return {
    active,
    date: utcDateAt(0),
    of: (name) => record[name],
    at: ({ limit: { name } }) => record[name] ?? MISSING,
    used: ({ limit: { name } }) => record[name]?.used ?? Number.NaN,
  };
}
