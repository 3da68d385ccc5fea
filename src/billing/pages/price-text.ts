// Prices as pages show them.

export interface Price {
  /** In the smallest unit of the currency. */
  readonly amount: number;
  /** ISO 4217, in lower case. */
  readonly currency: string;
  readonly interval: 'month' | 'year' | 'once';
}

/** `$9 a month` */
export function priceText(price: Price): string {
  return `${amountText(price)} ${intervalText(price)}`;
}

export function amountText({ amount, currency }: Price): string {
  const options = { style: 'currency', currency: currency.toUpperCase() } as const;
  const format = new Intl.NumberFormat('en', { ...options, trailingZeroDisplay: 'stripIfInteger' });
  // The configuration counts in the currency's smallest unit, as payment providers do.
  const digits = format.resolvedOptions().maximumFractionDigits ?? 2;
  return format.format(amount / 10 ** digits);
}

export function intervalText({ interval }: Price): string {
  return interval === 'once' ? 'once' : `a ${interval}`;
}
