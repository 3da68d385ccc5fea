// Short pages that answer a form: that something did not work, and the way to where it is paid.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { answer, retryHeaders } from '../../http/exchange/response-writer.ts';
import { answerPage, html, type PageOptions, resultPage } from './page-frame.ts';

/** @param up where the root of the gateway is from here */
export function answerErrorPage(
  exchange: Exchange,
  error: GatewayError,
  { branding }: DynamicConfig,
  up: NonNullable<PageOptions['up']> = '',
): void {
  exchange.error = error;
  exchange.access.outcome = error.code;
  answerPage(exchange, error.status, {
    title: 'That did not work',
    branding,
    up,
    headers: retryHeaders(error),
    body: resultPage(
      'That did not work',
      html`<p class="notice bad">${error.message}</p>
<p class="actions"><a class="button" href="${up}pricing">Back to the tiers</a></p>`,
      html`No key was given out. For support: <code translate="no">${error.code}</code>, request <code translate="no">${exchange.id}</code>`,
    ),
  });
}

/**
 * Sends a browser on to where it is paid.
 * @param isKnown whether pages with a form allow this origin: Chromium applies `form-action` to redirects, too (CSP 3, 6.4.1).
 *   Elsewhere, at a payment page under a name of the operator's own, a page leads on that no policy of a form holds for.
 */
export function answerPaymentLink(
  exchange: Exchange,
  url: string,
  isKnown: boolean,
  { branding }: DynamicConfig,
): void {
  if (isKnown) {
    answer(
      exchange,
      303,
      { location: url, 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' },
      '',
    );
    return;
  }
  answerPage(exchange, 200, {
    title: 'On to the payment',
    branding,
    headers: { refresh: `0; url=${url}` },
    body: resultPage(
      'On to the payment',
      html`<p class="actions"><a class="button" href="${url}" rel="noreferrer">Continue to the payment page</a></p>`,
    ),
  });
}
