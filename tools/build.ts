// Builds `dist/`: the code of `src/` and of its packages in a few files, which start in a third of the time of five hundred, and what is
// no code beside them. `--packages=outside` leaves packages outside, for the published package: whoever installs it may get newer ones.
import { cpSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SOURCE = join(ROOT, 'src');
const OUT = join(ROOT, 'dist');
const NEW = join(ROOT, 'dist.new');
const ARE_PACKAGES_INSIDE = !process.argv.includes('--packages=outside');
const THREADS = ['usage/outbox/outbox-thread'];

const bundle = await rolldown({
  input: Object.fromEntries(['main', ...THREADS].map((name) => [name, join(SOURCE, `${name}.ts`)])),
  platform: 'node',
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
