// Only the address parsers and the file that opens stores know the kinds of stores, so another kind is a folder of its own and
// its registration in these two.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const SRC = new URL('../../src/', import.meta.url);
const OWN = /^store\/(sqlite|postgres)\//;

test('no file outside its folder checks the kind of a store or imports one', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
  const knowing = files.filter((file) => {
    const text = readFileSync(new URL(file, SRC), 'utf8');
    return !OWN.test(file) && /'(sqlite|postgres)'|from '[./a-z-]*\/(sqlite|postgres)\//.test(text);
  });
  // The outbox file is a SQLite database itself.
  expect(knowing.sort()).toEqual([
    'config/schema/addresses.ts',
    'store/open.ts',
    'usage/outbox/outbox-database.ts',
    'usage/outbox/outbox-file.ts',
  ]);
});
