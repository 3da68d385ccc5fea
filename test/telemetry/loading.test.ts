// OpenTelemetry costs nothing where it is not configured: its modules are not loaded. And what a process logs right before its end.
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { closedPort } from '../helpers/closed-port.ts';
import { configText } from '../helpers/gateway.ts';
import { tempDir } from '../helpers/wait.ts';

const CHILD = fileURLToPath(new URL('./children/loaded.ts', import.meta.url));

async function loadedWith(env: Record<string, string>): Promise<unknown> {
  await using directory = await tempDir();
  const config = directory.file('config.yaml');
  await writeFile(config, configText({}));
  const { stderr } = await promisify(execFile)(process.execPath, [CHILD, config], {
    env: { PATH: process.env['PATH'] ?? '', TEST_DIR: directory.path, ...env },
    timeout: 60_000,
  });
  return JSON.parse(stderr.trim());
}

test('without an endpoint OpenTelemetry is not loaded, except for the API that prom-client imports', async () => {
  expect(await loadedWith({})).toEqual({ status: 200, packages: ['api'] });
});

test('with an endpoint OpenTelemetry is loaded', async () => {
  const loaded = await loadedWith({
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await closedPort()}`,
    OTEL_EXPORTER_OTLP_TIMEOUT: '100',
  });
  expect(loaded).toMatchObject({
    status: 200,
    packages: expect.arrayContaining(['api', 'exporter-trace-otlp-proto', 'sdk-trace']),
  });
});

test('what a process logs right before it exits is written', async () => {
  const logger = new URL('../../src/telemetry/log/logger.ts', import.meta.url).href;
  const program = `import { createLogger } from '${logger}'; createLogger().info('the last line'); process.exit();`;
  const words = ['--input-type=module', '--eval', program];
  const { stdout } = await promisify(execFile)(process.execPath, words, { timeout: 60_000 });
  expect(JSON.parse(stdout)).toMatchObject({ msg: 'the last line' });
});
