// Checks of prices against the rest of the configuration: one currency for all of them.
import { currencyFault, readCurrency } from '../schema/price-schema.ts';
import type { ConfigField } from './config-field.ts';

/** The `currency` of the configuration; `unknown` where it has a fault. */
type MainCurrency = { readonly code: string | undefined } | 'unknown';

/** @param file the configuration */
export function mainCurrency(file: ConfigField): MainCurrency {
  const { text } = file.at('currency');
  if (text === undefined) return { code: undefined };
  const reading = readCurrency(text);
  return reading.ok ? { code: reading.value } : 'unknown';
}

/** Checks the member `currency` of a mapping, where it has one. */
export function checkCurrency(holder: ConfigField, main: MainCurrency): void {
  const currency = holder.at('currency');
  const reading = readCurrency(currency.text ?? '');
  if (reading.ok) checkNamed(currency, reading.value, main);
}

/** Checks a currency that a field names; undefined where it names none. */
export function checkNamed(field: ConfigField, code: string | undefined, main: MainCurrency): void {
  if (code === undefined || main === 'unknown') return;
  const found = currencyFault(code, main.code);
  if (found !== undefined) field.fault(found);
}

/** Checks a `price`: one, or a list. */
export function checkPrice(price: ConfigField, main: MainCurrency): void {
  for (const each of [price, ...price.items]) checkCurrency(each, main);
}

/** Checks the prices of models and targets. */
export function checkPrices(file: ConfigField): void {
  const main = mainCurrency(file);
  for (const model of file.at('models').entries)
    for (const holder of [model, ...model.at('targets').items]) checkPrice(holder.at('price'), main);
}
