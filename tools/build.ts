// Builds `dist/`: the code of `src/` and of its packages in a few files, which start in a third of the time of five hundred, and what is
// no code beside them. `--packages=outside` leaves packages outside, for the published package: whoever installs it may get newer ones.
import { cpSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CodeSplittingNameFunction, rolldown } from 'rolldown';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SOURCE = join(ROOT, 'src');
const OUT = join(ROOT, 'dist');
const NEW = join(ROOT, 'dist.new');
const ARE_PACKAGES_INSIDE = !process.argv.includes('--packages=outside');
const THREADS = ['usage/outbox/outbox-thread'];
/**
 * What `serve` loads is in one file for each of these, because a start pays for each file. A module is in that of the first which imports
 * it, so no thread and no command loads much that only `serve` needs, and `serve` loads nothing that only others need.
 */
const PARTS = [
  'package-files',
  ...THREADS,
  'cli/program/command-line',
  'config/load-config',
  'store/open',
  'cli/check-command',
  'cli/owners/keys-commands',
  'cli/usage/usage-command',
  'serve',
];

const bundle = await rolldown({
  input: Object.fromEntries(['main', ...THREADS].map((name) => [name, join(SOURCE, `${name}.ts`)])),
  platform: 'node',
  // Entries are not imported for what they export, and a part may hold one.
  preserveEntrySignatures: 'allow-extension',
  // A bare name is a package or a module of Node. Helpers of the bundler's own stay inside. Native code cannot be bundled.
  external: (id) =>
    ARE_PACKAGES_INSIDE
      ? /^(node:|(argon2|pg-native)$)/.test(id)
      : /^[@\w]/.test(id) && !id.startsWith('@oxc-project/'),
  // `pages` inline scripts whose text is a template; the newest syntax is that of the oldest Node of `engines`.
  transform: { target: 'node24' },
  cwd: ROOT,
});
// What starts meanwhile finds the earlier build whole.
rmSync(NEW, { recursive: true, force: true });
// Chunks stand beside `main.js`, where `package-files.ts` expects itself to be.
await bundle.write({
  dir: NEW,
  format: 'esm',
  chunkFileNames: '[name]-[hash].js',
  codeSplitting: {
    includeDependenciesRecursively: false,
    groups: [{ debugName: 'parts', name: namePart() }],
  },
  minify: false,
  comments: { legal: true, annotation: false, jsdoc: false },
  plugins: [{ name: 'start', renderChunk: (code) => inAscii(withLazyBuiltins(code)) }],
});
await bundle.close();
for (const file of readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((name) =>
  /\.(js|lua)$/.test(name),
)) {
  cpSync(join(SOURCE, file), join(NEW, file));
}
rmSync(OUT, { recursive: true, force: true });
renameSync(NEW, OUT);

/** @returns the name of the part that a module is in; null leaves it to the bundler */
function namePart(): CodeSplittingNameFunction {
  const reached = new Map<string, ReadonlySet<string>>();
  return (id, modules) => {
    const reach = (root: string): ReadonlySet<string> => {
      const found = reached.get(root) ?? importsOf(join(SOURCE, `${root}.ts`), modules);
      reached.set(root, found);
      return found;
    };
    const part = reach('serve').has(id) ? PARTS.find((root) => reach(root).has(id)) : undefined;
    return part === undefined ? null : basename(part);
  };
}

/** A module, and all that it imports at once. */
function importsOf(root: string, modules: Parameters<CodeSplittingNameFunction>[1]): ReadonlySet<string> {
  const found = new Set([root]);
  for (const id of found) {
    for (const each of modules.getModuleInfo(id)?.importedIds ?? []) found.add(each);
  }
  return found;
}

/**
 * Node reads all exports of a module of its own that is imported, and some of them load further modules: those of `node:http` the
 * `fetch` of Node, those of `node:util` its MIME types and differences of texts. `process.getBuiltinModule` reads none.
 */
function withLazyBuiltins(code: string): string {
  return code.replace(
    /^import (?:(\w[\w$]*)(?:, )?|\* as (\w[\w$]*))?(?:\{ (.+) \})? from "((?:node:)?[a-z_/0-9]+)";$/gm,
    (line: string, whole?: string, namespace?: string, names?: string, module = '') => {
      if (!isBuiltin(module)) return line;
      const builtin = `globalThis.process.getBuiltinModule("${module}")`;
      const name = whole ?? namespace;
      return [
        ...(name === undefined ? [] : [`const ${name} = ${builtin};`]),
        ...(names === undefined ? [] : [`const { ${names.replaceAll(' as ', ': ')} } = ${builtin};`]),
      ].join(' ');
    },
  );
}

/** V8 keeps the source, and a single character beyond Latin-1 makes it keep two bytes for each of the file. */
function inAscii(code: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return code.replace(/[\u0080-\uffff]/g, escaped);
}
