// From a chosen tier to a key. Free is given at once, as a page to a form and as JSON to a program; the key stands in that
// one answer and nowhere else.
import type { IssuedKey, Issuer } from '../auth/issuer.ts';
import { wireKey } from '../auth/rotation.ts';
import { type DynamicConfig, TIERS, type Tier } from '../config/schema.ts';
import { GatewayError } from '../errors.ts';
import { answerJson, retryHeaders } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { readForm, requireSameOrigin } from '../http/form.ts';
import { baseUrl } from './base-url.ts';
import { answerPage, copyBox, html } from './page.ts';
import { modelsOf } from './pricing.ts';

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
      answerErrorPage(exchange, error);
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

function answerKeyPage(exchange: Exchange, issued: IssuedKey, config: DynamicConfig): void {
  const key = issued.key.reveal();
  const base = baseUrl(exchange, config);
  const model = modelsOf(issued.tier, config).find((name) => !name.includes('*')) ?? 'MODEL';
  answerPage(
    exchange,
    201,
    `Your ${issued.tier} key`,
    html`<h1>Your ${issued.tier} key</h1>
<p class="notice"><strong>Copy it now: it is shown only this once.</strong> The gateway keeps no copy of it that could be shown again. Reloading this page would not bring it back but make another key.</p>
${copyBox('key', 'API key', key, 'key')}
${copyBox('base-url', 'Base URL', base, 'line')}
${copyBox('example', 'Try it in a shell', curlLine(base, key, model), 'line')}
<p class="soft">The official OpenAI SDKs take both from the variables <code>OPENAI_API_KEY</code> and <code>OPENAI_BASE_URL</code>. Keep the key out of version control. To support it is known by its first eight characters, <code translate="no">${issued.prefix}</code>.</p>
<p><a href="/pricing">Back to the tiers</a></p>`,
  );
}

/** A first request, ready to be pasted into a POSIX shell whatever is in the names. */
function curlLine(base: string, key: string, model: string): string {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] });
  return `curl ${quoted(`${base}/chat/completions`)} \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d ${quoted(body)}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function answerErrorPage(exchange: Exchange, error: GatewayError): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  answerPage(
    exchange,
    error.status,
    'That did not work',
    html`<h1>That did not work</h1>
<p class="notice">${error.message}</p>
<p class="soft">No key was given out. The code of this error is <code translate="no">${error.code}</code>, and the request was <code translate="no">${exchange.id}</code>.</p>
<p><a href="/pricing">Back to the tiers</a></p>`,
    retryHeaders(error),
  );
}
