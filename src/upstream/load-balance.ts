// Which of several equally ranked targets is asked: by weight, by how busy they are, or by how quick. It knows neither
// priorities nor breakers, and it asks nobody.

/**
 * - `weighted`: by chance, in proportion to weight.
 * - `least_requests`: two by chance, of these the one with fewer requests under way for its weight.
 * - `latency`: two by chance, of these the one from which an answer is due sooner for its weight.
 */
export type LoadBalance = 'weighted' | 'least_requests' | 'latency';

/** What counts in the choice. */
export interface Candidate {
  /** Above 0. */
  readonly weight: number;
  /** Requests under way there. */
  readonly inFlight: number;
  /** Average time to the first token, in milliseconds; undefined when nothing is known. */
  readonly latencyMs: number | undefined;
}

/**
 * Two drawn by chance, and the better one taken: nearly as even as comparing all, and without everybody running to the same
 * one on the same news ("power of two choices").
 * @param random from 0 (included) to 1 (excluded)
 * @returns the index of the one to ask; undefined when there is none with weight
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
  // Of two equals it is the one drawn first, so that weights hold also when there is nothing to compare.
  return compare(first, second) <= 0 ? one : two;
}

/** Negative when the first has the smaller share of its weight in use. */
function compareLoad(a: Candidate, b: Candidate): number {
  return a.inFlight / a.weight - b.inFlight / b.weight;
}

/** Negative when the first is likely to answer sooner. */
function compareLatency(a: Candidate, b: Candidate): number {
  if (a.latencyMs === undefined && b.latencyMs === undefined) return compareLoad(a, b);
  return expected(a, b) - expected(b, a);
}

/**
 * One that nobody has tried is tried; while that one request is under way it counts as quick as the other, or all would go
 * there before the first answer is known.
 */
function expected({ latencyMs, inFlight, weight }: Candidate, other: Candidate): number {
  const known = latencyMs ?? (inFlight === 0 ? 0 : (other.latencyMs ?? 0));
  return (known * (inFlight + 1)) / weight;
}

/** An index, each as likely as its weight is of the sum. */
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
