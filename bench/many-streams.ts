// 10,000 streams at once through one process, every byte compared, by itself and as slowly as one likes: for a machine that is
// emulated, where one's own allows too few open files. `node bench/many-streams.ts`; `--help` says the rest.
import { parseArgs } from 'node:util';
import { tell, withBench } from './bench.ts';
import { circumstances, loadBefore } from './machine.ts';
import { publishRun, publishText } from './publish.ts';
import { MANY_STREAMS, streamsAtOnce } from './scenarios/many-streams.ts';
import { tableOf } from './section.ts';

const USAGE = `node bench/many-streams.ts [--streams N] [--frames N] [--every MS] [--ramp MS] [--write]

  --streams N  (default ${MANY_STREAMS.streams})
  --frames N   of each stream (default ${MANY_STREAMS.frames})
  --every MS   between two frames of a stream (default ${MANY_STREAMS.every})
  --ramp MS    within which the streams begin (default ${MANY_STREAMS.ramp})
  --write      also write the figures into docs/performance.md

Needs Linux and nginx, and two open files for each stream, and some more.
`;
const NAMES = ['streams', 'frames', 'every', 'ramp'] as const;

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      streams: { type: 'string' },
      frames: { type: 'string' },
      every: { type: 'string' },
      ramp: { type: 'string' },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const asked = { ...MANY_STREAMS };
  for (const name of NAMES) {
    const value = Number(values[name] ?? asked[name]);
    if (!Number.isInteger(value) || value < 1 || value > 10_000_000)
      throw new Error(`--${name} is a whole number from 1 to 10000000`);
    asked[name] = value;
  }
  const load = loadBefore();
  const lengths = { rounds: 1, seconds: 1 };
  const section = await withBench({ ...lengths, peer: false, warmUpRequests: 64 }, (bench) =>
    streamsAtOnce(bench, asked),
  );
  process.stdout.write(`\n${tableOf(section)}\n${section.note}\n`);
  if (values.write) {
    const command = ['node bench/many-streams.ts', ...argv].join(' ');
    const where = circumstances(undefined);
    publishText('many-streams', `${tableOf(section)}\n${section.note}`, command, where);
    const isWhole = asked.streams >= MANY_STREAMS.streams;
    publishRun({ block: 'many-streams', sections: [section], command, load }, where, isWhole);
  }
}

await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
});
