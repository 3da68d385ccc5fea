// Pages are not served under a foreign host name (DNS rebinding): its owner could read them and press their buttons.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { requireOwnHost } from '../../http/own-host.ts';
import type { Handler } from '../../http/router.ts';
import { answerErrorPage } from './answer-page.ts';

/** Whether a request is a browser's for a page, and not a program's. */
export function wantsPage({ request }: Exchange): boolean {
  return /\btext\/html\b/.test(request.headers.accept ?? '');
}

/**
 * @param listenHost host that the public listener binds to
 * @returns the handler for requests whose Host is the gateway's own. Others are rejected, with a page or with JSON
 */
export function ownHostOnly(handler: Handler, config: () => DynamicConfig, listenHost: string): Handler {
  return (exchange) => {
    const inForce = config();
    try {
      requireOwnHost(exchange, inForce.public_url, listenHost);
    } catch (error) {
      if (!wantsPage(exchange) || !(error instanceof GatewayError)) throw error;
      answerErrorPage(exchange, error, inForce);
      return;
    }
    return handler(exchange);
  };
}
