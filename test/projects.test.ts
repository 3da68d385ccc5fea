// Which project a test file falls into, and that the guard of the unit project refuses what the imports do not show.
import { expect, test } from 'vitest';
import { sortTests, testProjects } from './projects.ts';

/** In two parts, so that this file is none of them. */
const MEASURES_ITSELF = ['process', 'memoryUsage();'].join('.');
const NEEDS_PROCESS = "import { spawn } from 'node:child_process';";

test.each([
  ['nothing else', '', 'unit'],
  ['a file of src', "import { scan } from '../src/proxy/scan.ts';", 'unit'],
  ['a type of a socket', "import type { Socket } from 'node:net';", 'unit'],
  ['types in braces', "import { type Socket, type Server } from 'node:net';", 'unit'],
  ['a socket', "import { connect } from 'node:net';", 'system'],
  ['a socket besides types', "import { connect, type Socket } from 'node:net';", 'system'],
  ['a module for its effect', "import 'node:http';", 'system'],
  ['an export', "export { connect } from 'node:net';", 'system'],
  ['an SDK', "import OpenAI from 'openai';", 'system'],
  ['the gateway', "import { startApp } from '../src/app.ts';", 'system'],
  ['a helper that needs a process', "import { start } from './helpers/a.ts';", 'system'],
  ['a helper of such a helper', "import { start } from './helpers/b.ts';", 'system'],
  ['a type of such a helper', "import type { Started } from './helpers/b.ts';", 'unit'],
  ['a ring of helpers', "import { x } from './helpers/ring.ts';", 'unit'],
  ['a socket, and the memory of the process', `import 'node:net';\n${MEASURES_ITSELF}`, 'system-isolated'],
  ['the memory of the process', MEASURES_ITSELF, 'system-isolated'],
  [
    'the time, as its opening comment says',
    "// A test.\n// Runs beside one other: it measures.\nimport 'node:net';",
    'system-quiet',
  ],
  ['what it says further below alone', "import 'node:net';\n// Runs beside one other", 'system'],
])('a test that imports %s', (_name, text, project) => {
  const files = new Map([
    ['test/a.test.ts', text],
    ['test/helpers/a.ts', NEEDS_PROCESS],
    ['test/helpers/b.ts', "export * from './a.ts';"],
    ['test/helpers/ring.ts', "import '../a.test.ts';"],
  ]);
  const projects = sortTests(['test/a.test.ts'], (file) => files.get(file));
  expect(projects).toMatchObject({ [project]: ['test/a.test.ts'] });
  expect(Object.values(projects).flat()).toHaveLength(1);
});

test('the real tests are in all projects, each in one', () => {
  const { unit, system, 'system-isolated': isolated, 'system-quiet': quiet } = testProjects();
  expect(unit).toContain('test/errors.test.ts');
  expect(system).toContain('test/e2e/keys.test.ts');
  expect(isolated).toContain('test/http/body.test.ts');
  expect(quiet).toContain('test/proxy/resilience-attempts.test.ts');
  const all = [...unit, ...system, ...isolated, ...quiet];
  expect(new Set(all).size).toBe(all.length);
});

test.each([
  ['a connection', () => process.getBuiltinModule('node:net').connect(1)],
  ['a TLS connection', () => process.getBuiltinModule('node:tls').connect(1)],
  ['a request', () => process.getBuiltinModule('node:http').get('http://127.0.0.1:1')],
  ['a listener', () => process.getBuiltinModule('node:http').createServer().listen(0)],
  ['a datagram', () => process.getBuiltinModule('node:dgram').createSocket('udp4').bind(0)],
  ['a process', () => process.getBuiltinModule('node:child_process').spawn('true')],
  ['a process that is waited for', () => process.getBuiltinModule('node:child_process').execFileSync('true')],
])('a unit test fails on %s', (_name, act) => {
  expect(act).toThrow('a unit test ');
});

test('a unit test fails on fetch', async () => {
  const error = await fetch('http://127.0.0.1:9999').catch((reason: unknown) => reason);
  expect(String(error instanceof Error ? error.cause : error)).toContain('a unit test opens a connection');
});
