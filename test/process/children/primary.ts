// A primary with short times whose workers only play one: `die` ends as soon as it begins, `hang` says that it serves and then
// does not come back to its event loop, `chat` fills the log with long lines. It says on stdout what became of the start, and its log is there too.
import { fileURLToPath } from 'node:url';
import { readConfigFile } from '../../../src/config/file.ts';
import { parseBytes } from '../../../src/config/load.ts';
import { startPrimary } from '../../../src/process/primary.ts';
import { createLogger, passOn } from '../../../src/telemetry/logger.ts';

/** Longer than the primary waits. After it a worker whose primary is gone ends. */
const HANG_MS = 5_000;

const [, script = '', role = '', file = ''] = process.argv;

if (role === 'worker') {
  const [, , , behaviour] = process.argv;
  if (behaviour === 'die') process.exit(3);
  if (behaviour === 'chat') {
    for (let line = 0; line < 40; line += 1) {
      process.stdout.write(`${JSON.stringify({ chat: `${process.pid}é`.repeat(9_000) })}\n`);
    }
  }
  process.on('message', ({ kind }: { kind: string }) => {
    if (kind !== 'begin') return;
    process.send?.({ kind: 'ready', url: 'http://127.0.0.1:1', hash: '' }, undefined, undefined, () => {
      if (behaviour === 'hang') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, HANG_MS);
    });
  });
  process.send?.({ kind: 'hello' });
} else {
  const source = readConfigFile(file);
  const logger = createLogger();
  try {
    await startPrimary({
      config: parseBytes(source.bytes, file, process.env),
      source,
      env: process.env,
      logger,
      version: 'test',
      exec: fileURLToPath(new URL(script, 'file:')),
      args: ['worker', role],
      onLine: passOn,
      times: { hung: 1_500, start: 3_000, restart: { firstMs: 500, longestMs: 60_000, calmMs: 60_000 } },
    });
    process.stdout.write('started\n');
  } catch (error) {
    process.stdout.write(`failed: ${String(error)}\n`);
    process.exit(1);
  }
}
