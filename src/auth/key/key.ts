// A whole key, in the one form that does not print itself. Everything else in the gateway knows a key by its prefix.
import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { isPrefix, PREFIX_LENGTH, type Prefix } from '../../store/key-record.ts';

const KEY_DIGITS = 32;
const KEY = /^[0-9a-f]{32}$/;
/** RFC 9110, 11.1 and 11.4: a scheme has no case, and one or more spaces follow it. */
const HEADER = /^Bearer +[0-9a-f]{32}$/i;
/** A header that offers a bearer token at all. */
const OFFER = /^Bearer +\S/i;
const KEY_BYTES = 16;

/**
 * 32 lowercase hexadecimal characters, 128 random bits. The text is in a private field and comes out through `reveal()`
 * alone: a key in a template, in JSON, in a log or in an error shows its prefix.
 */
export class Key {
  readonly #text: string;
  readonly prefix: Prefix;

  private constructor(text: string) {
    const prefix = text.slice(0, PREFIX_LENGTH);
    // Both callers have checked the whole; this is for the type.
    if (!isPrefix(prefix)) throw new TypeError('not a key');
    this.#text = text;
    this.prefix = prefix;
  }

  /** The key that `text` is, exactly, or undefined. */
  static parse(text: string): Key | undefined {
    return KEY.test(text) ? new Key(text) : undefined;
  }

  /** The key in the value of an Authorization header, or undefined when it is anything else than `Bearer KEY`. */
  static fromHeader(value: string): Key | undefined {
    return HEADER.test(value) ? Key.parse(value.slice(-KEY_DIGITS)) : undefined;
  }

  /** Whether the value of an Authorization header offers any token of the scheme Bearer. */
  static isOffered(header: string | undefined): header is string {
    return header !== undefined && OFFER.test(header);
  }

  /** @param random source of bytes, for tests; the default is the operating system's */
  static generate(random: (size: number) => Uint8Array = randomBytes): Key {
    return new Key(Buffer.from(random(KEY_BYTES)).toString('hex'));
  }

  /** The whole key. For its one answer to its holder, and for hashing. */
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
