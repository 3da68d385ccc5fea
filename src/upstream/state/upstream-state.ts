// The state of an upstream as `/upstreams`, `/metrics`, `tollgate upstreams` and `tollgate explain` show it, and how the states of several
// processes become one. proxy/targets/upstream-states.ts computes the state of one process.
import { z } from 'zod';

/**
 * From best to worst. The state of an upstream is that of its worst target.
 * - `cooling_down`: it asked for a wait (429, or a failure with `retry-after`).
 * - `half_open`: the cool-down of an open circuit breaker is over; one request at a time probes it.
 * - `unhealthy`: its health check fails; it is tried after all others.
 * - `open`: its circuit breaker is open.
 * - `drained`: an operator has taken it out of service. `disabled`: `enabled: false` in the configuration.
 */
export const STATE_NAMES = [
  'ok',
  'cooling_down',
  'half_open',
  'unhealthy',
  'open',
  'drained',
  'disabled',
] as const;
export type StateName = (typeof STATE_NAMES)[number];

const BREAKER_STATES = ['closed', 'half_open', 'open'] as const;

/** Times are RFC 3339, UTC. */
const time = z.string();

const targetState = z.object({
  /** Name of the model at the upstream. */
  model: z.string(),
  /** The same as configured, with the `*` of a pattern. */
  entry: z.string(),
  state: z.enum(STATE_NAMES),
  breaker: z.enum(BREAKER_STATES),
  /** Why new requests go elsewhere; null if they are admitted. */
  cool_down: z
    .object({
      cause: z.enum(['limit', 'pause', 'open', 'probing']),
      /** Milliseconds until requests are admitted again; an estimate for `probing`. */
      ms: z.number().nonnegative(),
      /** Whether a request that has no other target is sent nevertheless. */
      admits_sole: z.boolean(),
    })
    .nullable(),
  in_flight: z.int().nonnegative(),
  /** Average time to the first output; null if unknown. */
  latency_ms: z.number().nonnegative().nullable(),
  last_failure: z.object({ code: z.string(), at: time }).nullable(),
});
export type TargetState = z.output<typeof targetState>;

export const upstreamState = z.object({
  upstream: z.string(),
  state: z.enum(STATE_NAMES),
  /** Result of the health check; null without one. */
  health: z.object({ ok: z.boolean(), since: time, reason: z.string().nullable() }).nullable(),
  in_flight: z.int().nonnegative(),
  max_concurrency: z.int().positive(),
  last_failure: z.object({ code: z.string(), at: time, model: z.string() }).nullable(),
  credential: z.object({
    kind: z.enum(['none', 'configured', 'fetched']),
    /** When it was read or fetched; null for a token that was never fetched. */
    since: time.nullable(),
    expires_at: time.nullable(),
  }),
  drained: z
    .object({ by: z.string(), at: time, until: time.nullable(), reason: z.string().nullable() })
    .nullable(),
  targets: z.array(targetState),
});
export type UpstreamState = z.output<typeof upstreamState>;

export function worstState(states: Iterable<StateName>): StateName {
  return worst(STATE_NAMES, states) ?? 'ok';
}

/** The later of the known ones in the order of `names`. */
function worst<Name extends string>(names: readonly Name[], given: Iterable<Name>): Name | undefined {
  return [...given].reduce<Name | undefined>(
    (before, each) => (before === undefined || names.indexOf(each) > names.indexOf(before) ? each : before),
    undefined,
  );
}

/** The state of a target by itself, from its breaker and cool-down. */
export function breakerStateName({
  breaker,
  cool_down,
}: Pick<TargetState, 'breaker' | 'cool_down'>): StateName {
  if (breaker !== 'closed') return breaker;
  return cool_down === null ? 'ok' : 'cooling_down';
}

/** The states that several processes report as one: requests are added, of everything else the worst or the latest counts. */
export function mergeUpstreams(reports: readonly (readonly UpstreamState[])[]): UpstreamState[] {
  const groups = Map.groupBy(reports.flat(), ({ upstream }) => upstream);
  return Array.from(groups.values(), (group) => group.reduce(mergeTwo));
}

function mergeTwo(a: UpstreamState, b: UpstreamState): UpstreamState {
  const targets = Map.groupBy([...a.targets, ...b.targets], ({ model }) => model);
  return {
    upstream: a.upstream,
    state: worstState([a.state, b.state]),
    health: a.health === null || b.health?.ok === false ? b.health : a.health,
    in_flight: a.in_flight + b.in_flight,
    max_concurrency: a.max_concurrency + b.max_concurrency,
    last_failure: latest(a.last_failure, b.last_failure),
    credential: soonest(a.credential, b.credential),
    drained: latest(a.drained, b.drained),
    targets: Array.from(targets.values(), (group) => group.reduce(mergeTargets)),
  };
}

function mergeTargets(a: TargetState, b: TargetState): TargetState {
  const isLonger = (b.cool_down?.ms ?? -1) > (a.cool_down?.ms ?? -1);
  return {
    model: a.model,
    entry: a.entry,
    state: worstState([a.state, b.state]),
    breaker: worst(BREAKER_STATES, [a.breaker, b.breaker]) ?? a.breaker,
    cool_down: isLonger ? b.cool_down : a.cool_down,
    in_flight: a.in_flight + b.in_flight,
    latency_ms: a.latency_ms === null ? b.latency_ms : Math.max(a.latency_ms, b.latency_ms ?? 0),
    last_failure: latest(a.last_failure, b.last_failure),
  };
}

export function latest<Dated extends { readonly at: string }>(
  a: Dated | null,
  b: Dated | null,
): Dated | null {
  return a === null || (b !== null && b.at > a.at) ? b : a;
}

/** The credential that ends first; without an end the older one. */
function soonest(
  a: UpstreamState['credential'],
  b: UpstreamState['credential'],
): UpstreamState['credential'] {
  const end = ({ expires_at, since }: UpstreamState['credential']) => expires_at ?? `z${since ?? ''}`;
  return end(b) < end(a) ? b : a;
}
