// Generates the tables of docs/configuration.md from the schema: each field with kind, default and description.
// `node tools/configuration-tables.ts docs/configuration.md` writes them into the page.
import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { dynamicShape, staticShape, TIERS } from '../src/config/schema/config-schema.ts';
import { childOf, fieldMetadata, fieldNames, unwrap } from '../src/config/schema/field-kinds.ts';

type Schema = z.core.$ZodType;

export interface Row {
  /** `upstreams.NAME.timeouts.connect`, `models.NAME.targets[].weight`, `tiers.TIER.concurrency` */
  readonly path: string;
  readonly kind: string;
  /** As written in YAML; empty for an optional field, `required` for a required one. */
  readonly fallback: string;
  readonly description: string;
}

function kindOf(schema: Schema): string {
  const inner = unwrap(schema);
  if (inner instanceof z.ZodEnum) return inner.options.map((option) => `\`${option}\``).join(', ');
  if (inner instanceof z.ZodArray) return 'list';
  if (inner instanceof z.ZodUnion) return inner.options.map(kindOf).join(', or ');
  return fieldMetadata.get(inner)?.words ?? 'mapping';
}

/** The default of a field, looked up below transforms. */
function fallbackOf(schema: Schema): string {
  if (schema instanceof z.ZodPipe) return fallbackOf(schema.in);
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodExactOptional) return '';
  if (!(schema instanceof z.ZodPrefault)) return 'required';
  const value: unknown = schema.def.defaultValue;
  if (typeof value === 'string') return `\`${value}\``;
  if (Array.isArray(value)) return value.length === 0 ? '' : `\`[${value.join(', ')}]\``;
  return '';
}

function rowsOf(schema: Schema, path: string): readonly Row[] {
  const description = z.globalRegistry.get(schema)?.description ?? '';
  const row = { path, kind: kindOf(schema), fallback: fallbackOf(schema), description };
  const inner = unwrap(schema);
  // The three tiers have the same fields, so one set of rows is enough.
  const isByTier = fieldNames(inner)[0] === TIERS[0];
  const names = isByTier ? fieldNames(inner).slice(0, 1) : fieldNames(inner);
  const below = names.flatMap((field) => {
    const child = childOf(inner, field);
    const step = isByTier ? 'TIER' : field;
    return child === undefined ? [] : rowsOf(child, `${path}.${step}`);
  });
  const inside =
    inner instanceof z.ZodRecord
      ? rowsOf(inner.valueType, `${path}.NAME`)
      : inner instanceof z.ZodArray
        ? rowsOf(inner.element, `${path}[]`)
        : [];
  const [entry, ...fields] = inside;
  if (entry === undefined) return [row, ...below];
  // The row of the entry itself would add nothing to the rows of its mapping and fields.
  return fields.length > 0 ? [row, ...fields] : [{ ...row, kind: `${row.kind} of ${entry.kind}` }];
}

/** All fields below a shape, in schema order. */
export function fieldRows(shape: Readonly<Record<string, Schema>>): readonly Row[] {
  return Object.entries(shape).flatMap(([name, schema]) => rowsOf(schema, name));
}

function table(rows: readonly Row[]): string {
  return [
    '| Field | Kind | Default | Description |',
    '|---|---|---|---|',
    ...rows.map(
      ({ path, kind, fallback, description }) => `| \`${path}\` | ${kind} | ${fallback} | ${description} |`,
    ),
  ].join('\n');
}

const SECTIONS = [
  ['static', staticShape],
  ['dynamic', dynamicShape],
] as const;

/** @returns the page with the tables between its markers (`<!-- fields static -->` … `<!-- end -->`) regenerated */
export function fillReference(page: string): string {
  return SECTIONS.reduce((text, [marker, shape]) => {
    const begin = `<!-- fields ${marker} -->`;
    const from = text.indexOf(begin);
    const to = text.indexOf('<!-- end -->', from);
    if (from === -1 || to === -1) throw new Error(`the page has no markers for the ${marker} fields`);
    return `${text.slice(0, from)}${begin}\n\n${table(fieldRows(shape))}\n\n${text.slice(to)}`;
  }, page);
}

if (import.meta.main) {
  const [, , page] = process.argv;
  if (page === undefined) throw new Error('usage: node tools/configuration-tables.ts docs/configuration.md');
  writeFileSync(page, fillReference(readFileSync(page, 'utf8')));
}
