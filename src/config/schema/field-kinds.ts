// The kinds of field a configuration is made of. Every value reaches zod as the text that was written (yaml-tree.ts), so each
// kind reads text; what an editor should accept for it, and whether it may be shown, stand beside it.
import { z } from 'zod';
import {
  accepted,
  readBoolean,
  readDecimal,
  readDuration,
  readInteger,
  readSize,
  rejected,
  type ScalarResult,
} from './units.ts';

/**
 * May the text of a value stand in an excerpt: as it is, when it is as short as a number or a word of ours, with user,
 * password and query of its URL masked, or never.
 */
export type Shown = 'plain' | 'short' | 'url' | 'never';

interface Nature {
  readonly shown?: Shown;
  /** The kind in words, for docs/configuration.md. */
  readonly words?: string;
  /** JSON Schema of the value instead of zod's, which only knows that it is text. */
  readonly json?: Readonly<Record<string, unknown>>;
  /** Of the key of a mapping: what is wrong with a name, or nothing. */
  readonly problem?: (name: string) => string | undefined;
  /** Of the key of a mapping: may the name be shown, though its value is not? */
  readonly shows?: (name: string, empty: boolean) => boolean;
  /** JSON Schema beside zod's. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** What zod cannot know of a schema. Looked up by schema instance, in json-schema.ts, configuration-tables.ts and visible-text.ts. */
export const natures = z.registry<Nature>();

/** A `${` anywhere: an editor cannot know what a reference expands to. */
const REFERENCE = '\\$\\{';

const leaf = <T>(nature: Nature, reader: (text: string) => ScalarResult<T>) =>
  z
    .string()
    .register(natures, nature)
    .transform((text, context): T => {
      const reading = reader(text);
      if (reading.ok) return reading.value;
      context.addIssue({ code: 'custom', message: reading.fault });
      return z.NEVER;
    });

const bounded =
  (
    reader: (text: string) => ScalarResult<number>,
    min: number,
    max: number,
    show: (value: number) => string,
  ) =>
  (text: string): ScalarResult<number> => {
    const reading = reader(text);
    if (!reading.ok) return reading;
    if (reading.value < min) return rejected(`must be at least ${show(min)}`);
    return reading.value > max ? rejected(`must be at most ${show(max)}`) : reading;
  };

const numeric = (type: 'integer' | 'number', min: number, max: number, pattern: string) => ({
  anyOf: [
    { type, minimum: min, maximum: max },
    { type: 'string', pattern: `${pattern}|${REFERENCE}` },
  ],
});

const range = (min: number, max: number): string =>
  max === Number.MAX_SAFE_INTEGER ? `from ${min}` : `${min} to ${max}`;

export const integer = (min: number, max: number) =>
  leaf(
    {
      shown: 'short',
      words: `whole number, ${range(min, max)}`,
      json: numeric('integer', min, max, '^\\d+$'),
    },
    bounded(readInteger, min, max, String),
  );

/** A whole number, or the one word that may stand for it, which is read as it is. */
export const integerOr = <W extends string>(word: W, min: number, max: number) => {
  const inBounds = bounded(readInteger, min, max, String);
  return leaf(
    {
      shown: 'short',
      words: `\`${word}\`, or whole number, ${range(min, max)}`,
      json: {
        anyOf: [
          { type: 'integer', minimum: min, maximum: max },
          { type: 'string', pattern: `^(${word}|\\d+)$|${REFERENCE}` },
        ],
      },
    },
    (text): ScalarResult<number | W> => (text === word ? accepted(word) : inBounds(text)),
  );
};

export const decimal = (min: number, max: number) =>
  leaf(
    {
      shown: 'short',
      words: `number, ${range(min, max)}`,
      json: numeric('number', min, max, '^\\d+(\\.\\d+)?$'),
    },
    bounded(readDecimal, min, max, String),
  );

/** A number, or the one word that may stand for it, which is read as it is. */
export const decimalOr = <W extends string>(word: W, min: number, max: number) => {
  const inBounds = bounded(readDecimal, min, max, String);
  return leaf(
    {
      shown: 'short',
      words: `\`${word}\`, or number, ${range(min, max)}`,
      json: {
        anyOf: [
          { type: 'number', minimum: min, maximum: max },
          { type: 'string', pattern: `^(${word}|\\d+(\\.\\d+)?)$|${REFERENCE}` },
        ],
      },
    },
    (text): ScalarResult<number | W> => (text === word ? accepted(word) : inBounds(text)),
  );
};

export const flag = () =>
  leaf(
    {
      shown: 'short',
      words: '`true` or `false`',
      json: { anyOf: [{ type: 'boolean' }, { type: 'string', pattern: `^(true|false)$|${REFERENCE}` }] },
    },
    readBoolean,
  );

/** The longest wait that can be configured. Timers of Node wrap around at 2^31 ms; no wait here has a use for that much. */
export const MAX_DURATION = '24h';

/** Bounds are given as the operator would write them. */
const quantity = (
  reader: (text: string) => ScalarResult<number>,
  kind: string,
  min: string,
  max: string,
  pattern: string,
) => {
  const [low, high] = [reader(min), reader(max)];
  if (!low.ok || !high.ok) throw new TypeError(`not a quantity: ${min} or ${max}`);
  const show = (value: number): string => (value === low.value ? min : max);
  return leaf(
    {
      shown: 'short',
      words: `${kind}, ${min} to ${max}`,
      json: { type: 'string', pattern: `${pattern}|${REFERENCE}` },
    },
    bounded(reader, low.value, high.value, show),
  );
};

/** Written with a unit, read as milliseconds. */
export const duration = (min: string, max: string) =>
  quantity(readDuration, 'duration', min, max, '^\\d+(ms|s|m|h|d)$');

/** A duration, or the one word that may stand for it, which is read as it is. */
export const durationOr = <W extends string>(word: W, min: string, max: string) => {
  const [low, high] = [readDuration(min), readDuration(max)];
  if (!low.ok || !high.ok) throw new TypeError(`not a duration: ${min} or ${max}`);
  const inBounds = bounded(readDuration, low.value, high.value, (value) => (value === low.value ? min : max));
  return leaf(
    {
      shown: 'short',
      words: `\`${word}\`, or duration, ${min} to ${max}`,
      json: { type: 'string', pattern: `^(${word}|\\d+(ms|s|m|h|d))$|${REFERENCE}` },
    },
    (text): ScalarResult<number | W> => {
      if (text === word) return accepted(word);
      const reading = inBounds(text);
      return reading.ok || readDuration(text).ok
        ? reading
        : rejected(`must be ${word}, or a whole number with a unit, such as 800ms`);
    },
  );
};

/** Written with a unit, read as bytes. */
export const size = (min: string, max: string) => quantity(readSize, 'size', min, max, '^\\d+(B|[KMG]i?B)$');

const ANY_SCALAR = { type: ['string', 'number', 'boolean'] };

/** Free text, kept as written: `1.10`, `on` and `2023-05-15` are no numbers, booleans or dates here. */
export const text = (reader: (text: string) => ScalarResult<string> = accepted) =>
  leaf({ shown: 'plain', words: 'text', json: ANY_SCALAR }, (value) =>
    value === '' ? rejected('must not be empty') : reader(value),
  );

/** An address with a form of its own (addresses.ts). */
export const address = <T>(reader: (text: string) => ScalarResult<T>, pattern: string) =>
  leaf(
    { shown: 'url', words: 'URL', json: { type: 'string', pattern: `${pattern}|${REFERENCE}` } },
    (value) => (value === '' ? rejected('must not be empty') : reader(value)),
  );

/** RFC 9110, 5.5: what a header value may hold, less obs-text, which no vendor's credential has. */
const HEADER_VALUE = /^[\t\x20-\x7e]+$/;

/** Something only its holder may see. It must be able to stand in a header, wherever it is used. */
export const credential = () =>
  leaf({ shown: 'never', words: 'credential', json: ANY_SCALAR }, (value) => {
    if (value.trim() === '') return rejected('is a credential and must not be empty');
    return HEADER_VALUE.test(value)
      ? accepted(value)
      : rejected(
          'has a character that cannot stand in an HTTP header (only visible ASCII, space and tab can)',
        );
  });

/** Any text, never shown: query parameters often are credentials. */
export const hiddenText = () => leaf({ shown: 'never', words: 'text', json: ANY_SCALAR }, accepted);

/** A mapping with these fields and no other. */
export const section = <T extends z.core.$ZodLooseShape>(shape: T) => z.strictObject(shape);

/**
 * The key of a mapping whose names the operator chooses. zod takes any: it would not look at the value of a wrong one, so
 * the names are checked in visible-text.ts.
 *
 * @param problem says what is wrong with a name, or nothing
 * @param shows may a name be shown in a message, given whether it stands without a value? Such a name can be a credential
 *   that lost its colon.
 */
export const name = (
  problem: (text: string) => string | undefined,
  shows: (text: string, empty: boolean) => boolean,
) => z.string().register(natures, { problem, shows });

/** A mapping from names that the operator chooses. Its output has no prototype: `constructor` is no entry of it. */
export const mapping = <K extends z.ZodString, V extends z.core.$ZodType>(key: K, value: V) =>
  z
    .record(key, value)
    .transform((entries): Record<string, z.output<V>> => Object.assign(Object.create(null), entries));

/** The schema below optional, default and transform: what the structure of the file is checked against. */
export function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodExactOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault
  ) {
    return unwrap(schema.unwrap());
  }
  return schema instanceof z.ZodPipe ? unwrap(schema.in) : schema;
}

/** The schema of one field, entry or item of a mapping or list; undefined where there is none. */
export function childOf(schema: z.core.$ZodType | undefined, step: PropertyKey): z.core.$ZodType | undefined {
  if (schema === undefined) return undefined;
  const inner = unwrap(schema);
  if (inner instanceof z.ZodObject) {
    const shape: z.core.$ZodLooseShape = inner.shape;
    return typeof step === 'string' && Object.hasOwn(shape, step) ? shape[step] : undefined;
  }
  if (inner instanceof z.ZodRecord) return inner.valueType;
  return inner instanceof z.ZodArray ? inner.element : undefined;
}

/** The names of the fields that a mapping may have; empty for anything else. */
export function fieldNames(schema: z.core.$ZodType | undefined): readonly string[] {
  const inner = schema === undefined ? undefined : unwrap(schema);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}
