// In which order targets are asked: by priority, and by chance in proportion to weight within one. It does not ask them.

interface Weighted {
  readonly weight: number;
  readonly priority: number;
}

/**
 * @param targets ascending by priority
 * @param random a number from 0 (included) to 1 (excluded)
 * @returns all targets of positive weight, each once
 */
export function order<T extends Weighted>(targets: readonly T[], random: () => number): T[] {
  const [first] = targets;
  if (targets.length === 1 && first !== undefined) return [first];
  const ordered: T[] = [];
  for (let i = 0; i < targets.length; ) {
    const { priority } = targets[i] ?? { priority: 0 };
    const group: T[] = [];
    for (let target = targets[i]; target?.priority === priority; target = targets[++i]) {
      if (target.weight > 0) group.push(target);
    }
    while (group.length > 0) ordered.push(...group.splice(draw(group, random), 1));
  }
  return ordered;
}

/** An index, each as likely as its weight is of the sum. */
function draw(group: readonly Weighted[], random: () => number): number {
  let left = random() * group.reduce((sum, { weight }) => sum + weight, 0);
  for (const [index, { weight }] of group.entries()) {
    left -= weight;
    if (left < 0) return index;
  }
  return group.length - 1;
}
