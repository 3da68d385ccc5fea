// The field kinds of the configuration. Values reach zod as the text of the file (yaml-tree.ts), so each kind parses text. Beside
// the parser it has its JSON Schema, and whether excerpts may show its value.
import { z } from 'zod';
import {
  accepted,
  readAmount,
  readBoolean,
  readDecimal,
  readDuration,
  readInteger,
  readSize,
  rejected,
  type ScalarResult,
} from './units.ts';

/** Whether an excerpt may show a value: as it is, only when short, with user, password and query of its URL masked, or never. */
export type Shown = 'plain' | 'short' | 'url' | 'never';

interface FieldMetadata {
  readonly shown?: Shown;
  /** Name of the kind, for docs/configuration.md. */
  readonly words?: string;
  /** JSON Schema of the value; it replaces zod's, which only says that it is text. */
  readonly json?: Readonly<Record<string, unknown>>;
  /** For the key of a mapping: the fault of a name, or undefined. */
  readonly problem?: (name: string) => string | undefined;
  /** For the key of a mapping: whether the name may be shown. */
  readonly shows?: (name: string, empty: boolean) => boolean;
  /** JSON Schema in addition to zod's. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** Metadata by schema instance, for json-schema.ts, configuration-tables.ts and visible-text.ts. */
export const fieldMetadata = z.registry<FieldMetadata>();

/** A `${` anywhere: editors accept any reference, because they cannot expand it. */
const REFERENCE = '\\$\\{';

/** A scalar that a reader parses. */
export const leaf = <T>(metadata: FieldMetadata, reader: (text: string) => ScalarResult<T>) =>
  z
    .string()
    .register(fieldMetadata, metadata)
    .transform((text, context): T => {
      const reading = reader(text);
      if (reading.ok) return reading.value;
      context.addIssue({ code: 'custom', message: reading.fault });
      return z.NEVER;
    });

/** A scalar that excerpts show only when it is short. @param json as for `leaf` */
export const shortLeaf = <T>(
  words: string,
  json: NonNullable<FieldMetadata['json']>,
  reader: (text: string) => ScalarResult<T>,
) => leaf({ shown: 'short', words, json }, reader);

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

const NUMBERS = {
  integer: { words: 'whole number', digits: '\\d+', read: readInteger },
  number: { words: 'number', digits: '\\d+(\\.\\d+)?', read: readDecimal },
} as const;

const numberOf = (type: keyof typeof NUMBERS) => (min: number, max: number) => {
  const { words, digits, read } = NUMBERS[type];
  const json = numeric(type, min, max, `^${digits}$`);
  return shortLeaf(`${words}, ${range(min, max)}`, json, bounded(read, min, max, String));
};

const numberOr =
  (type: keyof typeof NUMBERS) =>
  <W extends string>(word: W, min: number, max: number) => {
    const { words, digits, read } = NUMBERS[type];
    const form = `\`${word}\`, or a ${words}, ${range(min, max)}`;
    const json = numeric(type, min, max, `^(${word}|${digits})$`);
    return shortLeaf(form, json, (text): ScalarResult<number | W> => {
      const reading = text === word ? accepted(word) : bounded(read, min, max, String)(text);
      return reading.ok ? reading : rejected(`must be ${form}`);
    });
  };

export const integer = numberOf('integer');
export const decimal = numberOf('number');
/** A number, or one special word, which is returned as it is. */
export const integerOr = numberOr('integer');
export const decimalOr = numberOr('number');

/** A share of a budget. */
export const share = () => {
  const [min, max] = [0.000_001, 0.999_999];
  const inBounds = bounded(readDecimal, min, max, String);
  return shortLeaf(
    `number, ${min.toFixed(6)} to ${max}`,
    numeric('number', min, max, '^\\d+(\\.\\d+)?$'),
    (text) => {
      const reading = inBounds(text);
      return reading.ok ? reading : rejected('must be a share between 0 and 1, such as 0.8 for 80%');
    },
  );
};

/** An amount of money with at most six decimals, read as millionths. @param max in whole units of the currency */
export const amount = (max: number) =>
  shortLeaf(
    `amount, 0 to ${max}`,
    numeric('number', 0, max, '^\\d+(\\.\\d{1,6})?$'),
    bounded(readAmount, 0, max * 1e6, (value) => String(value / 1e6)),
  );

export const flag = () =>
  shortLeaf(
    '`true` or `false`',
    { anyOf: [{ type: 'boolean' }, { type: 'string', pattern: `^(true|false)$|${REFERENCE}` }] },
    readBoolean,
  );

/** Maximum duration of a wait. Node's timers overflow at 2^31 ms. */
export const MAX_DURATION = '24h';

/** `min` and `max` are in configuration syntax, such as `10ms`. */
const between = (reader: (text: string) => ScalarResult<number>, min: string, max: string) => {
  const [low, high] = [reader(min), reader(max)];
  if (!low.ok || !high.ok) throw new TypeError(`not a quantity: ${min} or ${max}`);
  return bounded(reader, low.value, high.value, (value) => (value === low.value ? min : max));
};

const patternOf = (pattern: string) => ({ type: 'string', pattern: `${pattern}|${REFERENCE}` });

/** Written with a unit, read as milliseconds. */
export const duration = (min: string, max: string) =>
  shortLeaf(`duration, ${min} to ${max}`, patternOf('^\\d+(ms|s|m|h|d)$'), between(readDuration, min, max));

/** A duration, or one special word, which is returned as it is. */
export const durationOr = <W extends string>(word: W, min: string, max: string) => {
  const inBounds = between(readDuration, min, max);
  return shortLeaf(
    `\`${word}\`, or duration, ${min} to ${max}`,
    patternOf(`^(${word}|\\d+(ms|s|m|h|d))$`),
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
export const size = (min: string, max: string) =>
  shortLeaf(`size, ${min} to ${max}`, patternOf('^\\d+(B|[KMG]i?B)$'), between(readSize, min, max));

const ANY_SCALAR = { type: ['string', 'number', 'boolean'] };

/** Free text, kept as written: `1.10`, `on` and `2023-05-15` stay text. */
export const text = (reader: (text: string) => ScalarResult<string> = accepted) =>
  leaf({ shown: 'plain', words: 'text', json: ANY_SCALAR }, (value) =>
    value === '' ? rejected('must not be empty') : reader(value),
  );

/** An address, parsed by a reader of addresses.ts. */
export const address = <T>(reader: (text: string) => ScalarResult<T>, pattern: string) =>
  leaf({ shown: 'url', words: 'URL', json: patternOf(pattern) }, (value) =>
    value === '' ? rejected('must not be empty') : reader(value),
  );

/** RFC 9110, 5.5: a header value, without obs-text, which no vendor's credential contains. */
const HEADER_VALUE = /^[\t\x20-\x7e]+$/;

/** A secret value. It must be valid in a header, wherever it is used. */
export const credential = () =>
  leaf({ shown: 'never', words: 'credential', json: ANY_SCALAR }, (value) => {
    if (value.trim() === '') return rejected('is a credential and must not be empty');
    return HEADER_VALUE.test(value)
      ? accepted(value)
      : rejected(
          'has a character that is not allowed in an HTTP header (only visible ASCII, space and tab are)',
        );
  });

/** Any text, never shown: query parameters are often credentials. */
export const hiddenText = (reader: (text: string) => ScalarResult<string> = accepted) =>
  leaf({ shown: 'never', words: 'text', json: ANY_SCALAR }, reader);

/** A value of any kind, as JSON. */
export interface JsonValue {
  readonly json: string;
  /** Part of it is from the environment or a file, so it is never shown. */
  readonly isHidden: boolean;
}

/** Or why a value cannot be JSON. */
export type JsonReading = JsonValue | { readonly fault: string };

const isReading = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && ('json' in value || 'fault' in value);

/** Any value. load-config.ts reads it as JSON from the file, where a number differs from a text of digits. */
export const anyValue = () =>
  z
    .custom<JsonReading>(isReading)
    .register(fieldMetadata, { words: 'any value' })
    .transform((reading, context): JsonValue => {
      if (!('fault' in reading)) return reading;
      context.addIssue({ code: 'custom', message: reading.fault });
      return z.NEVER;
    });

/** A field that may be left out: the output does not have it then, or has the default, which is given as text. */
export const optional = z.exactOptional;
export const withDefault = z.prefault;

/** A mapping with exactly these fields. */
export const section = <T extends z.core.$ZodLooseShape>(shape: T) => z.strictObject(shape);

/**
 * The key of a mapping with names chosen by the operator. zod accepts any name, because it skips the value of an invalid one;
 * visible-text.ts checks the names.
 *
 * @param problem the fault of a name, or undefined
 * @param shows whether a message may show a name, given whether its value is empty: a key without a value may be a credential
 *   with a missing colon
 */
export const name = (
  problem: (text: string) => string | undefined,
  shows: (text: string, empty: boolean) => boolean,
) => z.string().register(fieldMetadata, { problem, shows });

/** A mapping with names chosen by the operator. Its output has no prototype, so `constructor` is not an entry. */
export const mapping = <K extends z.ZodString, V extends z.core.$ZodType>(key: K, value: V) =>
  z
    .record(key, value)
    .transform((entries): Record<string, z.output<V>> => Object.assign(Object.create(null), entries));

/** The schema without its optional, default and transform wrappers. */
export function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodExactOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault
  )
    return unwrap(schema.unwrap());
  return schema instanceof z.ZodPipe ? unwrap(schema.in) : schema;
}

/** Of a field that takes several forms, such as one item or a list, the schema of this form, unwrapped. */
export function optionOf(
  schema: z.core.$ZodType | undefined,
  form: 'leaf' | 'list' | 'branch' | 'blank',
): z.core.$ZodType | undefined {
  const inner = schema === undefined ? undefined : unwrap(schema);
  if (!(inner instanceof z.ZodUnion)) return inner;
  return inner.options.map(unwrap).find((option) => {
    if (form === 'list') return option instanceof z.ZodArray;
    return (option instanceof z.ZodObject || option instanceof z.ZodRecord) === (form === 'branch');
  });
}

/** The schema of a field, entry or item; undefined if there is none. */
export function childOf(schema: z.core.$ZodType | undefined, step: PropertyKey): z.core.$ZodType | undefined {
  const inner = optionOf(schema, typeof step === 'number' ? 'list' : 'branch');
  if (inner instanceof z.ZodObject) {
    const shape: z.core.$ZodLooseShape = inner.shape;
    return typeof step === 'string' && Object.hasOwn(shape, step) ? shape[step] : undefined;
  }
  if (inner instanceof z.ZodRecord) return inner.valueType;
  return inner instanceof z.ZodArray ? inner.element : undefined;
}

/** The field names of a section, or of a mapping with certain keys; empty for any other schema. */
export function fieldNames(schema: z.core.$ZodType | undefined): readonly string[] {
  const inner = optionOf(schema, 'branch');
  if (inner instanceof z.ZodRecord && inner.keyType instanceof z.ZodEnum)
    return inner.keyType.options.map(String);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}
