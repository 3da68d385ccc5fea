// What a browser sees at `/` and at unknown paths. Programs get the JSON error of the router there.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { isOwnHost } from '../../http/own-host.ts';
import { baseUrl } from '../base-url.ts';
import { answerPage, answerResult, html, textBox } from './page-frame.ts';
import { wantsPage } from './page-host.ts';
import { brandName } from './theme.ts';

/** Below these are programs, whatever they accept. */
const PROGRAMS = /^\/(?:v1|admin|webhooks)\//;

/**
 * @param error for an unknown path
 * @param listenHost host that the public listener binds to
 * @returns whether it was answered; not for programs, nor under a foreign host name
 */
export function answerUnknown(
  exchange: Exchange,
  error: GatewayError,
  config: DynamicConfig,
  listenHost: string,
): boolean {
  const path = exchange.target.split('?', 1)[0] ?? '';
  if (!wantsPage(exchange) || exchange.method !== 'GET' || PROGRAMS.test(path)) return false;
  if (!isOwnHost(exchange, config.public_url, listenHost)) return false;
  const { branding } = config;
  if (path === '/') {
    const name = brandName(branding);
    answerPage(exchange, 200, {
      title: 'Start',
      branding,
      body: html`<h1>${name}</h1>
<p class="lead">This address is an API that speaks OpenAI’s language. Keep your SDK, and change the base URL and the key.</p>
${textBox('base-url', 'Base URL', baseUrl(exchange, config), 'line')}
<p class="actions"><a class="button" href="pricing">See the tiers</a> <a class="button quiet" href="account">Your key’s page</a></p>`,
    });
    return true;
  }
  exchange.error = error;
  exchange.access.outcome = error.code;
  // Relative, like all links, so that they work below a path of a proxy.
  const up = '../'.repeat(path.split('/').length - 2);
  answerResult(exchange, error.status, {
    title: 'There is no such page',
    branding,
    up,
    body: html`<p class="lead">Nothing is published at this address. The link may be old, or mistyped.</p>
<p class="actions"><a class="button" href="${up}pricing">See the tiers</a> <a class="button quiet" href="${up}account">Your key’s page</a></p>`,
  });
  return true;
}
