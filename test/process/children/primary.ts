// A primary with short timeouts and stand-in workers (played-worker.ts). It prints the result of the start and its log on
// stdout.
import { fileURLToPath } from 'node:url';
import { parseBytes } from '../../../src/config/load-config.ts';
import { readConfigFile } from '../../../src/config/source/config-file.ts';
import { ReferencedFiles } from '../../../src/config/source/referenced-files.ts';
import { startPrimary } from '../../../src/process/primary.ts';
import { createLogger, writeWorkerLines } from '../../../src/telemetry/log/logger.ts';

const [, , role = '', file = ''] = process.argv;
const source = readConfigFile(file);
const config = parseBytes(source.bytes, file, process.env);
try {
  await startPrimary({
    config,
    count: Number(config.static.workers),
    source,
    files: new ReferencedFiles(file),
    env: process.env,
    logger: createLogger(),
    version: 'test',
    exec: fileURLToPath(new URL('./played-worker.ts', import.meta.url)),
    args: [role],
    onLines: writeWorkerLines,
    times: {
      hung: 1_500,
      start: role === 'die' ? 4_000 : 60_000,
      restart: { firstMs: 500, maxMs: 60_000, resetMs: 60_000 },
    },
  });
  process.stdout.write('started\n');
} catch (error) {
  process.stdout.write(`failed: ${String(error)}\n`);
  process.exit(1);
}
