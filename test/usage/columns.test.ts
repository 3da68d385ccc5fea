// A usage column is named in four source files: where it is read from a report, in the list of sums, in its migration, and where
// reports name it. Everything between takes the columns from these tables.
import { readdirSync, readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { USAGE_SUMS, usageSums } from '../../src/store/usage-record.ts';
import { publicSums } from '../../src/usage/records/public-sums.ts';
import { rowsOf } from '../../src/usage/records/request-usage.ts';
import { eachTokenPart, NO_USAGE, TOKEN_PARTS, tokenParts } from '../../src/wire/token-usage.ts';
import { tempDir } from '../helpers/wait.ts';
import { record } from './samples.ts';

const SRC = new URL('../../src/', import.meta.url);
/** The files to change for a new column. */
const TABLES = [
  'store/schema/schema-usage.ts',
  'store/usage-record.ts',
  'usage/records/public-sums.ts',
  'wire/token-usage.ts',
];
/** Files with a use of this one column: a file of days, a chart, an attribute of spans, a fake report, a price, and a short way for usual reports. */
const USES = [
  'billing/pages/browser/account.js',
  'billing/pages/browser/charts.js',
  'telemetry/traces/otlp-tracer.ts',
  'upstream/echo/echo-responses.ts',
  'usage/records/token-price.ts',
  'wire/usual-usage.ts',
];
/** The column in SQL, in code, and in reports. */
const NAMED = /^ {2}'reasoning',$|\.reasoning\b|\breasoning: (\d|\w+\(|\{)|\breasoning_tokens\b/m;

test('four source files name a column', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.[jt]s$/.test(file),
  );
  const naming = files.filter((file) => NAMED.test(readFileSync(new URL(file, SRC), 'utf8')));
  expect(naming.filter((file) => !USES.includes(file)).sort()).toEqual(TABLES);
});

test('every token count of a report gets into the sums and into reports', () => {
  const names = Object.values(TOKEN_PARTS).map(({ name }) => name);
  const details = Object.fromEntries(names.map((name, index) => [name, index + 1]));
  const parts = tokenParts({ prompt_tokens_details: details, completion_tokens_details: details });
  expect(Object.values(parts).sort()).toEqual(names.map((_, index) => index + 1));
  const [row] = rowsOf(record({ usage: { ...NO_USAGE, prompt: 100, completion: 100, ...parts } }));
  expect(row?.sums).toMatchObject(parts);
  expect(Object.keys(publicSums(usageSums(() => 1)))).toEqual(expect.arrayContaining(names));
  expect(eachTokenPart((part) => USAGE_SUMS.indexOf(part))).not.toContain(-1);
});

test('the table has a column for every sum', async () => {
  await using dir = await tempDir();
  const path = dir.file('keys.db');
  await (await openStore({ kind: 'sqlite', path })).close();
  const database = new DatabaseSync(path);
  const columns = database.prepare('select name from pragma_table_info(?)').all('usage_hours');
  database.close();
  expect(columns.map(({ name }) => name)).toEqual(expect.arrayContaining([...USAGE_SUMS]));
});
