// What an open stream that says nothing takes in memory, with 2,000 of them; and what is resident at rest, as operators start the gateway.
import { join } from 'node:path';
import { alternate, type Bench, MANY_FILES, warmUp } from '../bench.ts';
import { residentBytes } from '../cpu.ts';
import { rowsOf, type Sample } from '../figures.ts';
import { checkAnswer, startLoad } from '../round.ts';
import type { Section } from '../section.ts';
import { type GatewayOptions, type GatewaySubject, LAUNCHER, startGateway } from '../subjects/gateway.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const STREAMS = 2_000;
const PACE = { frames: 10, every: 10, kind: 'hold' } as const;
/** Until what ended is gone on both sides. */
const QUIET_MS = 500;
/** After the start, until what is done once everything runs is done. */
const REST_MS = 8_000;
/** Memory differs little from one process to the next. */
const MAX_ROUNDS = 3;
const roundsOf = ({ rounds }: Bench) => Math.min(rounds, MAX_ROUNDS);
let started = 0;

export const memory: Scenario = {
  id: 'memory',
  sections: ['memory', 'memory-rest'],
  async run(bench) {
    const { gateway, nginx } = bench;
    const rounds = roundsOf(bench);
    const results = await alternate('memory', [nginx, gateway], rounds, (subject) =>
      subject === gateway ? ofNewGateway(bench) : perStream(bench, subject, STREAMS),
    );
    return [
      {
        id: 'memory',
        title: `${STREAMS} idle streams`,
        note:
          `Memory of the process with ${STREAMS} open streams that have had their first word, less that before, for one stream: resident, ` +
          'and what JavaScript holds in its heap and in buffers; the greater counts, because a heap that had room before hides what is ' +
          'put there. The gateway is a new process in every round, warmed up, and collects its garbage before both readings. ' +
          'What the system keeps for sockets is not in it.',
        columns: [
          { field: 'kib_per_stream', heading: 'KiB/stream', digits: 1 },
          { field: 'resident_kib', heading: 'resident', digits: 1 },
          { field: 'held_kib', heading: 'held', digits: 1 },
          { field: 'before_mib', heading: 'MiB before', digits: 0 },
          { field: 'after_mib', heading: 'MiB with them', digits: 0 },
        ],
        rows: rowsOf(results),
      },
      await atRest(bench),
    ];
  },
};

async function atRest(bench: Bench): Promise<Section> {
  const results = await alternate('rest', [bench.gateway], roundsOf(bench), () => resident(bench));
  return {
    id: 'memory-rest',
    title: 'Resident memory',
    note:
      `Of a gateway as \`tollgate serve\` starts it: ${REST_MS / 1000} s after its first answer, and ${REST_MS / 1000} s after the last of ${STREAMS} streams has had ` +
      'its first word. Nobody asks it to collect garbage.',
    columns: [
      { field: 'rest_mb', heading: 'at rest, MB', digits: 0 },
      { field: 'streams_mb', heading: `with ${STREAMS} idle streams, MB`, digits: 0 },
    ],
    rows: rowsOf(results),
  };
}

/** Resident megabytes (10^6 bytes) of a new gateway, at rest and with idle streams. @param flags of Node */
export async function resident(bench: Bench, flags: readonly string[] = []): Promise<Sample> {
  const fresh = await newGateway(bench, { program: LAUNCHER, flags });
  await checkAnswer(fresh);
  const megabytes = async () => {
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    return fresh.pids.reduce((sum, pid) => sum + residentBytes(pid), 0) / 1e6;
  };
  const rest_mb = await megabytes();
  const load = await startLoad(bench.processes, fresh, heldStreams(STREAMS), /held \d+/);
  const streams_mb = await megabytes();
  await load.stop();
  await fresh.stop();
  return { rest_mb, streams_mb };
}

export function newGateway(
  bench: Bench,
  options: Pick<GatewayOptions, 'inside' | 'program' | 'flags'>,
): Promise<GatewaySubject> {
  started += 1;
  return startGateway(bench.processes, {
    folder: join(bench.folder, `memory-${started}`),
    upstream: bench.upstream.port,
    largeUpstream: bench.largeUpstream.port,
    files: MANY_FILES,
    ...options,
  });
}

const heldStreams = (streams: number) =>
  ({ kind: 'hold', concurrency: streams, ramp_ms: streams, pace: PACE }) as const;

/** One that has compiled what it needs, and has never had many streams, whose memory it could use again. */
export async function ofNewGateway(bench: Bench, streams = STREAMS): Promise<Sample> {
  const fresh = await newGateway(bench, { inside: true });
  await warmUp(bench.processes, fresh, 5_000);
  const sample = await perStream(bench, fresh, streams);
  await fresh.stop();
  return sample;
}

/** Of as many streams as are to be opened, in the process as it is. */
async function perStream(bench: Bench, subject: Subject, streams: number): Promise<Sample> {
  const read = async () => {
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
    const held = await subject.settle?.();
    return { held, resident: subject.pids.reduce((sum, pid) => sum + residentBytes(pid), 0) };
  };
  const before = await read();
  const load = await startLoad(bench.processes, subject, heldStreams(streams), /held \d+/);
  const after = await read();
  await load.stop();
  const mib = 2 ** 20;
  const resident = after.resident - before.resident;
  const held = (after.held ?? 0) - (before.held ?? 0);
  const each = (bytes: number) => bytes / 1024 / streams;
  return {
    kib_per_stream: each(Math.max(resident, held)),
    resident_kib: each(resident),
    held_kib: before.held === undefined ? undefined : each(held),
    before_mib: before.resident / mib,
    after_mib: after.resident / mib,
  };
}
