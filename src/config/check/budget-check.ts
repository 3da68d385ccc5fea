// Checks budgets: each has an amount, and counts only where there are prices.
import { isLoopback } from '../schema/addresses.ts';
import { TIERS } from '../schema/config-schema.ts';
import {
  findNode,
  isGiven,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPath,
} from '../source/yaml-tree.ts';
import { checkCurrency, mainCurrency } from './price-check.ts';

export function checkBudgets(tree: YamlMapping, fault: ReportFault, warn: ReportFault): void {
  const models = tree.entries.get('models')?.value;
  const names = models?.kind === 'branch' ? [...models.entries.keys()] : [];
  const hasPrices = isGiven(tree.entries.get('prices')?.value) || names.some((name) => hasPrice(tree, name));
  const main = mainCurrency(tree);
  const check = (path: YamlPath): void => {
    const place = findNode(tree, path);
    if (place === undefined || !isGiven(place.node)) return;
    const at = (place.key ?? place.node.span).start;
    if (!hasPrices)
      fault(at, path, 'needs prices: without a `price` of some model or target nothing counts towards it');
    const isSet = ['per_day', 'per_month'].some((name) => isGiven(findNode(place.node, [name])?.node));
    checkCurrency(place.node, path, main, fault);
    if (place.node.kind === 'branch' && !isSet) fault(at, path, 'needs `per_day` or `per_month`');
  };
  for (const tier of TIERS) {
    check(['tiers', tier, 'budget']);
    for (const name of names) {
      const path = ['models', name, 'limits', tier];
      check([...path, 'budget']);
      const limits = findNode(tree, path);
      const listed = findNode(tree, ['models', name, 'tiers'])?.node;
      if (
        limits !== undefined &&
        isGiven(limits.node) &&
        listed?.kind === 'list' &&
        !includes(listed.items, tier)
      )
        warn(
          (limits.key ?? limits.node.span).start,
          path,
          'has no effect: this model is not offered to the tier',
        );
    }
  }
  const url = findNode(tree, ['budgets', 'webhook', 'url'])?.node;
  const text = nodeText(url) ?? '';
  if (url !== undefined && /^http:/i.test(text) && URL.canParse(text) && !isLoopback(new URL(text)))
    warn(url.span.start, ['budgets', 'webhook', 'url'], 'sends notices over plain http to another machine');
}

function includes(items: readonly YamlNode[], tier: string): boolean {
  return items.some((item) => nodeText(item) === tier);
}

function hasPrice(tree: YamlMapping, model: string): boolean {
  const targets = findNode(tree, ['models', model, 'targets'])?.node;
  const places = [tree, ...(targets?.kind === 'list' ? targets.items : [])];
  return places.some((place, index) =>
    isGiven(findNode(place, index === 0 ? ['models', model, 'price'] : ['price'])?.node),
  );
}
