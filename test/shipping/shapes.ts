// Words to write strict JSON Schemas with: an object knows all its fields. For files of which no engine is at hand to ask.
import { Ajv } from 'ajv';

export type Shape = Readonly<Record<string, unknown>>;
type Fields = Readonly<Record<string, Shape>>;

/** An object of these fields and no others; the first ones it must have. */
export function object(required: Fields, optional: Fields = {}): Shape {
  return {
    type: 'object',
    properties: { ...required, ...optional },
    required: Object.keys(required),
    additionalProperties: false,
  };
}

export const list = (items: Shape, minItems = 1): Shape => ({ type: 'array', items, minItems });
export const map = (values: Shape, names = '^[\\w./-]+$'): Shape => ({
  type: 'object',
  propertyNames: { pattern: names },
  additionalProperties: values,
});
export const oneOf = (...values: readonly (string | number | boolean)[]): Shape => ({ enum: [...values] });
export const matching = (pattern: RegExp): Shape => ({ type: 'string', pattern: pattern.source });
export const either = (...shapes: readonly Shape[]): Shape => ({ anyOf: [...shapes] });
export const whole = (minimum: number, maximum = 2 ** 31): Shape => ({ type: 'integer', minimum, maximum });

export const text: Shape = { type: 'string', minLength: 1 };
export const flag: Shape = { type: 'boolean' };
export const port: Shape = whole(1, 65_535);

/** What is wrong with a value, a line each; empty when nothing is. */
export function faultsOf(shape: Shape, value: unknown): readonly string[] {
  const ajv = new Ajv({ allErrors: true, strict: true, strictTypes: false, strictRequired: false });
  const validate = ajv.compile(shape);
  if (validate(value)) return [];
  return (validate.errors ?? []).map(
    ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
  );
}
