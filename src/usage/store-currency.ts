// The currency of a store: the costs and budgets in it have no currency of their own, so it is set once and stays.
import type { Store } from '../store/store.ts';

/** The configuration names another currency than the one of the store. The message is for the operator. */
export class CurrencyError extends Error {
  constructor(configured: string, stored: string) {
    super(
      `\`currency\` is ${configured}, but the costs and budgets in this store are in ${stored}, and amounts are never ` +
        `converted; set \`currency: ${stored}\`, or use a new store`,
    );
    this.name = 'CurrencyError';
  }
}

/** @throws CurrencyError when both are known and differ */
export function requireCurrency(configured: string | undefined, stored: Uint8Array | undefined): void {
  if (configured === undefined || stored === undefined) return;
  const text = Buffer.from(stored).toString();
  if (text !== configured) throw new CurrencyError(configured, text);
}

/** Follows the configuration of a running process. */
export class StoreCurrency {
  readonly #store: Pick<Store, 'pin'>;
  readonly #onFault: (error: unknown) => void;
  #stored: Uint8Array | undefined;

  private constructor(store: Pick<Store, 'pin'>, onFault: (error: unknown) => void) {
    this.#store = store;
    this.#onFault = onFault;
  }

  /**
   * Sets the currency of a store that has none yet.
   * @param configured `currency`; undefined sets nothing
   * @param onFault called when a currency that a reload has set cannot be kept in the store
   * @throws CurrencyError, or GatewayError `store_unavailable`
   */
  static async open(
    configured: string | undefined,
    store: Pick<Store, 'pin' | 'pinned'>,
    onFault: (error: unknown) => void,
  ): Promise<StoreCurrency> {
    const currency = new StoreCurrency(store, onFault);
    currency.#stored =
      configured === undefined
        ? await store.pinned('currency')
        : await store.pin('currency', Buffer.from(configured));
    requireCurrency(configured, currency.#stored);
    return currency;
  }

  /**
   * Call with the currency of each reloaded configuration, before anything of it is applied.
   * @throws CurrencyError
   */
  reload(configured: string | undefined): void {
    requireCurrency(configured, this.#stored);
    if (configured === undefined || this.#stored !== undefined) return;
    this.#stored = Buffer.from(configured);
    // The next start tries again, and another process that was first is found there.
    this.#store
      .pin('currency', this.#stored)
      .then((stored) => requireCurrency(configured, stored))
      .catch(this.#onFault);
  }
}
