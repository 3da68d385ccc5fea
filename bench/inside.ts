// Runs inside of a gateway that the bench measures (`node --import`): collects garbage and takes CPU profiles when a line on
// stdin says so, and answers on stderr. Nothing else of the gateway is touched.
import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';

const SAMPLE_EVERY_US = 200;
const session = new Session();

async function obey(line: string): Promise<string | undefined> {
  const [word, file] = line.split(' ');
  if (word === 'settle') {
    // What finalizers let go in one round is free in the next.
    for (let round = 0; round < 5; round += 1) {
      globalThis.gc?.();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const { heapUsed, external } = process.memoryUsage();
    return `settled ${heapUsed + external}`;
  }
  if (word === 'profile') {
    session.connect();
    await session.post('Profiler.enable');
    await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_US });
    await session.post('Profiler.start');
    return 'profiling';
  }
  if (word === 'profiled' && file !== undefined) {
    const { profile } = await session.post('Profiler.stop');
    session.disconnect();
    writeFileSync(file, JSON.stringify(profile));
    return 'profiled';
  }
  return undefined;
}

process.stdin.setEncoding('utf8').on('data', (text: string) => {
  for (const line of text.split('\n').filter((each) => each !== '')) {
    void obey(line).then((done) => process.stderr.write(`inside: ${done ?? `what is ${line}?`}\n`));
  }
});
// A paused gateway ends as it always does: stdin alone does not keep it alive.
if ('unref' in process.stdin && typeof process.stdin.unref === 'function') process.stdin.unref();
