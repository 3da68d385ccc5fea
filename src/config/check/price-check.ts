// Checks of prices against the rest of the configuration: one currency for all of them.
import { currencyFault, readCurrency } from '../schema/price-schema.ts';
import {
  findNode,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPath,
} from '../source/yaml-tree.ts';

/** The `currency` of the configuration; `unknown` where it has a fault. */
export type MainCurrency = { readonly code: string | undefined } | 'unknown';

export function mainCurrency(tree: YamlMapping): MainCurrency {
  const given = nodeText(tree, 'currency');
  if (given === undefined) return { code: undefined };
  const reading = readCurrency(given);
  return reading.ok ? { code: reading.value } : 'unknown';
}

/** Checks the member `currency` of a mapping, where it has one. */
export function checkCurrency(node: YamlNode, path: YamlPath, main: MainCurrency, fault: ReportFault): void {
  const given = findNode(node, ['currency'])?.node;
  const reading = readCurrency(nodeText(given) ?? '');
  if (given === undefined || !reading.ok || main === 'unknown') return;
  const found = currencyFault(reading.value, main.code);
  if (found !== undefined) fault(given.span.start, [...path, 'currency'], found);
}

/** Checks a `price`: one, or a list. */
export function checkPrice(
  node: YamlNode | undefined,
  path: YamlPath,
  main: MainCurrency,
  fault: ReportFault,
): void {
  if (node?.kind === 'branch') checkCurrency(node, path, main, fault);
  if (node?.kind !== 'list') return;
  for (const [index, item] of node.items.entries()) checkCurrency(item, [...path, index], main, fault);
}

/** Checks the prices of models and targets. */
export function checkPrices(tree: YamlMapping, fault: ReportFault): void {
  const main = mainCurrency(tree);
  const models = findNode(tree, ['models'])?.node;
  if (models?.kind !== 'branch') return;
  for (const [name, { value }] of models.entries) {
    const path = ['models', name];
    checkPrice(findNode(value, ['price'])?.node, [...path, 'price'], main, fault);
    const targets = findNode(value, ['targets'])?.node;
    for (const [index, target] of (targets?.kind === 'list' ? targets.items : []).entries()) {
      const place = [...path, 'targets', index, 'price'];
      checkPrice(findNode(target, ['price'])?.node, place, main, fault);
    }
  }
}
