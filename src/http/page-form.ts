// Small request bodies of pages: a browser's form, or the same fields as JSON from a program. Also rejects cross-origin forms (CSRF).
import { isUtf8 } from 'node:buffer';
import { GatewayError } from '../errors.ts';
import { parse } from '../wire/error-answer.ts';
import { readBody } from './body/read-body.ts';
import type { Exchange } from './exchange/exchange.ts';
import { mediaType } from './multipart/media-type.ts';
import { isLocalOrigin } from './own-host.ts';

const MAX_FORM_BYTES = 16 * 1024;

export interface PageForm {
  /** Kind of the request, and of the expected response: a page or JSON. */
  readonly kind: 'form' | 'json';
  /** Text of the field; undefined if it is missing or not a text. */
  get(name: string): string | undefined;
  /** Names of all fields, but of those of JSON that are null. */
  readonly names: readonly string[];
}

/** @throws GatewayError invalid_json, invalid_body, unsupported_content_type and errors of readBody */
export async function readPageForm(exchange: Exchange): Promise<PageForm> {
  const type = mediaType(exchange.request.headers);
  if (type === 'application/x-www-form-urlencoded') {
    const fields = new URLSearchParams((await readBody(exchange, MAX_FORM_BYTES)).toString());
    return { kind: 'form', get: (name) => fields.get(name) ?? undefined, names: [...fields.keys()] };
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
    names: [...fields].flatMap(([name, value]) => (value === null ? [] : [name])),
  };
}

/**
 * Browsers report the origin of a form (`sec-fetch-site`, `origin`); programs do not, and have no cookies to abuse.
 * @param own origin of `public_url`
 * @throws GatewayError cross_origin_form
 */
export function requireSameOrigin(exchange: Exchange, own: string): void {
  const { origin, host, 'sec-fetch-site': site } = exchange.request.headers;
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    throw new GatewayError('cross_origin_form');
  if (origin === undefined || origin === own) return;
  // Origin of forms on pages without a referrer; the other header must then prove the site.
  if (origin === 'null' && site === 'same-origin') return;
  // Accessed by another name than the public one: a port forward or a local address.
  if (!isLocalOrigin(origin, host)) throw new GatewayError('cross_origin_form');
}

function parseObject(bytes: Buffer): Map<string, unknown> {
  if (!isUtf8(bytes)) throw new GatewayError('invalid_json');
  // Without the parser's error, which quotes the text and would reach the log.
  const value = parse(bytes.toString());
  if (value === undefined) throw new GatewayError('invalid_json');
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new GatewayError('invalid_body');
  return new Map(Object.entries(value));
}
