// What the schema accepts and this version does not do yet, one line each. A line goes when its part arrives; then
// `node src/config/reference.ts docs/configuration.md` tells the docs.

import type { Findings } from './references.ts';
import { find, type Mark, type Path, type Tree } from './tree.ts';

export interface Notice {
  /** `*` stands for any name. */
  readonly path: readonly string[];
  /** `refuse`: the gateway would behave otherwise than the file says, in a way that matters at once. */
  readonly as: 'refuse' | 'warn';
  /** Which values it is about; all when left out. */
  readonly value?: RegExp;
  readonly subject?: string;
}

export const NOTICES: readonly Notice[] = [
  { path: ['billing'], as: 'refuse' },
  { path: ['tiers', '*', 'requests_per_minute'], as: 'warn' },
  { path: ['tiers', '*', 'tokens_per_minute'], as: 'warn' },
  { path: ['tiers', '*', 'requests_per_day'], as: 'warn' },
  { path: ['tiers', '*', 'tokens_per_month'], as: 'warn' },
  { path: ['tiers', '*', 'concurrency'], as: 'warn' },
  { path: ['tiers', '*', 'price'], as: 'warn' },
  { path: ['tiers', '*', 'stripe_price'], as: 'warn' },
  { path: ['models', '*', 'price'], as: 'warn' },
  { path: ['branding'], as: 'warn' },
];

/** Every path of the tree that a pattern stands for. */
function matches(tree: Tree, pattern: readonly string[], path: Path = []): readonly Path[] {
  const [step, ...rest] = pattern;
  if (step === undefined) return [path];
  if (tree.kind !== 'branch') return [];
  return [...tree.entries]
    .filter(([key]) => step === '*' || key === step)
    .flatMap(([key, { value }]) => matches(value, rest, [...path, key]));
}

/** @param tree the whole file */
export function unsupported(tree: Tree): Findings {
  const faults: Mark[] = [];
  const warnings: Mark[] = [];
  for (const { path: pattern, as, value, subject } of NOTICES) {
    for (const path of matches(tree, pattern)) {
      const found = find(tree, path);
      if (found === undefined || found.node.kind === 'blank') continue;
      const { node, key = node.span } = found;
      if (node.kind === 'leaf' && (node.emptied || node.broken)) continue;
      if (value !== undefined && !(node.kind === 'leaf' && value.test(node.value))) continue;
      if (as === 'refuse') {
        const what = subject === undefined ? 'is' : `${subject} is`;
        faults.push({ at: key.start, path, message: `${what} not supported by this version` });
      } else {
        warnings.push({ at: key.start, path, message: 'is read but not enforced by this version' });
      }
    }
  }
  return { faults, warnings };
}
