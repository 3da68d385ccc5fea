// Detects quotations of an upstream's credentials in its texts, in any encoding.
import { sentSecrets } from '../config/schema/auth-schema.ts';
import type { UpstreamConfig } from '../config/schema/config-schema.ts';

/** Shorter header and query values are words such as `true`, which occur in normal errors. */
const MIN_LENGTH = 8;
/** A random value of this length is recognized by its middle third, even if truncated or partly masked. */
const RANDOM = /^[\w+/=.~-]{32,}$/;
/** Scheme before a credential in a header value. */
const SCHEME = /^(?:bearer|basic|token|key|api-?key)\s+(\S.*)$/i;
/** Parameters that hold credentials; others are versions and names, which errors may quote. */
const SECRET_PARAMETER = /key|token|secret|sig|auth|pass|cred|code/i;
/** Nested encodings: JSON in a JSON string, in a log string, in a URL. Error messages do not nest deeper. */
const MAX_ROUNDS = 5;

/** Escapes of JSON, JavaScript and Python; percent-encoded runs; HTML entities. */
const ESCAPE = /\\(?:u([\da-f]{4})|u\{([\da-f]{1,6})\}|x([\da-f]{2})|([\s\S]))/gi;
const ENCODED = /(?:%[\da-f]{2})+/gi;
const ENTITY =
  /&(?:#(\d{1,7})|#x([\da-f]{1,6})|(amp|lt|gt|quot|apos|plus|equals|sol|lowbar|period|hyphen));/gi;
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  plus: '+',
  equals: '=',
  sol: '/',
  lowbar: '_',
  period: '.',
  hyphen: '-',
};

export class CredentialQuotes {
  readonly #needles: readonly string[];
  readonly #shortest: number;

  /** @param tokens that were fetched */
  constructor(configs: readonly UpstreamConfig[], tokens: readonly string[] = []) {
    const values = [...configs.flatMap(valuesOf), ...tokens].filter((value) => value.length >= MIN_LENGTH);
    const forms = values.flatMap(partsOf).flatMap((value) => [value, inHex(value), ...inBase64(value)]);
    this.#needles = [...new Set(forms.map((form) => form.toLowerCase()))];
    this.#shortest = Math.min(Number.POSITIVE_INFINITY, ...this.#needles.map(({ length }) => length));
  }

  /**
   * Whether the text quotes a credential: verbatim, in another case, wrapped over lines, escaped for JSON, URLs or HTML (also nested),
   * or within Base64 or hexadecimal. Fragments such as `sk-…abcd` do not count; two thirds of a random value do.
   */
  areQuotedIn(text: string): boolean {
    // No encoding is shorter than the value.
    if (text.length < this.#shortest) return false;
    let last = text;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      if (this.#areIn(last)) return true;
      let next = last;
      for (const decode of DECODERS) {
        const decoded = decode(next);
        if (decoded !== next && this.#areIn(decoded)) return true;
        next = decoded;
      }
      if (next === last) return false;
      last = next;
    }
    return false;
  }

  #areIn(text: string): boolean {
    const lower = text.toLowerCase();
    return this.#needles.some((needle) => lower.includes(needle));
  }
}

const DECODERS: readonly ((text: string) => string)[] = [
  (text) =>
    text.includes('\\')
      ? text.replace(ESCAPE, (_found, code: string, point: string, byte: string, letter: string) =>
          letter === undefined
            ? letterOf(Number.parseInt(code ?? point ?? byte, 16))
            : letter.replace(/[nrt]/, ' '),
        )
      : text,
  (text) =>
    text.includes('%')
      ? text.replace(ENCODED, (found) => Buffer.from(found.replaceAll('%', ''), 'hex').toString())
      : text,
  (text) =>
    text.includes('&')
      ? text.replace(ENTITY, (_found, decimal: string, hex: string, name: string) =>
          name === undefined
            ? letterOf(decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal))
            : (ENTITIES[name.toLowerCase()] ?? ''),
        )
      : text,
  // Line wrapping.
  (text) => text.replace(/\s+/g, ''),
];

function letterOf(code: number): string {
  return code <= 0x10ffff ? String.fromCodePoint(code) : '';
}

function valuesOf(config: UpstreamConfig): string[] {
  if (config.kind === 'builtin') return [];
  const headers = Object.values(config.headers);
  const query = [...new URL(config.base_url).searchParams, ...Object.entries(config.query)];
  return [
    config.api_key ?? '',
    ...(config.auth === undefined ? [] : sentSecrets(config.auth)),
    ...headers,
    ...headers.flatMap((value) => SCHEME.exec(value)?.[1] ?? []),
    ...headers.flatMap((value) => passwordIn(value)),
    ...query.flatMap(([name, value]) => (SECRET_PARAMETER.test(name) ? [value] : [])),
  ];
}

/** The value; of a random value its middle third, which any two thirds contain. */
function partsOf(value: string): string[] {
  const third = Math.floor(value.length / 3);
  return RANDOM.test(value) ? [value.slice(third, value.length - third)] : [value];
}

function inHex(value: string): string {
  return Buffer.from(value).toString('hex');
}

/** The `user:password` pair and the password of an HTTP Basic value. */
function passwordIn(value: string): string[] {
  const coded = /^basic\s+(\S+)$/i.exec(value)?.[1];
  if (coded === undefined) return [];
  const pair = Buffer.from(coded, 'base64').toString();
  return [pair, pair.slice(pair.indexOf(':') + 1)];
}

/** The digits that Base64 of any text around the value contains, at each of the three alignments. */
function inBase64(value: string): string[] {
  const bytes = Buffer.from(value);
  const forms = [0, 1, 2].map((before) => {
    const coded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64url');
    // The outer digits also hold bits of the neighbours.
    const from = Math.ceil((before * 8) / 6);
    return coded.slice(from, Math.floor(((before + bytes.length) * 8) / 6));
  });
  return forms.flatMap((form) => [form, form.replaceAll('-', '+').replaceAll('_', '/')]);
}
