// A gateway that sells Lite and Pro through the Stripe stand-in, and the steps of its buyers.
import { ask, bearer, field, textField } from '../e2e/holder.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { deliver, SECRET_KEY, type StandInPrice, StripeStandIn, WEBHOOK_SECRET } from './stripe-stand-in.ts';

export const PRICES: readonly StandInPrice[] = [
  { id: 'price_lite', amount: 900, currency: 'usd' },
  { id: 'price_pro', amount: 4900, currency: 'usd' },
];

export const SHOP_TIERS = {
  Free: {},
  Lite: { price: { amount: 900, currency: 'usd', interval: 'month' }, stripe_price: 'price_lite' },
  Pro: { price: { amount: 4900, currency: 'usd', interval: 'month' }, stripe_price: 'price_pro' },
} as const;

type Config = NonNullable<GatewayOptions['config']>;

export function shopConfig(standIn: StripeStandIn, config: Config = {}): Config {
  return {
    tiers: SHOP_TIERS,
    free_keys: { per_ip_per_day: 1000 },
    branding: { contact: 'help@example.com' },
    ...config,
    billing: {
      provider: 'stripe',
      secret_key: SECRET_KEY,
      webhook_secret: WEBHOOK_SECRET,
      api_base: standIn.url,
      ...(typeof config['billing'] === 'object' ? config['billing'] : {}),
    },
  };
}

/** An order as its buyer knows it. */
export interface Bought {
  readonly order: string;
  readonly session: string;
  readonly url: string;
  /** As the browser sends it back. */
  readonly cookie: string;
}

export class Shop implements AsyncDisposable {
  readonly stripe: StripeStandIn;
  readonly gateway: Gateway;
  #address = 0;

  constructor(stripe: StripeStandIn, gateway: Gateway) {
    this.stripe = stripe;
    this.gateway = gateway;
  }

  static async open(config: Config = {}, options: Omit<GatewayOptions, 'config'> = {}): Promise<Shop> {
    const stripe = await StripeStandIn.start(PRICES);
    try {
      // A buyer's address is what a proxy says, so that the limit of orders of one address is not in the way.
      const listen = { trusted_proxies: ['127.0.0.1'] };
      const gateway = await startGateway({ ...options, config: { listen, ...shopConfig(stripe, config) } });
      return new Shop(stripe, gateway);
    } catch (error) {
      await stripe[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gateway.close();
    await this.stripe[Symbol.asyncDispose]();
  }

  get url(): string {
    return this.gateway.url;
  }

  /** The headers of a buyer somewhere else than all others. */
  elsewhere(): Record<string, string> {
    this.#address += 1;
    return { 'x-forwarded-for': `10.0.${this.#address >> 8}.${this.#address & 255}` };
  }

  /** `POST /checkout` as a program, with or without a key. */
  order(tier: string, key?: string): Promise<RawResponse> {
    return ask(this.url, {
      target: '/checkout',
      headers: { ...this.elsewhere(), ...(key === undefined ? {} : bearer(key)) },
      body: { tier },
    });
  }

  async buy(tier: string, key?: string): Promise<Bought> {
    const response = await this.order(tier, key);
    if (response.status !== 201) throw new Error(`no order: ${response.status} ${response.text()}`);
    const order = textField(response.json(), 'order');
    return {
      order,
      session: this.stripe.sessionOf(order).id,
      url: textField(response.json(), 'url'),
      cookie: cookieOf(response),
    };
  }

  sessionOf({ order }: Bought) {
    return this.stripe.sessionOf(order);
  }

  deliver(
    event: Parameters<typeof deliver>[1],
    delivery?: Parameters<typeof deliver>[2],
  ): Promise<RawResponse> {
    return deliver(this.url, event, delivery);
  }

  /** Delivers, and expects it to be taken. @returns the outcome */
  async tell(event: Parameters<typeof deliver>[1]): Promise<unknown> {
    const response = await this.deliver(event);
    if (response.status !== 200) throw new Error(`not taken: ${response.status} ${response.text()}`);
    return field(response.json(), 'outcome');
  }

  claim({ session, cookie }: Pick<Bought, 'session' | 'cookie'>): Promise<RawResponse> {
    return ask(this.url, {
      target: '/checkout/claim',
      headers: { ...(cookie === '' ? {} : { cookie }) },
      body: { session_id: session },
    });
  }

  /** The key of a paid order. */
  async keyOf(bought: Bought): Promise<string> {
    const response = await this.claim(bought);
    if (response.status !== 201) throw new Error(`no key: ${response.status} ${response.text()}`);
    return textField(response.json(), 'key');
  }

  /** Buys a tier to the end. */
  async holder(tier: string): Promise<{ bought: Bought; key: string }> {
    const bought = await this.buy(tier);
    await this.tell(this.stripe.pay(this.sessionOf(bought)));
    return { bought, key: await this.keyOf(bought) };
  }

  complete({ session, cookie }: Pick<Bought, 'session' | 'cookie'>): Promise<RawResponse> {
    return ask(this.url, {
      method: 'GET',
      target: `/checkout/complete?session_id=${session}`,
      headers: cookie === '' ? {} : { cookie },
    });
  }
}

export function cookieOf(response: RawResponse): string {
  return (response.header('set-cookie') ?? '').split(';')[0] ?? '';
}
