// The limits of a key or a holder as reports show them, with what is used of them, by scope, and which of them would reject a request. It
// reads and reserves nothing.
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS, type Limit, type LimitName } from '../../config/limit-table.ts';
import { utcDateAt } from '../../limits/calendar.ts';
import type { Amounts, Rejected, ScopeStates } from '../../limits/limiter.ts';
import type { ScopeKind, Scopes } from '../../limits/scope.ts';
import { type LimitUsage, rejectionOf, UsageStates } from '../../limits/verdict.ts';
import { type BillingStatus, isPrefix, type KeySummary } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';

/** Of whom limits are: a principal, or a holder without a key. */
export type LimitedOwner = Pick<Principal, 'tier' | 'holderId' | 'holderTerms' | 'teamId' | 'terms'> & {
  readonly lineage: string;
};

export interface FoundOwner extends LimitedOwner {
  readonly standing: BillingStatus;
  /** Undefined for a holder without a key. */
  readonly key?: KeySummary;
}

/** @param whose the prefix of a key, or the id of a holder */
export async function findLimitedOwner(
  store: Pick<Store, 'findKey' | 'findHolder'>,
  whose: string,
): Promise<FoundOwner | undefined> {
  if (isPrefix(whose)) {
    const key = await store.findKey(whose);
    return key && { ...key, key };
  }
  const holder = await store.findHolder(whose);
  return holder && { ...holder, holderId: holder.id, holderTerms: holder.terms, terms: {}, lineage: '' };
}

export interface LimitLine {
  /** Absent for those of the holder. */
  readonly scope?: Exclude<ScopeKind, 'holder'>;
  /** Of the scope `model`: the entry of `models`. */
  readonly model?: string;
  readonly limit: LimitName;
  /** Of cost in units of the currency. */
  readonly max: number;
  readonly used: number;
  readonly remaining: number;
  readonly resets_in_s: number;
}

/** Of a limit's figures in a report: cost is in units of the currency there, and in billionths in counters. */
const unitOf = ({ counts }: Pick<Limit, 'counts'>): number => (counts === 'cost' ? 1e9 : 1);

/**
 * Which limit would reject a request; undefined where it fits in all.
 * @param lines what is used of these scopes, as `reportLimits` says it
 */
export function rejectionBy(
  scopes: Scopes,
  lines: readonly LimitLine[],
  amounts: Amounts,
): Rejected | undefined {
  const wallMs = Date.now();
  const usages = scopes.list.map(({ kind }): LimitUsage => {
    const own = lines.filter(({ scope = 'holder' }) => scope === kind);
    const lineOf = (name: LimitName) => own.find(({ limit }) => limit === name);
    const ofMinute = LIMITS.filter(({ window }) => window === 'minute').map(({ name }) => lineOf(name));
    return {
      wallMs,
      date: utcDateAt(wallMs),
      windowLeftMs: Math.max(0, ...ofMinute.map((line) => (line?.resets_in_s ?? 0) * 1000)),
      counts: LIMITS.map((limit) => Math.round((lineOf(limit.name)?.used ?? 0) * unitOf(limit))),
    };
  });
  const checks = usages.map((usage) => ({ usage, hasSlot: false }));
  const states = () =>
    usages.map((usage, index) => new UsageStates(() => usage, (scopes.list[index] ?? scopes.list[0]).active));
  return rejectionOf(scopes, checks, amounts, states);
}

export function reportLimits({ list }: Scopes, states: ScopeStates): readonly LimitLine[] {
  return list.flatMap(({ owner }, index) =>
    LIMITS.flatMap((row): LimitLine[] => {
      const limit = row.name;
      const state = states[index]?.of(limit);
      if (state === undefined) return [];
      const unit = unitOf(row);
      const model = owner.kind === 'model' ? { model: owner.model } : {};
      const scope = owner.kind === 'holder' ? {} : { scope: owner.kind, ...model };
      const [max, used, remaining] = [state.limit / unit, state.used / unit, state.remaining / unit];
      return [{ ...scope, limit, max, used, remaining, resets_in_s: Math.ceil(state.resetMs / 1000) }];
    }),
  );
}
