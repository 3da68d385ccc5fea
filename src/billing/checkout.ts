// From a chosen tier to a key. Free is given at once, as a page to a form and as JSON to a program; the key stands in that
// one answer and nowhere else.
import type { IssuedKey, Issuer } from '../auth/issuer.ts';
import { wireKey } from '../auth/rotation.ts';
import { type DynamicConfig, TIERS, type Tier } from '../config/schema.ts';
import { GatewayError, wrapError } from '../errors.ts';
import { answerError, answerJson, retryHeaders } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { type Form, readForm, requireSameOrigin } from '../http/form.ts';
import { answerPage, html } from './page.ts';

export class Checkout {
  readonly #issuer: Issuer;
  readonly #config: () => DynamicConfig;

  constructor(issuer: Issuer, config: () => DynamicConfig) {
    this.#issuer = issuer;
    this.#config = config;
  }

  /** `POST /checkout` with the field `tier` */
  async answer(exchange: Exchange): Promise<void> {
    const config = this.#config();
    requireSameOrigin(exchange, new URL(config.public_url).origin);
    const form = await readForm(exchange);
    if (form.kind === 'json') {
      answerJson(exchange, 201, wireKey(await this.#order(exchange, form, config)), {
        'cache-control': 'no-store',
      });
      return;
    }
    try {
      answerKeyPage(exchange, await this.#order(exchange, form, config), config);
    } catch (error) {
      answerErrorPage(exchange, wrapError(error, 'internal_error'));
    }
  }

  async #order(exchange: Exchange, form: Form, config: DynamicConfig): Promise<IssuedKey> {
    const tier = tierOf(form.get('tier'));
    exchange.access.tier = tier;
    if (config.tiers[tier] === undefined || tier !== 'Free')
      throw new GatewayError('checkout_not_configured');
    const issued = await this.#issuer.issueFree({
      address: exchange.address,
      perDay: config.free_keys.per_ip_per_day,
    });
    exchange.access.key_prefix = issued.prefix;
    return issued;
  }
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

function answerKeyPage(exchange: Exchange, issued: IssuedKey, { public_url, models }: DynamicConfig): void {
  const key = issued.key.reveal();
  const base = `${public_url.replace(/\/+$/, '')}/v1`;
  const model = Object.keys(models).find((name) => !name.includes('*')) ?? 'MODEL';
  answerPage(
    exchange,
    201,
    'Your key',
    html`<h1>Your key</h1>
<p>This is the only time it is shown. Copy it now and keep it where you keep secrets.</p>
<pre class="key" tabindex="0" aria-label="API key">${key}</pre>
<h2>Base URL</h2>
<pre tabindex="0" aria-label="Base URL">${base}</pre>
<h2>Try it</h2>
<pre tabindex="0" aria-label="Example request">curl ${base}/chat/completions \\
  -H "Authorization: Bearer ${key}" \\
  -H "Content-Type: application/json" \\
  -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'</pre>
<p class="soft">Tier ${issued.tier}. The first eight characters, ${issued.prefix}, name this key when you talk to support.</p>`,
  );
}

/** A browser gets a page; a program that posted a form can read the same from the status and the headers. */
function answerErrorPage(exchange: Exchange, error: GatewayError): void {
  if (error.code === 'internal_error') {
    answerError(exchange, error);
    return;
  }
  exchange.error = error;
  exchange.access.outcome = error.code;
  answerPage(
    exchange,
    error.status,
    'That did not work',
    html`<h1>That did not work</h1>
<p>${error.message}</p>
<p><a href="/pricing">Back to the tiers</a></p>`,
    retryHeaders(error),
  );
}
