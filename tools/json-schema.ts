// Generates config.schema.json, for completion and validation in editors, from the zod schema. Editors parse YAML numbers and booleans;
// the schema accepts what the gateway accepts.
import { z } from 'zod';
import { fileSchema } from '../src/config/schema/config-schema.ts';
import { fieldMetadata } from '../src/config/schema/field-kinds.ts';

type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };
type JsonObject = Record<string, Json>;

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Converts a default from YAML text to its value (`"200"` to 200), and drops `{}`. */
function tidyDefault({ default: fallback, ...schema }: JsonObject): JsonObject {
  if (fallback === undefined || (isObject(fallback) && Object.keys(fallback).length === 0)) return schema;
  const kinds = Array.isArray(schema['anyOf'])
    ? schema['anyOf'].map((kind: Json) => (isObject(kind) ? kind['type'] : ''))
    : [];
  const scalar = kinds.some((kind) => kind === 'integer' || kind === 'number' || kind === 'boolean');
  return { ...schema, default: scalar && typeof fallback === 'string' ? JSON.parse(fallback) : fallback };
}

function tidy(schema: JsonObject): JsonObject {
  const out = tidyDefault(schema);
  if (Array.isArray(out['enum'])) {
    // A reference may expand to one of the words.
    const { enum: words, type: _, ...beside } = out;
    return {
      ...beside,
      anyOf: [
        { type: 'string', enum: words ?? [] },
        { type: 'string', pattern: '\\$\\{' },
      ],
    };
  }
  // The forms of a field that takes several.
  if (Array.isArray(out['anyOf']))
    out['anyOf'] = out['anyOf'].map((form: Json) => (isObject(form) ? tidy(form) : form));
  const { properties, additionalProperties, items } = out;
  if (isObject(properties))
    out['properties'] = Object.fromEntries(
      Object.entries(properties).map(([name, field]) => [name, isObject(field) ? tidy(field) : {}]),
    );
  if (isObject(additionalProperties)) out['additionalProperties'] = tidy(additionalProperties);
  if (isObject(items)) out['items'] = tidy(items);
  return out;
}

/** The JSON Schema of config.yaml, in draft 7, which editors support best. */
export function jsonSchema(): JsonObject {
  const generated = z.toJSONSchema(fileSchema, {
    io: 'input',
    target: 'draft-7',
    reused: 'inline',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema: target }) => {
      const metadata = fieldMetadata.get(zodSchema);
      if (metadata?.json !== undefined) delete target.type;
      Object.assign(target, metadata?.json, metadata?.extra);
    },
  });
  // Via text, to drop zod's non-JSON properties.
  const plain: Json = JSON.parse(JSON.stringify(generated));
  const { $schema = '', ...rest } = isObject(plain) ? tidy(plain) : {};
  return { $schema, title: 'Configuration of Tollgate', ...rest };
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
