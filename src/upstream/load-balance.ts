// Load balancing between targets of equal priority: by weight, load, latency or affinity. Priorities and breakers are not its concern.
import { createHash } from 'node:crypto';

/**
 * - `weighted`: random, in proportion to weight.
 * - `least_requests`: of two random targets, the one with fewer requests in flight per weight.
 * - `latency`: of two random targets, the one with the lower expected latency per weight.
 * - `affinity`: by rendezvous hashing of a key; without one, as `least_requests`.
 */
export type LoadBalance = 'weighted' | 'least_requests' | 'latency' | 'affinity';

/** The facts about a target that the choice uses. */
export interface Candidate {
  /** Above 0. */
  readonly weight: number;
  /** Requests in flight. */
  readonly inFlight: number;
  /** Average time to first token in milliseconds; undefined if unknown. */
  readonly latencyMs: number | undefined;
}

/**
 * Power of two choices: draws two targets at random and takes the better one. Nearly as even as comparing all, and replicas with
 * the same data do not all pick the same target.
 * @param random returns [0, 1)
 * @returns the index of the chosen target; undefined if none has weight
 */
export function choose(
  candidates: readonly Candidate[],
  balance: LoadBalance,
  random: () => number,
): number | undefined {
  if (candidates.length === 1) return weightOf(candidates, 0) > 0 ? 0 : undefined;
  const one = draw(candidates, undefined, random);
  if (one === undefined || balance === 'weighted') return one;
  const two = draw(candidates, one, random);
  if (two === undefined) return one;
  const [first, second] = [candidates[one], candidates[two]];
  if (first === undefined || second === undefined) return one;
  const compare = balance === 'latency' ? compareLatency : compareLoad;
  // A tie goes to the first drawn, so that weights hold without any data.
  return compare(first, second) <= 0 ? one : two;
}

/** Of the fair share of the requests in flight. */
const MAX_SHARE = 1.25;
/** Requests in flight beyond that share: with few of them, chance alone exceeds it all the time. */
const MARGIN = 2;

/**
 * Weighted rendezvous hashing: each target has a score for the key, -weight / ln(h) with h evenly from 0 to 1, so that it comes first
 * for a share of the keys in proportion to its weight. All replicas agree, a target that leaves moves only its own keys, and one that
 * returns gets them back.
 * @returns indexes of the candidates with weight, best first
 */
export function rendezvousOrder(
  candidates: readonly { readonly name: string; readonly weight: number }[],
  key: string,
): readonly number[] {
  return candidates
    .map(({ name, weight }, index) => ({ index, weight, score: -weight / Math.log(hash(`${name}\0${key}`)) }))
    .filter(({ weight }) => weight > 0)
    .sort((a, b) => b.score - a.score)
    .map(({ index }) => index);
}

/** Even in (0, 1). */
function hash(text: string): number {
  const digest = createHash('sha256').update(text).digest();
  return (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48;
}

/**
 * Bounded load: a target with more than 1.25 times its share of the requests in flight, and a few, is passed over.
 * @param candidates in order of preference, all with weight
 * @returns the index of the first with room for another request
 */
export function firstWithRoom(candidates: readonly Pick<Candidate, 'weight' | 'inFlight'>[]): number {
  let all = 1;
  let weights = 0;
  for (const { inFlight, weight } of candidates) {
    all += inFlight;
    weights += weight;
  }
  const found = candidates.findIndex(
    ({ inFlight, weight }) => inFlight + 1 <= (MAX_SHARE * all * weight) / weights + MARGIN,
  );
  return Math.max(0, found);
}

/** Negative if `a` has fewer requests in flight per weight. */
function compareLoad(a: Candidate, b: Candidate): number {
  return a.inFlight / a.weight - b.inFlight / b.weight;
}

/** Negative if `a` is expected to answer sooner. */
function compareLatency(a: Candidate, b: Candidate): number {
  if (a.latencyMs === undefined && b.latencyMs === undefined) return compareLoad(a, b);
  return expected(a, b) - expected(b, a);
}

/**
 * An untried target is tried first. While its first request is in flight it counts as equally fast, so that not all requests go
 * there before its latency is known.
 */
function expected({ latencyMs, inFlight, weight }: Candidate, other: Candidate): number {
  const known = latencyMs ?? (inFlight === 0 ? 0 : (other.latencyMs ?? 0));
  return (known * (inFlight + 1)) / weight;
}

/** Draws an index with a probability in proportion to its weight. */
function draw(
  candidates: readonly Candidate[],
  without: number | undefined,
  random: () => number,
): number | undefined {
  let sum = 0;
  for (let index = 0; index < candidates.length; index += 1) {
    if (index !== without) sum += weightOf(candidates, index);
  }
  let left = random() * sum;
  let last: number | undefined;
  for (let index = 0; index < candidates.length; index += 1) {
    const weight = index === without ? 0 : weightOf(candidates, index);
    if (weight <= 0) continue;
    last = index;
    left -= weight;
    if (left < 0) break;
  }
  return last;
}

function weightOf(candidates: readonly Candidate[], index: number): number {
  return Math.max(0, candidates[index]?.weight ?? 0);
}
