// Short pages that answer a form: errors, and the link to the payment page.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answer, retryHeaders } from '../../http/exchange/response-writer.ts';
import { answerResult, html, type PageOptions } from './page-frame.ts';

/**
 * Runs the handler of a page. Errors for clients become an error page when `isPage`; otherwise they are thrown, as internal
 * errors always are.
 */
export async function withErrorPage(
  exchange: Exchange,
  page: { readonly isPage: boolean; readonly config: DynamicConfig; readonly up?: '../' },
  work: () => void | Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!page.isPage || !(error instanceof GatewayError) || error.code === 'internal_error') throw error;
    answerErrorPage(exchange, error, page.config, page.up);
  }
}

/** @param up relative path to the root of the gateway */
export function answerErrorPage(
  exchange: Exchange,
  error: GatewayError,
  { branding }: DynamicConfig,
  up: NonNullable<PageOptions['up']> = '',
): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  const page = {
    title: 'That did not work',
    branding,
    up,
    headers: retryHeaders(error),
    body: html`<p class="notice bad">${error.message}</p>
<p class="actions"><a class="button" href="${up}pricing">Back to the tiers</a></p>`,
  };
  const foot = html`No key was issued. For support: <code translate="no">${error.code}</code>, request <code translate="no">${exchange.id}</code>`;
  answerResult(exchange, error.status, page, foot);
}

/**
 * Sends a browser to the payment page.
 * @param isKnown whether the `form-action` policy of the order page allows its origin: Chromium applies it to redirects, too
 *   (CSP 3, 6.4.1). Otherwise, for a payment page on the operator's own domain, an intermediate page links to it.
 */
export function answerPaymentLink(
  exchange: Exchange,
  url: string,
  isKnown: boolean,
  { branding }: DynamicConfig,
): void {
  if (isKnown) {
    const headers = { location: url, 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };
    answer(exchange, 303, headers, '');
    return;
  }
  answerResult(exchange, 200, {
    title: 'On to the payment',
    branding,
    headers: { refresh: `0; url=${url}` },
    body: html`<p class="actions"><a class="button" href="${url}" rel="noreferrer">Continue to the payment page</a></p>`,
  });
}
