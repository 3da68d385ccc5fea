// config.schema.json, for completion and checks in editors: the zod source as JSON Schema. Editors read YAML with numbers,
// booleans and null; what they accept here is what the gateway accepts.
import { z } from 'zod';
import { fileSchema } from './config-schema.ts';
import { natures } from './field-kinds.ts';

type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };
type JsonObject = Record<string, Json>;

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Defaults are written as in YAML text; an editor wants the value: `"200"` is 200, `{}` says nothing. */
function tidyDefault({ default: fallback, ...schema }: JsonObject): JsonObject {
  if (fallback === undefined || (isObject(fallback) && Object.keys(fallback).length === 0)) return schema;
  const kinds = Array.isArray(schema['anyOf'])
    ? schema['anyOf'].map((kind: Json) => (isObject(kind) ? kind['type'] : ''))
    : [];
  const scalar = kinds.some((kind) => kind === 'integer' || kind === 'number' || kind === 'boolean');
  return { ...schema, default: scalar && typeof fallback === 'string' ? JSON.parse(fallback) : fallback };
}

/** A field that may be left out may also stand there without a value. */
function orNull({ description, default: fallback, ...schema }: JsonObject): JsonObject {
  const beside = {
    ...(description === undefined ? {} : { description }),
    ...(fallback === undefined ? {} : { default: fallback }),
  };
  const { anyOf } = schema;
  return { ...beside, anyOf: [...(Array.isArray(anyOf) ? anyOf : [schema]), { type: 'null' }] };
}

function tidy(schema: JsonObject): JsonObject {
  const out = tidyDefault(schema);
  if (Array.isArray(out['enum'])) {
    // A reference may stand for one of the words.
    const { enum: words, type: _, ...beside } = out;
    return {
      ...beside,
      anyOf: [
        { type: 'string', enum: words ?? [] },
        { type: 'string', pattern: '\\$\\{' },
      ],
    };
  }
  const { properties, additionalProperties, items, required } = out;
  const needed = new Set(Array.isArray(required) ? required : []);
  if (isObject(properties)) {
    out['properties'] = Object.fromEntries(
      Object.entries(properties).map(([name, field]) => {
        const inner = isObject(field) ? tidy(field) : {};
        return [name, needed.has(name) ? inner : orNull(inner)];
      }),
    );
  }
  if (isObject(additionalProperties)) out['additionalProperties'] = tidy(additionalProperties);
  if (isObject(items)) out['items'] = tidy(items);
  return out;
}

/** The JSON Schema (draft 7, which editors know best) of config.yaml. */
export function jsonSchema(): JsonObject {
  const generated = z.toJSONSchema(fileSchema, {
    io: 'input',
    target: 'draft-7',
    reused: 'inline',
    override: ({ zodSchema, jsonSchema: target }) => {
      const nature = natures.get(zodSchema);
      if (nature?.json !== undefined) delete target.type;
      Object.assign(target, nature?.json, nature?.extra);
    },
  });
  // Through text, so that what is left is JSON and nothing of zod's.
  const plain: Json = JSON.parse(JSON.stringify(generated));
  const { $schema = '', ...rest } = isObject(plain) ? tidy(plain) : {};
  return { $schema, title: 'Configuration of Tollgate', ...rest };
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
