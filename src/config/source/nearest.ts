// Suggests the nearest valid name for a mistyped one.

const plain = (name: string): string => name.toLowerCase().replaceAll(/[-_ ]/g, '');

/** Damerau-Levenshtein distance (optimal string alignment). */
function distance(a: string, b: string): number {
  let older: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1];
      let cost = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, (older[j - 2] ?? 0) + 1);
      }
      row.push(cost);
    }
    older = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

/**
 * @returns the nearest candidate: equal except for case and separators, or within a third of its length in edits; undefined if
 *   none is near
 */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestCost = Number.POSITIVE_INFINITY;
  if (word.length > 64) return undefined;
  for (const candidate of candidates) {
    const cost = plain(word) === plain(candidate) ? 0 : distance(word.toLowerCase(), candidate.toLowerCase());
    const allowed = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (cost <= allowed && cost < bestCost && Math.min(word.length, candidate.length) > cost) {
      best = candidate;
      bestCost = cost;
    }
  }
  return best;
}

/** @returns the nearest candidates, at most `max`, nearest first */
export function nearestOf(word: string, candidates: readonly string[], max: number): readonly string[] {
  const left = new Set(candidates);
  const near: string[] = [];
  for (let name = nearest(word, left); name !== undefined && near.length < max; name = nearest(word, left)) {
    near.push(name);
    left.delete(name);
  }
  return near;
}
