// A whole key, in a type that never prints it. All other code identifies a key by its prefix.
import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { isPrefix, PREFIX_LENGTH, type Prefix } from '../../store/key-record.ts';

const KEY_DIGITS = 32;
const KEY = /^[0-9a-f]{32}$/;
/** RFC 9110, 11.1 and 11.4: the scheme is case-insensitive, and one or more spaces follow it. */
const HEADER = /^Bearer +[0-9a-f]{32}$/i;
/** A header with any bearer token. */
const ANY_BEARER = /^Bearer +\S/i;
const KEY_BYTES = 16;

/**
 * 32 lowercase hexadecimal characters, 128 random bits. Only `reveal()` returns the text: a key in a template, in JSON, in a
 * log or in an error shows its prefix.
 */
export class Key {
  readonly #text: string;
  readonly prefix: Prefix;

  private constructor(text: string) {
    const prefix = text.slice(0, PREFIX_LENGTH);
    // The callers have validated the text; this narrows the type.
    if (!isPrefix(prefix)) throw new TypeError('not a key');
    this.#text = text;
    this.prefix = prefix;
  }

  /** Parses a key; undefined when `text` is not exactly one. */
  static parse(text: string): Key | undefined {
    return KEY.test(text) ? new Key(text) : undefined;
  }

  /** The key in an Authorization header; undefined when the value is not `Bearer KEY`. */
  static fromHeader(value: string): Key | undefined {
    return HEADER.test(value) ? Key.parse(value.slice(-KEY_DIGITS)) : undefined;
  }

  /** Whether an Authorization header has any bearer token. */
  static isOffered(header: string | undefined): header is string {
    return header !== undefined && ANY_BEARER.test(header);
  }

  /** @param random source of random bytes; the default is the operating system's */
  static generate(random: (size: number) => Uint8Array = randomBytes): Key {
    return new Key(Buffer.from(random(KEY_BYTES)).toString('hex'));
  }

  /** The whole key, for the one response that shows it and for hashing. */
  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return `${this.prefix}…`;
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return `Key(${this.toString()})`;
  }
}
