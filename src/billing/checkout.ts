// From a chosen tier to a key. Free is given at once, as a page to a form and as JSON to a program; the key stands in that
// one answer and nowhere else. The page with the key is key-page.ts.
import type { IssuedKey, Issuer } from '../auth/issuer.ts';
import { wireKey } from '../auth/rotation.ts';
import { type DynamicConfig, TIERS, type Tier } from '../config/schema.ts';
import { GatewayError } from '../errors.ts';
import { answerJson, retryHeaders } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { readForm, requireSameOrigin } from '../http/form.ts';
import { answerKeyPage } from './key-page.ts';
import { answerPage, html } from './page.ts';

export class Checkout {
  readonly #issuer: Issuer;
  readonly #config: () => DynamicConfig;

  constructor(issuer: Issuer, config: () => DynamicConfig) {
    this.#issuer = issuer;
    this.#config = config;
  }

  /**
   * `POST /checkout` with the field `tier`: 201 with the key. A form is answered with pages, also where it is refused.
   * @throws GatewayError what readForm throws, and for JSON `cross_origin_form`, `missing_required_parameter`,
   *   `invalid_value`, `checkout_not_configured`, `free_key_limit`, `store_unavailable`
   */
  async answer(exchange: Exchange): Promise<void> {
    const config = this.#config();
    const isPage = sendsForm(exchange);
    try {
      const issued = await this.#order(exchange, config);
      if (isPage) answerKeyPage(exchange, issued, config);
      else answerJson(exchange, 201, wireKey(issued), { 'cache-control': 'no-store' });
    } catch (error) {
      // A fault of the gateway's own is the server's to log and to answer.
      if (!isPage || !(error instanceof GatewayError) || error.code === 'internal_error') throw error;
      answerErrorPage(exchange, error, config);
    }
  }

  async #order(exchange: Exchange, config: DynamicConfig): Promise<IssuedKey> {
    requireSameOrigin(exchange, new URL(config.public_url).origin);
    const form = await readForm(exchange);
    const tier = tierOf(form.get('tier'));
    exchange.access.tier = tier;
    if (config.tiers[tier] === undefined || tier !== 'Free')
      throw new GatewayError('checkout_not_configured');
    exchange.throwIfStopped();
    const issued = await this.#issuer.issueFree({
      address: exchange.address,
      perDay: config.free_keys.per_ip_per_day,
    });
    exchange.access.key_prefix = issued.prefix;
    return issued;
  }
}

/** Whether a browser's form came, and not a program's JSON. */
function sendsForm({ request }: Exchange): boolean {
  return /^application\/x-www-form-urlencoded *(;|$)/i.test(request.headers['content-type'] ?? '');
}

function tierOf(text: string | undefined): Tier {
  if (text === undefined) {
    throw new GatewayError('missing_required_parameter', 'The field tier is missing.', { param: 'tier' });
  }
  const tier = TIERS.find((name) => name === text);
  if (tier === undefined) {
    throw new GatewayError('invalid_value', `The tier is one of ${TIERS.join(', ')}.`, { param: 'tier' });
  }
  return tier;
}

function answerErrorPage(exchange: Exchange, error: GatewayError, { branding }: DynamicConfig): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  answerPage(exchange, error.status, {
    title: 'That did not work',
    branding,
    headers: retryHeaders(error),
    body: html`<h1>That did not work</h1>
<p class="notice bad">${error.message}</p>
<p class="soft">No key was given out. The code of this error is <code translate="no">${error.code}</code>, and the request was <code translate="no">${exchange.id}</code>.</p>
<p><a href="pricing">Back to the tiers</a></p>`,
  });
}
