// What the gateway authenticates with at an upstream, and whether a text of that upstream quotes it, in whatever way it is written there.
import type { UpstreamConfig } from '../config/schema/config-schema.ts';

/** Shorter values of headers and queries are words, like `true`, that an error may well contain. */
const SHORTEST = 8;
/** A random value of this length is recognised by its middle third, also where it was cut or most of it is shown. */
const RANDOM = /^[\w+/=.~-]{32,}$/;
/** Before a credential in the value of a header. */
const SCHEME = /^(?:bearer|basic|token|key|api-?key)\s+(\S.*)$/i;
/** Parameters whose values are credentials; others are versions and names, which errors quote with good reason. */
const SECRET_PARAMETER = /key|token|secret|sig|auth|pass|cred|code/i;
/** JSON in a string of JSON, in a string of a log, encoded for a URL: deeper nesting is not an error message. */
const MAX_ROUNDS = 5;

/** JSON, JavaScript and Python; runs of bytes in a URL; HTML. */
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

export class Credentials {
  readonly #needles: readonly string[];
  readonly #shortest: number;

  constructor(config: UpstreamConfig) {
    const values = valuesOf(config).filter((value) => value.length >= SHORTEST);
    const forms = values.flatMap(partsOf).flatMap((value) => [value, inHex(value), ...inBase64(value)]);
    this.#needles = [...new Set(forms.map((form) => form.toLowerCase()))];
    this.#shortest = Math.min(Number.POSITIVE_INFINITY, ...this.#needles.map(({ length }) => length));
  }

  /**
   * Whether the text quotes one of them: as it is, in other case, over several lines, with escapes of JSON, of URLs or of HTML, also
   * several in one another, or within Base64 or hexadecimal digits. Parts of one, as in `sk-…abcd`, are no quotation; two thirds are.
   */
  areQuotedIn(text: string): boolean {
    // No way of writing makes a text shorter.
    if (text.length < this.#shortest) return false;
    let last = text;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      if (this.#areIn(last)) return true;
      let next = last;
      for (const undo of UNDO) {
        const undone = undo(next);
        if (undone !== next && this.#areIn(undone)) return true;
        next = undone;
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

const UNDO: readonly ((text: string) => string)[] = [
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
  // Of what was wrapped.
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
    ...headers,
    ...headers.flatMap((value) => SCHEME.exec(value)?.[1] ?? []),
    ...headers.flatMap((value) => passwordIn(value)),
    ...query.flatMap(([name, value]) => (SECRET_PARAMETER.test(name) ? [value] : [])),
  ];
}

/** The value, or the part of it that is in any two thirds of it. */
function partsOf(value: string): string[] {
  const third = Math.floor(value.length / 3);
  return RANDOM.test(value) ? [value.slice(third, value.length - third)] : [value];
}

function inHex(value: string): string {
  return Buffer.from(value).toString('hex');
}

/** Of HTTP Basic: what stands in its Base64. */
function passwordIn(value: string): string[] {
  const coded = /^basic\s+(\S+)$/i.exec(value)?.[1];
  if (coded === undefined) return [];
  const pair = Buffer.from(coded, 'base64').toString();
  return [pair, pair.slice(pair.indexOf(':') + 1)];
}

/** What is there of a value within any Base64 of it, whatever stands before and behind it. */
function inBase64(value: string): string[] {
  const bytes = Buffer.from(value);
  const forms = [0, 1, 2].map((before) => {
    const coded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64url');
    // Letters that hold bits of what stands around it.
    const from = Math.ceil((before * 8) / 6);
    return coded.slice(from, Math.floor(((before + bytes.length) * 8) / 6));
  });
  return forms.flatMap((form) => [form, form.replaceAll('-', '+').replaceAll('_', '/')]);
}
