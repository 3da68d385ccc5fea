// `models.*.hedge`: what may be written there, and what the files made from the schema say of it.
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { dynamicShape } from '../../src/config/schema/config-schema.ts';
import { fieldRows } from '../../tools/configuration-tables.ts';
import { jsonSchema } from '../../tools/json-schema.ts';
import { load, placesOf } from './sample.ts';

const withHedge = (hedge: string): string =>
  `upstreams: { a: { builtin: echo }, b: { builtin: echo } }
models:
  m:
    targets: [{ upstream: a, model: x }, { upstream: b, model: x }]
${hedge && `    hedge: ${hedge}`}
`;
const validate = new Ajv({ strict: true, strictRequired: false, allowUnionTypes: true }).compile(
  jsonSchema(),
);
const accepts = (text: string): boolean => validate(parse(text));

describe('hedge', () => {
  it.each<[string, number | 'p95']>([
    ['{ after: p95 }', 'p95'],
    ['{ after: 10ms }', 10],
    ['{ after: 800ms }', 800],
    ['{ after: "2s" }', 2000],
    ['{ after: 24h }', 86_400_000],
  ])('%s', (hedge, after) => {
    expect(load(withHedge(hedge)).dynamic.models['m']?.hedge).toEqual({ after });
    expect(accepts(withHedge(hedge))).toBe(true);
  });

  it('may come from the environment', () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a reference of the configuration
    const text = withHedge('{ after: "${AFTER:-p95}" }');
    expect(load(text).dynamic.models['m']?.hedge).toEqual({ after: 'p95' });
    expect(load(text, { AFTER: '1s' }).dynamic.models['m']?.hedge).toEqual({ after: 1000 });
    expect(accepts(text)).toBe(true);
  });

  it('is off when it is left out', () => {
    expect(load(withHedge('')).dynamic.models['m']).not.toHaveProperty('hedge');
  });

  it.each([
    ['{ after: 9ms }', 'must be at least 10ms'],
    ['{ after: 25h }', 'must be at most 24h'],
    ['{ after: p99 }', 'must be p95, or a whole number with a unit, such as 800ms'],
    ['{ after: P95 }', 'must be p95, or a whole number with a unit, such as 800ms'],
    ['{ after: 800 }', 'must be p95, or a whole number with a unit, such as 800ms'],
    ['{ after: 0.5s }', 'must be p95, or a whole number with a unit, such as 800ms'],
    ['{}', 'is missing'],
    ['{ after: p95, at: 1s }', 'unknown'],
  ])('%s is refused', (hedge, reason) => {
    const [first = ''] = placesOf(withHedge(hedge));
    expect(first).toContain(reason);
  });

  it('does not change the hash of a file without it', () => {
    const { hash } = load(withHedge(''));
    expect(load(withHedge('{ after: p95 }')).hash).not.toBe(hash);
    expect(load(withHedge('{ after: 1s }')).hash).toBe(load(withHedge('{ after: 1000ms }')).hash);
  });

  it('is in the reference with its kind', () => {
    const row = fieldRows(dynamicShape).find(({ path }) => path === 'models.NAME.hedge.after');
    expect(row).toMatchObject({ kind: '`p95`, or duration, 10ms to 24h', fallback: 'required' });
  });
});
