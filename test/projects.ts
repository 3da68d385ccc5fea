// Sorts the test files into the projects of vitest by what they import, so that a new file needs no registration.
// `unit` needs neither sockets nor processes, `system` is everything else. Files of one project share their worker's process,
// because loading the gateway anew costs a second a file; `system-isolated` is what measures its own process. What measures time against the
// work of the machine, `system-quiet`, runs behind the other system tests, beside the unit tests, one file for
// each processor.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path/posix';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'vite';

/** Modules that open sockets or start processes and threads. */
const SYSTEM_MODULES =
  /^(node:(net|http|https|http2|tls|dgram|child_process|worker_threads|cluster)|ai|ioredis|openai|pg|playwright-core|undici(\/.*)?|ws|@ai-sdk\/.*|@langchain\/.*)$/;
/** Programs, and the files that assemble the gateway out of its parts. */
const SYSTEM_FILES =
  /^(src\/(app|main)\.ts|src\/upstream\/http\/http-transport\.ts|(bench|bin|examples|tools)\/.*)$/;

/** Of the memory and the handles of this process, which are those of all files that ran in it. */
const SELF_MEASURE = /\bprocess\.(memoryUsage|getActiveResourcesInfo|cpuUsage)\b|\/garbage\.ts'/;

/** In the opening comment of a file whose measurement allows one other file at the same time. */
const QUIET = /^(\/\/.*\n)*\/\/.*\bRuns beside one other\b/;

/** Repository path → text. Undefined: no such file. */
export type Read = (file: string) => string | undefined;

export type Project = 'unit' | 'system' | 'system-isolated' | 'system-quiet';
export type Projects = Readonly<Record<Project, readonly string[]>>;

/** The test files of this repository, by project. */
export function testProjects(): Projects {
  const root = fileURLToPath(new URL('..', import.meta.url));
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' });
  const tests = files.filter((file) => file.endsWith('.test.ts')).map((file) => join('test', file));
  return sortTests(tests.sort(), (file) => readFileSync(join(root, file), 'utf8'));
}

/**
 * Follows the imports of values through `test/`. Files of `src/` are not followed: most of them can reach a socket, and the
 * guard of the unit project (`no-system.ts`) catches a test that makes them do so.
 */
export function sortTests(tests: readonly string[], read: Read): Projects {
  const importsOf = memoize((file) => valueImports(file, read(file) ?? ''));
  const needsSystem = (file: string, seen: Set<string>): boolean => {
    if (seen.has(file)) return false;
    seen.add(file);
    return importsOf(file).some((specifier) => {
      if (!specifier.startsWith('.')) return SYSTEM_MODULES.test(specifier);
      const target = normalize(join(dirname(file), specifier));
      return SYSTEM_FILES.test(target) || (/^test\/.*\.[jt]s$/.test(target) && needsSystem(target, seen));
    });
  };
  const projects = Object.groupBy(tests, (file): Project => {
    const text = read(file) ?? '';
    if (QUIET.test(text)) return 'system-quiet';
    if (SELF_MEASURE.test(text)) return 'system-isolated';
    return needsSystem(file, new Set()) ? 'system' : 'unit';
  });
  return { unit: [], system: [], 'system-isolated': [], 'system-quiet': [], ...projects };
}

/** What a file imports at run time: imports of types are erased. */
function valueImports(file: string, text: string): string[] {
  const { module } = parseSync(file, text, { lang: 'ts', sourceType: 'module' });
  const imports = module.staticImports
    .filter(({ entries }) => entries.length === 0 || entries.some(({ isType }) => !isType))
    .map(({ moduleRequest }) => moduleRequest.value);
  const exports = module.staticExports
    .flatMap(({ entries }) => entries)
    .flatMap(({ isType, moduleRequest }) =>
      isType || moduleRequest === null ? [] : [moduleRequest?.value ?? ''],
    );
  return [...imports, ...exports];
}

function memoize<T>(compute: (key: string) => T): (key: string) => T {
  const known = new Map<string, T>();
  return (key) => {
    const value = known.get(key) ?? compute(key);
    known.set(key, value);
    return value;
  };
}
