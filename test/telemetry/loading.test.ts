// What is not configured costs nothing: its packages are not loaded. And what a process logs right before its end.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { closedPort } from '../helpers/closed-port.ts';
import { configText } from '../helpers/gateway.ts';
import { tempDir } from '../helpers/wait.ts';

const PACKAGE_FILE = new URL('../../package.json', import.meta.url);
const PACKAGE = z.object({ dependencies: z.record(z.string(), z.string()) });
const LOADED = z.object({ status: z.number(), packages: z.array(z.string()) });
const CHILD = fileURLToPath(new URL('./children/loaded.ts', import.meta.url));
const BUILT = fileURLToPath(new URL('./children/built.ts', import.meta.url));

async function loadedWith(env: Record<string, string>, child = CHILD): Promise<unknown> {
  await using directory = await tempDir();
  const config = directory.file('config.yaml');
  await writeFile(config, configText({}));
  const { stderr } = await promisify(execFile)(process.execPath, [child, config], {
    env: { PATH: process.env['PATH'] ?? '', TEST_DIR: directory.path, ...env },
    timeout: 60_000,
  });
  return JSON.parse(stderr.trim());
}

test('a gateway without Redis, PostgreSQL, tracing and fetched credentials loads none of their packages', async () => {
  const { status, packages } = LOADED.parse(await loadedWith({}));
  const { dependencies } = PACKAGE.parse(JSON.parse(readFileSync(PACKAGE_FILE, 'utf8')));
  expect(status).toBe(200);
  expect(packages.filter((name) => name in dependencies)).toEqual([
    // prom-client imports it.
    '@opentelemetry/api',
    'argon2',
    'kysely',
    'pino',
    'prom-client',
    'undici',
    'yaml',
    'zod',
  ]);
});

test('a built gateway serves without the modules of Node that it does not need', async () => {
  expect(await loadedWith({}, BUILT)).toEqual(['http', 'zlib']);
});

test('with an endpoint OpenTelemetry is loaded', async () => {
  const loaded = await loadedWith({
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await closedPort()}`,
    OTEL_EXPORTER_OTLP_TIMEOUT: '100',
  });
  expect(loaded).toMatchObject({
    status: 200,
    packages: expect.arrayContaining([
      '@opentelemetry/exporter-trace-otlp-proto',
      '@opentelemetry/sdk-trace',
    ]),
  });
});

test('what a process logs right before it exits is written', async () => {
  const logger = new URL('../../src/telemetry/log/logger.ts', import.meta.url).href;
  const program = `import { createLogger } from '${logger}'; createLogger().info('the last line'); process.exit();`;
  const words = ['--input-type=module', '--eval', program];
  const { stdout } = await promisify(execFile)(process.execPath, words, { timeout: 60_000 });
  expect(JSON.parse(stdout)).toMatchObject({ msg: 'the last line' });
});
