// The load generator, a process of its own: takes one job as JSON in its argument, prints one line of JSON and exits 1 if
// anything was not exactly right. It measures nobody's CPU time.
import { type Job, job } from './job.ts';
import { closedLoop, openLoop } from './requests.ts';
import { hold, streams } from './streams.ts';

async function run(asked: Job): Promise<object> {
  switch (asked.kind) {
    case 'closed':
      return closedLoop(asked);
    case 'open':
      return openLoop(asked);
    case 'streams':
      return streams(asked);
    case 'hold': {
      await hold(asked);
      console.log(`held ${asked.concurrency}`);
      // Until the end of stdin, below.
      return new Promise(() => {});
    }
  }
}

process.stdin.resume().once('end', () => process.exit(0));
try {
  const result = await run(job.parse(JSON.parse(process.argv[2] ?? 'null')));
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
