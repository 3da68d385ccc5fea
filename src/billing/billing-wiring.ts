// Wires orders and payments together for one gateway process.
import type { IncomingMessage } from 'node:http';
import type { BillingConfig } from '../config/schema/config-schema.ts';
import type { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Handler, Method } from '../http/router.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Outbound } from '../upstream/outbound/outbound.ts';
import { FakeProvider } from './fake-provider.ts';
import { HolderPortal } from './holder-portal.ts';
import { InvoiceProvider } from './invoice-provider.ts';
import { Claims } from './key-claims.ts';
import { Sweep } from './order-sweep.ts';
import { answerAccount } from './pages/account-page.ts';
import { Checkout } from './pages/checkout.ts';
import { CompletePage } from './pages/complete-page.ts';
import { FakePaymentPage } from './pages/fake-payment-page.ts';
import { ownHostOnly } from './pages/page-host.ts';
import { answerPricing } from './pages/pricing-page.ts';
import { answerUnknown } from './pages/root-page.ts';
import type { BillingParts, PaymentProvider } from './payment-provider.ts';
import { PaymentReconciliation } from './payment-reconciliation.ts';
import { StripeCalls } from './stripe/stripe-calls.ts';
import { StripeProvider } from './stripe/stripe-provider.ts';
import { Webhooks } from './stripe/webhook-endpoint.ts';

interface BillingOptions extends Omit<BillingParts, 'provider' | 'now'> {
  readonly metrics: Metrics;
  /** Host that the public listener binds to. */
  readonly listenHost: string;
  /** For the connections to the provider. */
  readonly outbound: Outbound;
  /** Whether a request was sent on this machine. */
  readonly isLocal: (request: IncomingMessage) => boolean;
}

/** Longer than the longest call of a provider. */
const FORMER_MS = 30_000;

/** Creates the configured provider, and replaces it when a reload changes it, for example its key. */
export class Providers {
  readonly #parts: Pick<BillingOptions, 'store' | 'metrics' | 'outbound'>;
  #named: string | undefined;
  #provider: PaymentProvider | undefined;
  #calls: StripeCalls | undefined;

  constructor(parts: Pick<BillingOptions, 'store' | 'metrics' | 'outbound'>) {
    this.#parts = parts;
  }

  of(config: BillingConfig | undefined): PaymentProvider | undefined {
    const name = config && JSON.stringify([config.provider, config.secret_key, config.api_base]);
    if (name === this.#named) return this.#provider;
    const former = this.#calls;
    // Calls in flight may finish first.
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
    if (provider === 'invoice') return new InvoiceProvider(this.#parts.store);
    // The configuration is rejected without it.
    if (secret_key === undefined) return undefined;
    const { outbound, metrics } = this.#parts;
    this.#calls = new StripeCalls({ secret_key, api_base, outbound }, metrics);
    return new StripeProvider(this.#calls, { secret_key, api_base });
  }
}

export class Billing {
  /** Routes for the router. */
  readonly routes: readonly (readonly [Method, string, Handler])[];
  readonly #options: BillingOptions;
  readonly #sweep: Sweep;
  readonly #providers: Providers;

  constructor(options: BillingOptions) {
    const { config, listenHost } = options;
    this.#options = options;
    const providers = new Providers(options);
    this.#providers = providers;
    const provider = () => providers.of(config().billing);
    const parts = { ...options, provider, now: Date.now };
    const reconciliation = new PaymentReconciliation({ ...parts, config: () => config().billing });
    const claims = new Claims(parts);
    const checkout = new Checkout({ ...parts, claims });
    const completion = new CompletePage({ ...parts, reconciliation, claims });
    const portal = new HolderPortal({ ...parts, reconciliation });
    const webhooks = new Webhooks({ ...parts, reconciliation });
    const test = new FakePaymentPage({ ...parts, reconciliation });
    this.#sweep = new Sweep({ ...parts, reconciliation });
    const page = (handler: Handler) => ownHostOnly(handler, config, listenHost);
    this.routes = [
      ['GET', '/pricing', page((exchange) => answerPricing(exchange, config(), provider()))],
      ['GET', '/account', page((exchange) => answerAccount(exchange, config()))],
      ['POST', '/checkout', page((exchange) => checkout.answer(exchange))],
      ['GET', '/checkout/complete', page((exchange) => completion.show(exchange))],
      ['GET', '/checkout/cancelled', page((exchange) => completion.showCancelled(exchange))],
      ['POST', '/checkout/portal', page((exchange) => portal.open(exchange))],
      ['POST', '/checkout/refresh', page((exchange) => portal.refresh(exchange))],
      ['POST', '/checkout/claim', page((exchange) => completion.claim(exchange))],
      // These check themselves that the request comes from this machine.
      ['GET', '/checkout/test', (exchange) => test.show(exchange)],
      ['POST', '/checkout/test', (exchange) => test.press(exchange)],
      // Events are signed, and a proxy may forward them under another host.
      ['POST', '/webhooks/stripe', (exchange) => webhooks.answer(exchange)],
    ];
  }

  /** The page at `/` and at unknown paths. @returns whether it was answered: not for programs */
  answerUnknown(exchange: Exchange, error: GatewayError): boolean {
    const { config, listenHost } = this.#options;
    return answerUnknown(exchange, error, config(), listenHost);
  }

  start(): void {
    this.#sweep.start();
  }

  /** Runs a sweep now. @returns whether this process had the lease */
  sweep(): Promise<boolean> {
    return this.#sweep.run();
  }

  async close(): Promise<void> {
    await this.#sweep.stop();
    this.#providers.close();
  }
}
