// One run of the bench: its subjects, its lengths, and the order of rounds. Everything is on loopback and in one temporary
// folder, and gone at the end, whatever happens.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Rounds, Sample } from './figures.ts';
import { Processes } from './processes.ts';
import { checkAnswer, requestRound, streamRound } from './round.ts';
import { startBare } from './subjects/bare.ts';
import { startUpstream, type Upstream } from './subjects/direct.ts';
import { type GatewaySubject, startGateway } from './subjects/gateway.ts';
import { nginxProgram, startNginx } from './subjects/nginx.ts';
import { startPeers } from './subjects/peers.ts';
import type { Subject, SubjectName } from './subjects/subject.ts';

/** Requests, or streams, under way at once, where a scenario does not say otherwise. */
export const CONCURRENCY = 64;
/** Files that whoever takes part in many streams may have open. */
export const MANY_FILES = 32_768;
/** The compiler takes some hundred thousand requests to settle. */
const WARM_UP_REQUESTS = 200_000;
/** A tenth of the gateway's throughput or less, so that they warm up for as long; Python and Go compile nothing meanwhile. */
const PEER_WARM_UP_REQUESTS = { portkey: 20_000, other: 1_000 };
const WARM_UP_WORDS = 250;

export interface Lengths {
  readonly rounds: number;
  /** Of a round. */
  readonly seconds: number;
}

export interface Bench extends Lengths {
  readonly processes: Processes;
  /** The temporary folder. */
  readonly folder: string;
  readonly upstream: Upstream;
  readonly largeUpstream: Upstream;
  readonly direct: Subject;
  readonly nginx: Subject;
  readonly nginxLogged: Subject;
  readonly gateway: GatewaySubject;
  /** Node with nothing on. */
  readonly bare: readonly Subject[];
  readonly peers: readonly Subject[];
}

/** Progress goes to stderr: stdout is for the figures. */
export function tell(text: string): void {
  process.stderr.write(`${text}\n`);
}

export interface BenchOptions extends Lengths {
  /** Those that are compared of Node with nothing on, by name. Default: none. */
  readonly bare?: readonly SubjectName[];
  /** Compares other gateways, too. */
  readonly peer: boolean;
  readonly warmUpRequests?: number;
  /** Called when the run is to end early. */
  readonly signal?: AbortSignal;
}

/**
 * Starts everything, checks an answer of each subject, warms the gateway up, and stops everything after `work`.
 * @throws Error when something does not start, or an answer is wrong
 */
export async function withBench<Result>(
  options: BenchOptions,
  work: (bench: Bench) => Promise<Result>,
): Promise<Result> {
  const program = await nginxProgram();
  const processes = new Processes();
  const stop = () => void processes.stopAll();
  options.signal?.addEventListener('abort', stop);
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  try {
    const upstream = await startUpstream(processes, MANY_FILES);
    const largeUpstream = await startUpstream(processes, MANY_FILES);
    const ports = { upstream: upstream.port, largeUpstream: largeUpstream.port };
    const [nginx, nginxLogged] = await startNginx(processes, {
      program,
      folder: join(folder, 'nginx'),
      ...ports,
    });
    const gateway = await startGateway(processes, {
      folder: join(folder, 'gateway'),
      files: MANY_FILES,
      ...ports,
    });
    const bare = await startBare(processes, upstream.port, options.bare ?? []);
    const peers = options.peer ? await startPeers(processes, join(folder, 'peers'), upstream.port, tell) : [];
    const { direct } = upstream;
    for (const subject of [direct, nginx, nginxLogged, gateway, ...bare]) await checkAnswer(subject);
    tell('Every answer is right. Warming up.');
    const { rounds, seconds } = options;
    const bench = { rounds, seconds, processes, folder, upstream, largeUpstream };
    const whole: Bench = { ...bench, direct, nginx, nginxLogged, gateway, bare, peers };
    await warmUp(processes, gateway, options.warmUpRequests);
    for (const subject of bare) await warmUp(processes, subject, options.warmUpRequests);
    for (const peer of peers) await warmUpPeer(processes, peer, options.warmUpRequests);
    return await work(whole);
  } finally {
    options.signal?.removeEventListener('abort', stop);
    await processes.stopAll();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One that fails is measured as it is: its rounds show whether it works. */
async function warmUpPeer(processes: Processes, peer: Subject, max: number | undefined): Promise<void> {
  const most = PEER_WARM_UP_REQUESTS[peer.name === 'portkey' ? 'portkey' : 'other'];
  try {
    await warmUp(processes, peer, Math.min(most, max ?? most));
  } catch (error) {
    tell(
      `bench: the warm-up of ${peer.name} failed: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

/** Requests, and some streams, until the compiler has seen all of it often. */
export async function warmUp(
  processes: Processes,
  subject: Subject,
  requests = WARM_UP_REQUESTS,
): Promise<void> {
  const common = { kind: 'closed', connections: CONCURRENCY, ms: 0 } as const;
  await requestRound(processes, subject, { ...common, requests, pace: null });
  const pace = { frames: 50, every: 0, kind: 'exact' } as const;
  await requestRound(processes, subject, { ...common, requests: Math.ceil(requests / 20), pace });
  const frames = Math.min(WARM_UP_WORDS, Math.ceil(requests / 40));
  const words = { frames, every: 10, kind: 'exact' } as const;
  await streamRound(processes, subject, {
    kind: 'streams',
    concurrency: CONCURRENCY,
    times: 1,
    ramp_ms: 0,
    pace: words,
  });
}

/** Every subject in every round, each second round backwards, so that what drifts does not favour the last. */
export async function alternate(
  what: string,
  subjects: readonly Subject[],
  rounds: number,
  run: (subject: Subject) => Promise<Sample>,
): Promise<Rounds> {
  const all = new Map<string, Sample[]>(subjects.map(({ name }) => [name, []]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const subject of round % 2 === 1 ? subjects : subjects.toReversed()) {
      const sample = await run(subject);
      all.get(subject.name)?.push(sample);
      const shown = Object.entries(sample)
        .filter(([, value]) => typeof value === 'number')
        .map(([field, value]) => `${field} ${Number(value).toPrecision(4)}`);
      tell(`${what} ${round}/${rounds}  ${subject.name.padEnd(17)} ${shown.join('  ')}`);
    }
  }
  return all;
}
