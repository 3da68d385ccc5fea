// The limits of a key or a holder as reports show them: with what is used of them, by scope. It reads and reserves nothing.
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS, type LimitName } from '../../config/limit-table.ts';
import type { ScopeStates } from '../../limits/limiter.ts';
import type { ScopeKind, Scopes } from '../../limits/scope.ts';
import { isPrefix } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';

/** Of whom limits are: a principal, or a holder without a key. */
export type LimitedOwner = Pick<Principal, 'tier' | 'holderId' | 'holderTerms' | 'teamId' | 'terms'> & {
  readonly lineage: string;
};

/** @param whose the prefix of a key, or the id of a holder */
export async function findLimitedOwner(
  store: Pick<Store, 'findKey' | 'findHolder'>,
  whose: string,
): Promise<LimitedOwner | undefined> {
  if (isPrefix(whose)) return store.findKey(whose);
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

export function reportLimits({ list }: Scopes, states: ScopeStates): readonly LimitLine[] {
  return list.flatMap(({ owner }, index) =>
    LIMITS.flatMap(({ name: limit, counts }): LimitLine[] => {
      const state = states[index]?.of(limit);
      if (state === undefined) return [];
      const unit = counts === 'cost' ? 1e9 : 1;
      const model = owner.kind === 'model' ? { model: owner.model } : {};
      const scope = owner.kind === 'holder' ? {} : { scope: owner.kind, ...model };
      const [max, used, remaining] = [state.limit / unit, state.used / unit, state.remaining / unit];
      return [{ ...scope, limit, max, used, remaining, resets_in_s: Math.ceil(state.resetMs / 1000) }];
    }),
  );
}
