// Checks budgets: each has an amount, and counts only where there are prices.
import { isLoopback } from '../schema/addresses.ts';
import { readBudget } from '../schema/billing-schema.ts';
import { TIERS } from '../schema/config-schema.ts';
import type { ConfigField } from './config-field.ts';
import { checkCurrency, checkNamed, mainCurrency } from './price-check.ts';

const AMOUNTS = ['per_day', 'per_month'];

export function checkBudgets(file: ConfigField): void {
  const models = file.at('models').entries;
  const hasPrices = file.at('prices').isGiven || models.some(hasPrice);
  const main = mainCurrency(file);
  const check = (budget: ConfigField): void => {
    if (!budget.isGiven) return;
    if (!hasPrices)
      budget.key.fault('needs prices: without a `price` of some model or target nothing counts towards it');
    checkCurrency(budget, main);
    const amounts = AMOUNTS.map((name) => budget.at(name));
    if (budget.node?.kind === 'branch' && !amounts.some(({ isGiven }) => isGiven))
      budget.key.fault('needs `per_day` or `per_month`');
    for (const amount of amounts) {
      const reading = readBudget(amount.text ?? '');
      if (reading.ok) checkNamed(amount, reading.value.currency, main);
    }
  };
  for (const tier of TIERS) {
    check(file.at('tiers', tier, 'budget'));
    for (const model of models) {
      const limits = model.at('limits', tier);
      check(limits.at('budget'));
      const { node, items } = model.at('tiers');
      if (limits.isGiven && node?.kind === 'list' && !items.some(({ text }) => text === tier))
        limits.key.warn('has no effect: this model is not offered to the tier');
    }
  }
  const url = file.at('budgets', 'webhook', 'url');
  if (/^http:/i.test(url.text ?? '') && url.url !== undefined && !isLoopback(url.url))
    url.warn('sends notices over plain http to another machine');
}

function hasPrice(model: ConfigField): boolean {
  return [model, ...model.at('targets').items].some((each) => each.at('price').isGiven);
}
