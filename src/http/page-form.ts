// Small bodies of pages: a form from a browser or the same as JSON from a program, as names and texts. Also the rule that
// a form comes from the gateway's own pages.
import { isUtf8 } from 'node:buffer';
import { GatewayError } from '../errors.ts';
import { readBody } from './body/read-body.ts';
import type { Exchange } from './exchange/exchange.ts';
import { mediaType } from './multipart/media-type.ts';
import { isLocalOrigin } from './own-host.ts';

const MAX_FORM_BYTES = 16 * 1024;

export interface PageForm {
  /** A browser's form wants a page for an answer, JSON wants JSON. */
  readonly kind: 'form' | 'json';
  /** The field's text; undefined if it is missing or is no text. */
  get(name: string): string | undefined;
}

/**
 * @throws GatewayError invalid_json, invalid_body, unsupported_content_type and what readBody throws
 */
export async function readPageForm(exchange: Exchange): Promise<PageForm> {
  const type = mediaType(exchange.request.headers);
  if (type === 'application/x-www-form-urlencoded') {
    const fields = new URLSearchParams((await readBody(exchange, MAX_FORM_BYTES)).toString());
    return { kind: 'form', get: (name) => fields.get(name) ?? undefined };
  }
  if (type !== 'application/json') {
    throw new GatewayError('unsupported_content_type', 'Send a form, or JSON labelled application/json.');
  }
  const fields = parseObject(await readBody(exchange, MAX_FORM_BYTES));
  return {
    kind: 'json',
    get: (name) => {
      const value = fields.get(name);
      return typeof value === 'string' ? value : undefined;
    },
  };
}

/**
 * Browsers say where a form comes from (`sec-fetch-site`, `origin`); programs say nothing and carry no cookies to abuse.
 * @param own the origin that the pages are published under
 * @throws GatewayError cross_origin_form
 */
export function requireSameOrigin(exchange: Exchange, own: string): void {
  const { origin, host, 'sec-fetch-site': site } = exchange.request.headers;
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    throw new GatewayError('cross_origin_form');
  if (origin === undefined || origin === own) return;
  // A page without a referrer sends its forms with this origin; then the other header has to vouch for it.
  if (origin === 'null' && site === 'same-origin') return;
  // Reached under another name than the public one: a port forward, a local address.
  if (!isLocalOrigin(origin, host)) throw new GatewayError('cross_origin_form');
}

function parseObject(bytes: Buffer): Map<string, unknown> {
  if (!isUtf8(bytes)) throw new GatewayError('invalid_json');
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch {
    // Without the parser's error: it quotes what stands around the fault, and that would reach the log.
    throw new GatewayError('invalid_json');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new GatewayError('invalid_body');
  return new Map(Object.entries(value));
}
