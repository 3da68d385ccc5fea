// Everything that orders and payments need, wired together for one gateway process.
import type { IncomingMessage } from 'node:http';
import type { Authenticator } from '../auth/authenticator.ts';
import type { KeyIssuer } from '../auth/key-issuer.ts';
import type { BillingConfig, DynamicConfig } from '../config/schema/config-schema.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Method } from '../http/router.ts';
import type { BillingStore } from '../store/billing-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { FakeProvider } from './fake-provider.ts';
import { Claims } from './key-claims.ts';
import { Sweep } from './order-sweep.ts';
import { answerAccount } from './pages/account-page.ts';
import { Checkout } from './pages/checkout.ts';
import { CompletePage } from './pages/complete-page.ts';
import { FakePaymentPage } from './pages/fake-payment-page.ts';
import { ownHostOnly } from './pages/page-host.ts';
import { answerPricing } from './pages/pricing-page.ts';
import type { PaymentProvider } from './payment-provider.ts';
import { PaymentReconciliation } from './payment-reconciliation.ts';
import { StripeCalls } from './stripe/stripe-calls.ts';
import { StripeProvider } from './stripe/stripe-provider.ts';
import { Webhooks } from './stripe/webhook-endpoint.ts';

interface BillingOptions {
  readonly store: BillingStore;
  readonly issuer: KeyIssuer;
  readonly authenticator: Authenticator;
  /** The configuration in force. */
  readonly config: () => DynamicConfig;
  /** What the public listener binds to. */
  readonly listenHost: string;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Whether a request was sent on this machine. */
  readonly isLocal: (request: IncomingMessage) => boolean;
}

/** More than the longest call of a provider. */
const FORMER_MS = 30_000;

type Handler = (exchange: Exchange) => void | Promise<void>;

/** Makes the provider that the configuration names, anew when it names another: a reload may bring another key. */
export class Providers {
  readonly #parts: Pick<BillingOptions, 'store' | 'metrics'>;
  #named: string | undefined;
  #provider: PaymentProvider | undefined;
  #calls: StripeCalls | undefined;

  constructor(parts: Pick<BillingOptions, 'store' | 'metrics'>) {
    this.#parts = parts;
  }

  of(config: BillingConfig | undefined): PaymentProvider | undefined {
    const name = config && JSON.stringify([config.provider, config.secret_key, config.api_base]);
    if (name === this.#named) return this.#provider;
    const former = this.#calls;
    // Calls under way may end; none takes longer.
    if (former !== undefined) setTimeout(() => former.close(), FORMER_MS).unref();
    this.#calls = undefined;
    this.#named = name;
    this.#provider = config && this.#open(config);
    return this.#provider;
  }

  close(): void {
    this.#calls?.close();
  }

  #open({ provider, secret_key, api_base }: BillingConfig): PaymentProvider | undefined {
    if (provider === 'test') return new FakeProvider(this.#parts.store);
    // The configuration is refused without.
    if (secret_key === undefined) return undefined;
    this.#calls = new StripeCalls({ secret_key, api_base }, this.#parts.metrics);
    return new StripeProvider(this.#calls, { secret_key, api_base });
  }
}

export class Billing {
  /** To be given to the router. */
  readonly routes: readonly (readonly [Method, string, Handler])[];
  readonly #sweep: Sweep;
  readonly #providers: Providers;

  constructor({
    store,
    issuer,
    authenticator,
    config,
    logger,
    metrics,
    isLocal,
    listenHost,
  }: BillingOptions) {
    const providers = new Providers({ store, metrics });
    this.#providers = providers;
    const billing = () => config().billing;
    const provider = () => providers.of(billing());
    const reconciliation = new PaymentReconciliation({
      store,
      issuer,
      provider,
      config: billing,
      logger,
      metrics,
    });
    const claims = new Claims({ store, issuer });
    const checkout = new Checkout({ store, issuer, authenticator, claims, provider, config, logger });
    const completion = new CompletePage({ store, reconciliation, claims, config });
    const webhooks = new Webhooks({ store, reconciliation, provider, config: billing, logger, metrics });
    const test = new FakePaymentPage({ store, reconciliation, provider, config, isLocal });
    const isOn = () => provider() !== undefined;
    this.#sweep = new Sweep({ store, reconciliation, isOn, logger, metrics });
    const page = (handler: Handler) => ownHostOnly(handler, config, listenHost);
    this.routes = [
      ['GET', '/pricing', page((exchange) => answerPricing(exchange, config(), provider()))],
      ['GET', '/account', page((exchange) => answerAccount(exchange, config()))],
      ['POST', '/checkout', page((exchange) => checkout.answer(exchange))],
      ['GET', '/checkout/complete', page((exchange) => completion.show(exchange))],
      ['GET', '/checkout/cancelled', page((exchange) => completion.showCancelled(exchange))],
      ['POST', '/checkout/claim', page((exchange) => completion.claim(exchange))],
      // For this machine alone, by a check of their own.
      ['GET', '/checkout/test', (exchange) => test.show(exchange)],
      ['POST', '/checkout/test', (exchange) => test.press(exchange)],
      // Signed, and perhaps forwarded under another name.
      ['POST', '/webhooks/stripe', (exchange) => webhooks.answer(exchange)],
    ];
  }

  start(): void {
    this.#sweep.start();
  }

  /** One sweep now, for those who cannot wait for the next. @returns whether it was this process's turn */
  sweep(): Promise<boolean> {
    return this.#sweep.run();
  }

  async close(): Promise<void> {
    await this.#sweep.stop();
    this.#providers.close();
  }
}
