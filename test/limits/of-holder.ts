// A limiter for tests about one holder: its limits and tokens alone, in place of scopes and amounts.
import type { TierLimits } from '../../src/config/limit-table.ts';
import type { Admission, Lease, Limiter, Rejected, ScopeStates } from '../../src/limits/limiter.ts';
import { makeScope, makeScopes, type Scope, type Scopes } from '../../src/limits/scope.ts';
import { recordOf, type StateRecord } from './states.ts';

export const holderScope = (id: string, limits: TierLimits = {}): Scope =>
  makeScope({ kind: 'holder', id }, limits);

const NONE: TierLimits = {};
const made = new WeakMap<TierLimits, Map<string, Scopes>>();

/** The same for the same holder and object of limits, as for a key that is cached. */
export function holderScopes(id: string, limits: TierLimits = NONE): Scopes {
  const byId = made.get(limits) ?? new Map<string, Scopes>();
  made.set(limits, byId);
  const scopes = byId.get(id) ?? makeScopes(id, [holderScope(id, limits)]);
  byId.set(id, scopes);
  return scopes;
}

/** What a token costs here, so that one model has both, and none can be taken for the other. */
export const COST = 3;

export const tokensOnly = (tokens: number) => ({ tokens, cost: COST * tokens });

export interface HolderLease {
  readonly real: Lease;
  readonly tokens: number;
  settle(tokens: number): void;
}

export type HolderRejected = Omit<Rejected, 'states'> & {
  readonly states: StateRecord;
  readonly real: Rejected;
};

export type HolderAdmission =
  | { readonly kind: 'admitted'; readonly lease: HolderLease; readonly states: StateRecord }
  | HolderRejected;

export class OfHolder<L extends Limiter = Limiter> {
  readonly real: L;

  constructor(real: L) {
    this.real = real;
  }

  admit(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held?: HolderLease,
  ): HolderAdmission | Promise<HolderAdmission> {
    const admission = this.real.admit(holderScopes(holder, limits), tokensOnly(tokens), held?.real);
    return admission instanceof Promise ? admission.then(ofHolder) : ofHolder(admission);
  }

  use(holder: string, tokens: number): void {
    this.real.use(holderScopes(holder), tokensOnly(tokens));
  }

  peek(holder: string, limits: TierLimits): StateRecord | Promise<StateRecord> {
    const states = this.real.peek(holderScopes(holder, limits));
    return states instanceof Promise ? states.then(firstOf) : firstOf(states);
  }
}

const firstOf = ([first]: ScopeStates): StateRecord => (first === undefined ? {} : recordOf(first));

function ofHolder(admission: Admission): HolderAdmission {
  const states = firstOf(admission.states);
  if (admission.kind === 'refused') return { ...admission, states, real: admission };
  const { lease } = admission;
  return {
    kind: 'admitted',
    states,
    lease: {
      real: lease,
      get tokens() {
        return lease.amounts.tokens;
      },
      settle: (tokens) => lease.settle(tokensOnly(tokens)),
    },
  };
}
