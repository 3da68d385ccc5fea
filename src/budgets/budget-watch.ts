// Notices when a scope has used a share of its budget or all of it: one log line, one count and one webhook message in the whole fleet,
// for each scope, period, budget and share. Requests only compare numbers; what looks like a crossing is confirmed in the background.
import { randomUUID } from 'node:crypto';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { BUDGET_LIMITS, budgetText, softOf } from '../config/terms.ts';
import type { ActiveLimit } from '../limits/active-limits.ts';
import { DAY_MS, type UtcDate, utcDateAt } from '../limits/calendar.ts';
import type { Limiter, LimitState, Rejected, ScopeStates } from '../limits/limiter.ts';
import type { Scope, Scopes } from '../limits/scope.ts';
import { RecentMap } from '../recent-map.ts';
import type { NoticeKey } from '../store/budget-record.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** Settlements reach Redis a moment after the request has ended. */
const CONFIRM_MS = 500;
/** Scopes that wait for their confirmation; more are confirmed with their next request. */
const MAX_WAITING = 10_000;
const AT_ONCE = 20;
/** Notices that are known to be made. */
const MAX_KNOWN = 50_000;
const MILLION = 1_000_000;
/** A budget is near its end beyond this share. */
export const NEAR_SHARE = 0.8;
/** Recorded for the console; no notice is sent. */
const NEAR = { share: NEAR_SHARE, threshold: 0 };

type BudgetLimit = (typeof BUDGET_LIMITS)[number];

/** Of one budget of a request's scopes. */
interface FirstThreshold {
  readonly scope: Scope;
  /** Of the scope. */
  readonly index: number;
  readonly limit: ActiveLimit;
  readonly budget: BudgetLimit;
  /** In billionths. */
  readonly first: number;
}

/** Of a budget that rejected a request. */
type BudgetRejection = Pick<Rejected, 'scope' | 'limit' | 'state' | 'date'>;

interface BudgetWatchOptions {
  readonly limiter: Pick<Limiter, 'peek'>;
  readonly store: Pick<Store, 'budgets' | 'organisation' | 'findHolder'>;
  readonly config: () => Pick<DynamicConfig, 'currency'>;
  /** Called after a notice was recorded. */
  readonly onNotice: () => void;
  readonly logger: Pick<Logger, 'warn'>;
  readonly metrics: Pick<Metrics, 'budgets'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  /** Default 500. */
  readonly confirmMs?: number;
}

export class BudgetWatch {
  readonly #options: BudgetWatchOptions;
  readonly #now: () => number;
  readonly #known = new RecentMap<string, true>(MAX_KNOWN);
  readonly #thresholds = new WeakMap<Scopes, readonly FirstThreshold[]>();
  readonly #waiting = new Set<Scopes>();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;

  constructor(options: BudgetWatchOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  /**
   * Call when a request has ended.
   * @param states when it was admitted, with what it reserved; none: they are not known
   * @param more cost beyond what it reserved, in billionths; may be negative
   */
  settled(scopes: Scopes, states: ScopeStates, more: number): void {
    if (scopes.maxCost === Number.POSITIVE_INFINITY) return;
    const date = utcDateAt(this.#now());
    for (const { scope, index, limit, budget, first } of this.#thresholdsOf(scopes)) {
      const ofScope = states[index];
      // Most requests are below the first threshold of each budget.
      if (ofScope === undefined ? more <= 0 : ofScope.used(limit) + more < first) continue;
      if (ofScope && this.#crossed(scope, budget, ofScope.at(limit), date, more).length === 0) continue;
      this.#confirm(scopes);
      return;
    }
  }

  /** Call when a budget rejected a request. */
  spent({ scope, limit, state, date }: BudgetRejection): void {
    const budget = BUDGET_LIMITS.find((each) => each.limit === limit);
    if (budget === undefined) return;
    const notice = noticeOf(scope, budget, state.limit, MILLION, date);
    if (!this.#known.has(nameOf(notice))) void this.#record(scope, budget, notice, state.used);
  }

  /** Confirms what waits, and stops. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#running;
    await this.#confirmAll();
  }

  /** Thresholds that are reached, in millionths, of which this process knows no notice. */
  #crossed(
    scope: Scope,
    budget: BudgetLimit,
    { limit, used }: LimitState,
    date: UtcDate,
    more = 0,
  ): readonly number[] {
    const told = [...softOf(scope.limits), 1].map((share) => ({
      share,
      threshold: Math.round(share * MILLION),
    }));
    return [...told, NEAR].flatMap(({ share, threshold }) => {
      if (used + more < share * limit) return [];
      const isKnown = this.#known.has(nameOf(noticeOf(scope, budget, limit, threshold, date)));
      return isKnown ? [] : [threshold];
    });
  }

  #thresholdsOf(scopes: Scopes): readonly FirstThreshold[] {
    let known = this.#thresholds.get(scopes);
    if (known === undefined) {
      known = scopes.list.flatMap((scope, index) => {
        const share = Math.min(NEAR_SHARE, ...softOf(scope.limits));
        return scope.active.byKind.cost.flatMap((limit) => {
          const budget = BUDGET_LIMITS.find((each) => each.limit === limit.limit.name);
          return budget === undefined ? [] : [{ scope, index, limit, budget, first: share * limit.max }];
        });
      });
      this.#thresholds.set(scopes, known);
    }
    return known;
  }

  #confirm(scopes: Scopes): void {
    if (this.#waiting.size < MAX_WAITING) this.#waiting.add(scopes);
    if (this.#timer !== undefined || this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#confirmAll().finally(() => {
        this.#timer = undefined;
        // The store was away, or more requests have ended meanwhile.
        const [next] = this.#waiting;
        if (next !== undefined) this.#confirm(next);
      });
    }, this.#options.confirmMs ?? CONFIRM_MS).unref();
  }

  async #confirmAll(): Promise<void> {
    const all = [...this.#waiting];
    this.#waiting.clear();
    for (let at = 0; at < all.length; at += AT_ONCE)
      await Promise.all(all.slice(at, at + AT_ONCE).map((scopes) => this.#confirmOne(scopes)));
  }

  async #confirmOne(scopes: Scopes): Promise<void> {
    const states = await this.#options.limiter.peek(scopes);
    for (const [index, scope] of scopes.list.entries())
      for (const budget of BUDGET_LIMITS) {
        const ofScope = states[index];
        const state = ofScope?.of(budget.limit);
        if (ofScope === undefined || state === undefined) continue;
        const { date } = ofScope;
        for (const threshold of this.#crossed(scope, budget, state, date)) {
          const notice = noticeOf(scope, budget, state.limit, threshold, date);
          if (!(await this.#record(scope, budget, notice, state.used))) this.#waiting.add(scopes);
        }
      }
  }

  /** Never rejects. @returns false when the store is away */
  async #record(scope: Scope, budget: BudgetLimit, notice: NoticeKey, used: number): Promise<boolean> {
    const { store, config, metrics, logger, onNotice } = this.#options;
    const name = nameOf(notice);
    this.#known.set(name, true);
    try {
      const at = new Date(this.#now()).toISOString();
      if (notice.threshold === NEAR.threshold) {
        await store.budgets.addNotice(notice, at, null);
        return true;
      }
      const { currency = '' } = config();
      const owner = await this.#ownerOf(scope.owner);
      const facts = {
        scope: owner,
        window: budget.window,
        period: notice.period,
        budget: budgetText(notice.budget),
        // As budgets, to the millionth: an open session holds a billionth.
        used: budgetText(used - (used % 1000)),
        currency,
        threshold: notice.threshold / MILLION,
      };
      const type = notice.threshold === MILLION ? 'budget.spent' : 'budget.threshold';
      const body = JSON.stringify({ id: randomUUID(), type, created_at: at, ...facts });
      // Whether this replica has a webhook or not: another one may have it.
      if (!(await store.budgets.addNotice(notice, at, body))) return true;
      metrics.budgets.notices.inc({ scope: scope.kind, type: type.slice('budget.'.length) });
      const spent =
        used < notice.budget ? 'a budget is spent, but for less than a request needs' : 'a budget is spent';
      logger.warn(facts, type === 'budget.spent' ? spent : 'a budget is used up to a soft threshold');
      onNotice();
      return true;
    } catch {
      this.#known.delete(name);
      return false;
    }
  }

  /** What operators know it by. */
  async #ownerOf(owner: Scope['owner']) {
    const { store } = this.#options;
    switch (owner.kind) {
      case 'holder':
        return { kind: owner.kind, id: owner.id, name: (await store.findHolder(owner.id))?.name ?? null };
      case 'team': {
        const team = await store.organisation.findTeam({ id: owner.id });
        return { kind: owner.kind, id: owner.id, name: team?.name ?? null };
      }
      case 'key':
        return { kind: owner.kind, prefix: owner.lineage };
      case 'model':
        return { kind: owner.kind, model: owner.model, holder: owner.holderId };
    }
  }
}

/** @param date by which the budget was counted: the clock may have passed a midnight since, or be ahead of that of Redis */
function noticeOf(
  { id }: Scope,
  { window }: BudgetLimit,
  budget: number,
  threshold: number,
  { day }: UtcDate,
): NoticeKey {
  const period = new Date(day * DAY_MS).toISOString().slice(0, window === 'day' ? 10 : 7);
  return { scope: id, period, budget, threshold };
}

function nameOf({ scope, period, budget, threshold }: NoticeKey): string {
  return `${scope} ${period} ${budget} ${threshold}`;
}
