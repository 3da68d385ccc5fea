// What this process remembers of targets across requests, by upstream and model.
import type { CircuitBreaker } from '../../upstream/breaker/circuit-breaker.ts';
import type { LatencyAverage } from '../../upstream/target-latency.ts';
import type { PlanStatus } from './target-plan.ts';

/** What this process remembers of a target across requests. */
export interface TargetStatus extends PlanStatus {
  readonly breaker: CircuitBreaker;
  readonly latency: LatencyAverage;
  /** Its model as configured, for reports: all models of a pattern share it. */
  readonly entry?: string;
}

/** Bounds the models per upstream: with patterns, clients name them. */
const MAX_MODELS = 256;

/**
 * The statuses of all targets. They live as long as their upstream object: an upstream that a reload leaves unchanged
 * keeps them, a changed one starts afresh.
 */
export class TargetStatuses {
  readonly #create: (upstream: object, model: string, entry: string) => TargetStatus;
  readonly #byUpstream = new WeakMap<object, Map<string, TargetStatus>>();

  /** @param create makes the status of a new target */
  constructor(create: (upstream: object, model: string, entry: string) => TargetStatus) {
    this.#create = create;
  }

  /** @param entry the model as configured, where that is a pattern */
  of(upstream: object, model: string, entry = model): TargetStatus {
    let models = this.#byUpstream.get(upstream);
    if (models === undefined) {
      models = new Map();
      this.#byUpstream.set(upstream, models);
    }
    let status = models.get(model);
    if (status === undefined) {
      if (models.size >= MAX_MODELS) forgetOne(models);
      status = this.#create(upstream, model, entry);
      models.set(model, status);
    }
    return status;
  }

  /** As `of`, but creates nothing: for reports. */
  peek(upstream: object, model: string): TargetStatus | undefined {
    return this.#byUpstream.get(upstream)?.get(model);
  }

  /** The statuses of an upstream by model: for reports. */
  known(upstream: object): ReadonlyMap<string, TargetStatus> {
    return this.#byUpstream.get(upstream) ?? new Map();
  }
}

/** Evicts the oldest without state, or else the oldest: invented model names must not displace an open breaker. */
function forgetOne(models: Map<string, TargetStatus>): void {
  let chosen: string | undefined;
  for (const [model, status] of models) {
    chosen ??= model;
    if (!status.breaker.isPristine) continue;
    chosen = model;
    break;
  }
  if (chosen !== undefined) models.delete(chosen);
}
