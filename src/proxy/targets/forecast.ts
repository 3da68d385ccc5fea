// What the next requests for a model would do, from reported states: it asks the same plan that requests use, for evenly spread random
// numbers instead of drawn ones, so that the result is exact and the same each time.
import type { ErrorCode } from '../../errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import type { BreakerRejection, Permit } from '../../upstream/breaker/permit.ts';
import type { TargetState, UpstreamState } from '../../upstream/state/upstream-state.ts';
import type { Route, Target } from '../routes/route-table.ts';
import { type Affinity, type PlanStatus, REJECTION_CODES, TargetPlan } from './target-plan.ts';

/** Of the next hundred requests. */
export interface Forecast {
  /** First targets. */
  readonly counts: ReadonlyMap<Target, number>;
  /** Requests that the gateway itself would reject, by error code. */
  readonly rejected: ReadonlyMap<ErrorCode, number>;
}

const REQUESTS = 100;

/**
 * @param states of one process
 * @param affinity of the requests; default: none has a key
 */
export function forecast(
  route: Pick<Route, 'targets' | 'balance'>,
  states: readonly UpstreamState[],
  affinity?: Omit<Affinity<Target>, 'onChoice'>,
): Forecast {
  const found = new Map(route.targets.map((target) => [target, lookUp(target, states)]));
  const first = spread(route, found, affinity);
  // One request at a time probes a half-open target; the others go elsewhere until it has answered.
  const probes = route.targets.filter(
    (target) => (first.counts.get(target) ?? 0) > 0 && found.get(target)?.target?.breaker === 'half_open',
  );
  if (probes.length === 0) return first;
  const probing = new Map(found);
  for (const target of probes) {
    const { upstream, target: state } = found.get(target) ?? {};
    const busy = { cause: 'probing', ms: 1, admits_sole: true } as const;
    if (state !== undefined) probing.set(target, { upstream, target: { ...state, cool_down: busy } });
  }
  const rest = spread(route, probing, affinity, REQUESTS - probes.length);
  const counts = new Map(rest.counts);
  for (const target of probes) counts.set(target, (counts.get(target) ?? 0) + 1);
  return { counts, rejected: rest.rejected };
}

/** The mean of the forecasts of several processes, among which the requests spread evenly. */
export function meanForecast(all: readonly Forecast[]): Forecast {
  const [counts, rejected] = [new Map<Target, number>(), new Map<ErrorCode, number>()];
  for (const each of all) {
    for (const [target, count] of each.counts)
      counts.set(target, (counts.get(target) ?? 0) + count / all.length);
    for (const [code, count] of each.rejected)
      rejected.set(code, (rejected.get(code) ?? 0) + count / all.length);
  }
  return { counts, rejected };
}

interface Found {
  readonly upstream: UpstreamState | undefined;
  /** Undefined for a target without requests so far. */
  readonly target: TargetState | undefined;
}

function lookUp({ upstream: { name }, model }: Target, states: readonly UpstreamState[]): Found {
  const upstream = states.find((each) => each.upstream === name);
  return { upstream, target: upstream?.targets.find((each) => each.model === maskKeys(model)) };
}

function spread(
  { targets, balance }: Pick<Route, 'targets' | 'balance'>,
  found: ReadonlyMap<Target, Found>,
  affinity: Omit<Affinity<Target>, 'onChoice'> | undefined,
  requests = REQUESTS,
): Forecast {
  const [counts, rejected] = [new Map<Target, number>(), new Map<ErrorCode, number>()];
  const statuses = new Map(targets.map((target) => [target, statusOf(found.get(target)?.target)]));
  for (let row = 0; row < REQUESTS; row += 1) {
    let columns = 1;
    for (let column = 0; column < columns; column += 1) {
      let draws = 0;
      const random = (): number => {
        draws += 1;
        if (draws === 1) return (row + 0.5) / REQUESTS;
        // Only a choice by load or latency draws a second number.
        columns = REQUESTS;
        return draws === 2 ? (column + 0.5) / REQUESTS : (row * 0.618 + column * 0.382 + draws * 0.271) % 1;
      };
      const plan = new TargetPlan<Target>({
        targets,
        balance,
        affinity: affinity && { ...affinity, onChoice: () => {} },
        statusOf: (target) => statuses.get(target) ?? UNUSED,
        isInService: (target) => isInService(found.get(target)?.upstream),
        isHealthy: (target) => found.get(target)?.upstream?.health?.ok !== false,
        now: () => 0,
        random,
      });
      const step = firstWithRoom(plan, found);
      const share = requests / REQUESTS / columns;
      if (typeof step === 'string') rejected.set(step, (rejected.get(step) ?? 0) + share);
      else counts.set(step, (counts.get(step) ?? 0) + share);
    }
  }
  return { counts: rounded(counts), rejected: rounded(rejected) };
}

/** A target at its `max_concurrency` is passed over for the next one. */
function firstWithRoom(plan: TargetPlan<Target>, found: ReadonlyMap<Target, Found>): Target | ErrorCode {
  for (let isFirst = true; ; isFirst = false) {
    const step = plan.next();
    if (step.kind === 'target') {
      const { upstream } = found.get(step.target) ?? {};
      if (upstream === undefined || upstream.in_flight < upstream.max_concurrency) return step.target;
    } else if (isFirst && step.cause !== 'tried') return REJECTION_CODES[step.cause];
    else return 'upstream_busy';
  }
}

function isInService(upstream: UpstreamState | undefined): boolean {
  return (upstream?.drained ?? null) === null && upstream?.state !== 'disabled';
}

function rounded<Key>(counts: ReadonlyMap<Key, number>): Map<Key, number> {
  return new Map(Array.from(counts, ([key, count]) => [key, Number(count.toFixed(6))]));
}

const PERMIT: Permit = { kind: 'permit', probe: false, answered: () => {}, release: () => {} };
const UNUSED = statusOf(undefined);

function statusOf(state: TargetState | undefined): PlanStatus {
  const coolDown = state?.cool_down ?? null;
  const rejection: BreakerRejection | undefined =
    coolDown === null ? undefined : { kind: 'rejection', cause: coolDown.cause, until: coolDown.ms };
  return {
    breaker: {
      inFlight: state?.in_flight ?? 0,
      rejection: () => rejection,
      admit: () => rejection ?? PERMIT,
      force: () => (coolDown?.admits_sole === false ? (rejection ?? PERMIT) : PERMIT),
    },
    latency: { value: state?.latency_ms ?? undefined },
  };
}
