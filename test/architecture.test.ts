// The layout that CONTRIBUTING.md promises, held against the source: imports go down, names mean something, and no
// file steps around the compiler. Each rule is also shown to fail on a small invented tree.
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Finding, inspect, LAYERS, MAX_FILES, MAX_LINES } from './helpers/source-rules.ts';

const SRC = new URL('../src/', import.meta.url);

function realSources(): Map<string, string> {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
  return new Map(files.sort().map((file) => [file, readFileSync(new URL(file, SRC), 'utf8')]));
}

const show = (findings: readonly Finding[]): string[] =>
  findings.map((each) => `${each.rule}: ${each.file}: ${each.detail}`);

describe('the source tree', () => {
  const sources = realSources();

  test('is really being read', () => {
    expect(sources.size).toBeGreaterThan(10);
    expect(sources.has('errors.ts')).toBe(true);
  });

  test('follows the rules', () => {
    expect(show(inspect(sources))).toEqual([]);
  });

  test('has a layer for each of its folders', () => {
    const folders = [...sources.keys()].map((file) => file.split('/')[0] ?? file);
    expect(LAYERS.flat()).toEqual(expect.arrayContaining([...new Set(folders)]));
  });
});

/** The rules that a tree of these files breaks. Every file opens with a comment unless the test says otherwise. */
function broken(files: Record<string, string>, opening = '// A file.\n'): string[] {
  const findings = inspect(new Map(Object.entries(files).map(([name, text]) => [name, opening + text])));
  return findings.map((each) => each.rule);
}

const EMPTY = 'export const x = 1;';

describe('each rule can fail', () => {
  test.each([
    ['a static import', "import { x } from '../proxy/b.ts';"],
    ['a type import', "import type { X } from '../proxy/b.ts';"],
    ['an import for its effect', "import '../proxy/b.ts';"],
    ['an export from', "export { x } from '../proxy/b.ts';"],
    ['an export of all', "export * from '../proxy/b.ts';"],
    ['a dynamic import', "export const load = () => import('../proxy/b.ts');"],
    ['a type in place', "export type X = import('../proxy/b.ts').X;"],
  ])('an upward edge by %s', (_name, text) => {
    expect(broken({ 'auth/a.ts': text, 'proxy/b.ts': EMPTY })).toEqual(['layer']);
  });

  test.each([
    ['proxy to billing', 'proxy/a.ts', 'billing/b.ts'],
    ['auth to limits', 'auth/a.ts', 'limits/b.ts'],
    ['http to store', 'http/a.ts', 'store/b.ts'],
    ['cli to app', 'cli/a.ts', 'app.ts'],
    ['app to main', 'app.ts', 'main.ts'],
    ['errors to config', 'errors.ts', 'config/b.ts'],
  ])('an edge across or up: %s', (_name, from, to) => {
    const specifier = from.includes('/') ? `../${to}` : `./${to}`;
    expect(broken({ [from]: `import '${specifier}';`, [to]: EMPTY })).toEqual(['layer']);
  });

  test.each([
    ['main to cli', 'main.ts', './cli/b.ts', 'cli/b.ts'],
    ['app to proxy', 'app.ts', './proxy/b.ts', 'proxy/b.ts'],
    ['proxy to config', 'proxy/a.ts', '../config/b.ts', 'config/b.ts'],
    ['within a folder', 'auth/a.ts', './b.ts', 'auth/b.ts'],
  ])('a downward edge is none: %s', (_name, from, specifier, to) => {
    expect(broken({ [from]: `import '${specifier}';`, [to]: EMPTY })).toEqual([]);
  });

  test.each([
    ['a room above', 'proxy/answer/a.ts', '../attempts/b.ts', 'proxy/attempts/b.ts'],
    ['a room beside', 'proxy/attempts/a.ts', '../objects/b.ts', 'proxy/objects/b.ts'],
    ['the file on top of its folder', 'store/sql/a.ts', '../open.ts', 'store/open.ts'],
    ['a contract to what keeps it', 'upstream/transport.ts', './http/b.ts', 'upstream/http/b.ts'],
  ])('an import within a folder of %s', (_name, from, specifier, to) => {
    expect(broken({ [from]: `import '${specifier}';`, [to]: EMPTY })).toEqual(['layer']);
  });

  test('an import of a room below is allowed', () => {
    expect(broken({ 'proxy/attempts/a.ts': "import '../answer/b.ts';", 'proxy/answer/b.ts': EMPTY })).toEqual(
      [],
    );
    expect(broken({ 'store/open.ts': "import './sql/b.ts';", 'store/sql/b.ts': EMPTY })).toEqual([]);
  });

  test('a folder that is no room', () => {
    expect(broken({ 'proxy/stuff/a.ts': EMPTY })).toEqual(['layer']);
    expect(broken({ 'limits/stuff/a.ts': EMPTY })).toEqual(['layer']);
  });

  test('a folder with too many files', () => {
    const files = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`auth/a${index}.ts`, EMPTY]));
    expect(broken(files(MAX_FILES))).toEqual([]);
    expect(broken(files(MAX_FILES + 1))).toEqual(['folder']);
  });

  test('two types of one name', () => {
    const text = 'export interface Answer { readonly x: 1 }';
    expect(broken({ 'auth/a.ts': text, 'limits/b.ts': text })).toEqual(['export']);
  });

  test.each([
    'export class Occupant {}',
    'export class SlabPool {}',
    'export function refuse() {}',
    'export type Ask = 1;',
    'export interface KeyDeed { readonly x: 1 }',
  ])('a word of ours where the field has a term: %s', (text) => {
    expect(broken({ 'auth/a.ts': text })).toEqual(['export']);
  });

  test('the same as the name of a file', () => {
    expect(broken({ 'auth/ledger.ts': EMPTY })).toEqual(['name']);
  });

  test('a longer name that is a term itself', () => {
    expect(
      broken({ 'auth/a.ts': 'export class KnownKey {}', 'auth/account-page.ts': 'export const x = 1;' }),
    ).toEqual([]);
  });

  test('two files of one name', () => {
    expect(broken({ 'auth/a.ts': EMPTY, 'limits/a.ts': '' })).toEqual(['folder']);
  });

  test('words in comments and strings are no imports', () => {
    const text = "// import '../proxy/b.ts';\nexport const x = `import '../proxy/b.ts'`;";
    expect(broken({ 'auth/a.ts': text, 'proxy/b.ts': EMPTY })).toEqual([]);
  });

  test('a folder that is in no layer', () => {
    expect(broken({ 'stuff/a.ts': EMPTY })).toEqual(['layer']);
  });

  test('an import of a file that is not there', () => {
    expect(broken({ 'auth/a.ts': "import './b.ts';" })).toEqual(['missing']);
  });

  test('a ring of imports, of two and of three', () => {
    expect(broken({ 'auth/a.ts': "import './b.ts';", 'auth/b.ts': "import './a.ts';" })).toEqual(['cycle']);
    const ring = {
      'auth/a.ts': "import './b.ts';",
      'auth/b.ts': "import type { X } from './c.ts';",
      'auth/c.ts': "import './a.ts';",
    };
    expect(broken(ring)).toEqual(['cycle']);
    const diamond = {
      'auth/a.ts': "import './b.ts'; import './c.ts';",
      'auth/b.ts': "import './d.ts';",
      'auth/c.ts': "import './d.ts';",
      'auth/d.ts': EMPTY,
    };
    expect(broken(diamond)).toEqual([]);
  });

  test.each(['auth/utils.ts', 'auth/key-helper.ts', 'auth/key.service.ts', 'auth/manager.ts'])(
    'a name that says nothing: %s',
    (file) => {
      expect(broken({ [file]: EMPTY })).toEqual(['name']);
    },
  );

  test('a folder whose name says nothing', () => {
    expect(broken({ 'auth/common/a.ts': EMPTY })).toEqual(['name', 'layer']);
  });

  test('a name that only contains such a word is fine', () => {
    expect(broken({ 'auth/miscount.ts': EMPTY, 'auth/utility-bill.ts': EMPTY })).toEqual([]);
  });

  test('a file that is too long', () => {
    const lines = (count: number): string => '//\n'.repeat(count - 1);
    expect(broken({ 'auth/a.ts': lines(MAX_LINES) })).toEqual([]);
    expect(broken({ 'auth/a.ts': lines(MAX_LINES + 1) })).toEqual(['size']);
  });

  test('a file without an opening comment', () => {
    expect(broken({ 'auth/a.ts': EMPTY }, '')).toEqual(['opening']);
    expect(broken({ 'auth/a.ts': EMPTY }, '\n// Late.\n')).toEqual(['opening']);
    expect(broken({ 'main.ts': EMPTY }, '#!/usr/bin/env node\n// Starts it all.\n')).toEqual([]);
    expect(broken({ 'auth/a.ts': EMPTY }, '/** Owns x. */\n')).toEqual([]);
  });

  test.each([
    ['any', 'export const f = (x: any) => x;', 'any'],
    ['any deep in a type', 'export type X = Map<string, Array<any>>;', 'any'],
    ['a cast by way of unknown', 'export const x = 1 as unknown as string;', 'double-cast'],
    ['a non-null assertion', 'export const f = (x?: string) => x!.length;', 'non-null'],
    ['state of a module', 'let x = 1;\nexport const f = () => (x += 1);', 'state'],
    ['an undocumented member', 'export const f = (x: X) => x.shouldKeepAlive;', 'internal'],
    ['an internal member', 'export const f = (x: X) => x?._handle;', 'internal'],
    ['@ts-ignore', '// @ts-ignore\nexport const x: string = 1;', 'ts-comment'],
    ['@ts-expect-error', '/* @ts-expect-error */ export const x: string = 1;', 'ts-comment'],
    ['console', "console.log('x');", 'console'],
    ['a bare timer that rejects', 'setTimeout(() => reject(new Error()), 5);', 'timer'],
    ['a bare timer that blames', "setTimeout(() => end(new GatewayError('x')), 5);", 'timer'],
    ['a signal of a bare timer', 'AbortSignal.timeout(5);', 'timer'],
    ['a syntax error', 'export const = 1;', 'syntax'],
  ])('%s', (_name, text, rule) => {
    expect(broken({ 'auth/a.ts': text })).toEqual([rule]);
  });

  test.each([
    ['a member', 'export const f = (exchange) => exchange.access.attempts;'],
    ['a member that is also written', 'export const f = (exchange) => { exchange.access.attempts += 1; };'],
    ['a member written where it is not there', 'export const f = (x) => { x.access.ttft_ms ??= 1; };'],
    ['a member of the record by itself', 'export const f = ({ access }) => access.model ?? 1;'],
    ['all of it', 'export const f = (exchange, log) => log(exchange.access);'],
    ['members taken apart', 'export const f = ({ access }) => { const { model } = access; return model; };'],
    ['members taken apart at once', 'export const f = (x) => { const { model } = x.access; return model; };'],
  ])('a read of the access-log record: %s', (_name, text) => {
    expect(broken({ 'proxy/a.ts': text })).toEqual(['log-record']);
    expect(broken({ 'process/a.ts': text, 'telemetry/log/b.ts': text })).toEqual([]);
  });

  test('writing the access-log record is no read', () => {
    const text =
      'export const f = (x) => { const { access } = x; access.model = 1; x.access.tier = 2; x.access = {}; };';
    expect(broken({ 'proxy/a.ts': text })).toEqual([]);
  });

  test('the same words where they are harmless', () => {
    const text =
      "export const x = 'any!' as const; // any as unknown as string\nexport const y = (x as string) !== 'a';";
    expect(broken({ 'auth/a.ts': text })).toEqual([]);
    expect(broken({ 'cli/a.ts': "console.log('x');", 'main.ts': "console.error('x');" })).toEqual([]);
  });
});
