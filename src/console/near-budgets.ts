// Budgets near their end: the owners of the latest notices, with their budgets and what is used of them now. One look serves all
// operators for some seconds.
import { NEAR_SHARE } from '../budgets/budget-watch.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { BUDGET_LIMITS, type BudgetedLimits, limitsWith, softOf } from '../config/terms.ts';
import { singleFlight } from '../single-flight.ts';
import { isPrefix } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import { modelScope, type UsageScope } from '../store/usage-record.ts';

/** Milliseconds for which a look is good. */
const FRESH_MS = 10_000;
const NOTICES = 400;
const BUDGETS = 50;
const AT_ONCE = 10;
/** Rotations of a key that are followed. */
const MAX_ROTATIONS = 50;

interface NearBudget {
  readonly scope: UsageScope['kind'];
  /** Of the holder, the name of the team, or the prefix of the key. */
  readonly id: string;
  readonly name: string | null;
  /** Of the scope `model`: the entry of `models`. */
  readonly model: string | null;
  readonly window: 'day' | 'month';
  /** In units of the currency. */
  readonly budget: number;
  readonly used: number;
  /** What is used of it, 1 for all. */
  readonly share: number;
}

interface BudgetOwner extends Pick<NearBudget, 'id' | 'name'> {
  readonly owner: UsageScope;
  readonly limits: BudgetedLimits;
}

interface NearBudgetsOptions {
  readonly store: Pick<Store, 'budgets' | 'usage' | 'organisation' | 'findHolder' | 'findKey'>;
  readonly config: () => Pick<DynamicConfig, 'tiers' | 'models'>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export class NearBudgets {
  readonly #options: NearBudgetsOptions;
  readonly #look = singleFlight(() => this.#lookNow());
  #last: { readonly at: number; readonly budgets: readonly NearBudget[] } | undefined;

  constructor(options: NearBudgetsOptions) {
    this.#options = options;
  }

  /** At most fifty, the nearest to its end first. @throws GatewayError `store_unavailable` */
  async current(): Promise<readonly NearBudget[]> {
    const now = this.#options.now();
    if (this.#last === undefined || now - this.#last.at >= FRESH_MS)
      this.#last = { at: now, budgets: await this.#look() };
    return this.#last.budgets;
  }

  async #lookNow(): Promise<readonly NearBudget[]> {
    const { store, now } = this.#options;
    const day = new Date(now()).toISOString().slice(0, 10);
    const month = day.slice(0, 7);
    const notices = await store.budgets.latestNotices(month, [day, month], NOTICES);
    // Each has one notice a threshold.
    const scopes = [...new Map(notices.map((each) => [`${each.scope} ${each.period}`, each])).values()];
    const found: NearBudget[] = [];
    for (let at = 0; at < Math.min(scopes.length, BUDGETS); at += AT_ONCE) {
      const some = scopes.slice(at, at + AT_ONCE);
      for (const near of await Promise.all(
        some.map(({ scope, period }) => this.#budgetOf(scope, period, day)),
      ))
        if (near !== undefined) found.push(near);
    }
    return found.sort((one, other) => other.share - one.share);
  }

  /** Undefined where the owner has gone, or its budget is far from its end again. */
  async #budgetOf(scope: string, period: string, day: string): Promise<NearBudget | undefined> {
    const found = await this.#ownerOf(scope);
    const kind = BUDGET_LIMITS.find(({ window }) => (window === 'day') === (period === day));
    if (found === undefined || kind === undefined) return undefined;
    const max = found.limits[kind.limit];
    if (max === undefined) return undefined;
    const { owner, limits, id, name } = found;
    const used = (await this.#options.store.usage.usageOf(owner, day))[kind.limit];
    // A budget of nothing is spent.
    const share = max === 0 ? 1 : used / max;
    if (share < Math.min(NEAR_SHARE, ...softOf(limits))) return undefined;
    const model = owner.kind === 'model' ? owner.model : null;
    const figures = { budget: max / 1e9, used: used / 1e9, share };
    return { scope: owner.kind, id, name, model, window: kind.window, ...figures };
  }

  /** @param scope as in a notice: the name of its counters */
  async #ownerOf(scope: string): Promise<BudgetOwner | undefined> {
    const { store, config } = this.#options;
    const [kind, first = ''] = scope.split(':', 2);
    if (kind === 'key') return this.#keyOf(first);
    const isModel = kind === 'model' && first !== '';
    const holder = await store.findHolder(isModel ? first : scope);
    if (holder === undefined) {
      const team = await store.organisation.findTeam({ id: scope });
      const owner = { kind: 'team', id: scope } as const;
      return team && { owner, limits: limitsWith(undefined, team.terms), id: team.name, name: team.name };
    }
    const { id, name, tier, terms } = holder;
    const { tiers, models } = config();
    if (!isModel) return { owner: { kind: 'holder', id }, limits: limitsWith(tiers[tier], terms), id, name };
    const model = scope.slice(`model:${first}:`.length);
    const { model_limits: own = {} } = terms;
    const limits = limitsWith(
      models[model]?.limits?.[tier],
      Object.hasOwn(own, model) ? own[model] : undefined,
    );
    return { owner: modelScope(id, model, Object.keys(models)), limits, id, name };
  }

  /** The key of a lineage that is in use. */
  async #keyOf(lineage: string): Promise<BudgetOwner | undefined> {
    const { store } = this.#options;
    const { prefixes } = await store.usage.keysOf(lineage);
    const keys = await Promise.all(
      prefixes
        .filter(isPrefix)
        .slice(-MAX_ROTATIONS)
        .map((prefix) => store.findKey(prefix)),
    );
    const key = keys.find((each) => each?.state === 'active' && each.replacedBy === null);
    if (key === undefined) return undefined;
    const { prefix: id, name, terms } = key;
    return { owner: { kind: 'key', lineage }, limits: limitsWith(undefined, terms), id, name };
  }
}
