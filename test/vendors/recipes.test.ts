// The recipes of examples/vendors and docs/vendors.md: every recipe is valid, has a fixture and a section, and the page's table of errors
// is that of the fixtures.
import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { classify, refusalReason } from '../../src/upstream/error-class.ts';
import { readErrorAnswer } from '../../src/wire/error-answer.ts';
import { jsonSchema } from '../../tools/json-schema.ts';
import { runCommand } from '../helpers/gateway.ts';
import { RECIPE_ENV, RECIPES, recipePath, recipeText } from './recipe.ts';
import type { VendorError, VendorFixture } from './vendor-fixture.ts';
import { errorsOf, VENDORS } from './vendors.ts';

const PAGE = readFileSync(new URL('../../docs/vendors.md', import.meta.url), 'utf8');
const validate = new Ajv({ strict: true, strictRequired: false, allowUnionTypes: true }).compile(
  jsonSchema(),
);

describe.each(RECIPES)('examples/vendors/%s.yaml', (name) => {
  const text = recipeText(name);

  test('passes `tollgate check` without a warning', async () => {
    const { code, stdout, stderr } = await runCommand(['check', '--config', recipePath(name)], {
      ...RECIPE_ENV,
    });
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('is valid');
    expect(stdout).not.toContain('warnings');
  });

  test('names in its comment each variable that it needs, and is valid for an editor', () => {
    expect(text).toMatch(/^# yaml-language-server: \$schema=\.\.\/\.\.\/config\.schema\.json\n/);
    expect(validate(parse(text)), JSON.stringify(validate.errors)).toBe(true);
    const [comment = ''] = text.split(/\n\n/);
    for (const [, variable = ''] of text.matchAll(/\$\{([A-Z_]+)\}/g))
      if (!isCommentedOut(text, variable)) expect(comment).toContain(variable);
  });

  test('has a fixture, and a row and a section on the page', () => {
    expect(VENDORS.map(({ recipe }) => recipe)).toContain(name);
    const [, title = '', anchor = ''] =
      new RegExp(`^\\| \\[([^\\]]+)\\]\\(#([\\w-]+)\\) \\| \\[${name}\\.yaml\\]`, 'm').exec(PAGE) ?? [];
    expect(PAGE).toContain(`\n## ${title}\n`);
    expect(anchor).toBe(title.toLowerCase().replaceAll(' ', '-'));
  });
});

test('every fixture has a recipe', () => {
  expect(VENDORS.map(({ recipe }) => recipe).toSorted()).toEqual(RECIPES.toSorted());
});

const REASONS: Partial<Record<VendorError['kind'], string>> = {
  'context length': 'context_length_exceeded',
  'content filter': 'content_filter',
  'rate limit': 'rate_limited',
  quota: 'insufficient_quota',
};

describe.each(VENDORS)('$vendor', (vendor) => {
  test.each(vendor.errors)('$status, $kind: has the reason for a fallback, or none', (error) => {
    const { status, body, headers, kind } = error;
    const answer = readErrorAnswer(status, Buffer.from(body));
    expect(refusalReason(answer, classify(status, answer), headers?.['x-amzn-errortype'])).toBe(
      REASONS[kind],
    );
  });
});

const COLUMNS = [
  ['key or permission refused', ['credential', 'permission']],
  ['account empty', ['quota']],
  ['model unknown', ['model']],
  ['parameter', ['parameter']],
  ['prompt too long', ['context length']],
  ['content filter', ['content filter']],
  ['rate limit', ['rate limit']],
  ['overloaded, failed', ['overload', 'failure']],
] as const satisfies readonly (readonly [string, readonly VendorError['kind'][]])[];

test('the table of errors on the page is that of the fixtures', () => {
  const title = ({ recipe }: VendorFixture): string =>
    new RegExp(`^\\| (\\[[^\\]]+\\]\\(#[\\w-]+\\)) \\| \\[${recipe}\\.yaml\\]`, 'm').exec(PAGE)?.[1] ?? '';
  const cell = (vendor: VendorFixture, kinds: readonly VendorError['kind'][]): string => {
    const found = errorsOf(vendor).filter(({ kind }) => kinds.includes(kind));
    const statuses = found.map(({ status, seen }) => `${status}${typeof seen === 'object' ? '*' : ''}`);
    return statuses.length === 0 ? '–' : [...new Set(statuses)].toSorted().join(', ');
  };
  const rows = [
    ['vendor', ...COLUMNS.map(([name]) => name)],
    Array.from({ length: COLUMNS.length + 1 }, () => '---'),
    ...VENDORS.map((vendor) => [title(vendor), ...COLUMNS.map(([, kinds]) => cell(vendor, kinds))]),
  ];
  const table = rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  expect(PAGE).toContain(`<!-- vendor errors -->\n${table}\n<!-- end -->`);
});

/** Whether it only stands in a comment, for those who need it. */
function isCommentedOut(text: string, variable: string): boolean {
  return text.split('\n').every((line) => !line.replace(/#.*/, '').includes(`\${${variable}}`));
}
