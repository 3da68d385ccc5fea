// One round of load on one subject: sends it from a process of its own, and says what the answers and the subject's processes
// were like meanwhile. Which rounds there are, and in which order, is the scenarios'.
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { cpuMicroseconds } from './cpu.ts';
import type { Sample } from './figures.ts';
import { type Job, type JobOf, requestsResult, streamsResult } from './load/job.ts';
import { completion, LARGE_ALIAS, requestBody } from './load/traffic.ts';
import type { Processes, Started } from './processes.ts';
import type { Subject } from './subjects/subject.ts';

const LOAD = fileURLToPath(new URL('./load/main.ts', import.meta.url));
/** What a run may take longer than planned. */
const GRACE_MS = 5 * 60_000;
/** A round in which a request was rejected is repeated: on a busy machine a gateway does that. Bytes that differ fail the run. */
const REJECTED = /status 5\d\d|ECONNRESET/;
const MAX_REPEATS = 2;
const REPEAT_AFTER_MS = 1_000;

/** What a job asks for, besides whom. */
type Asked<Kind extends Job['kind']> = Omit<JobOf<Kind>, 'url' | 'headers' | 'alias' | 'model' | 'bytes'> & {
  /** Sends bodies of about this length, to the upstream for large ones. */
  readonly bytes?: number;
};

/** What is large goes to the upstream for that. */
function jobFor(
  subject: Subject,
  { bytes, answer_bytes }: { readonly bytes?: number; readonly answer_bytes?: number | undefined },
) {
  const isLarge = bytes !== undefined || answer_bytes !== undefined;
  const { url, alias } = isLarge ? (subject.large ?? subject) : subject;
  const { headers, model } = subject;
  // The gateway names the model as the client did.
  const answers = model !== null && alias === LARGE_ALIAS ? LARGE_ALIAS : model;
  return { url, alias, headers, model: answers, bytes: bytes ?? null };
}

/**
 * Asks once, and compares the answer with what it must be, byte for byte.
 * @throws Error if it is another
 */
export async function checkAnswer(subject: Subject): Promise<void> {
  const response = await fetch(subject.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...subject.headers },
    body: requestBody({ model: subject.alias }),
    signal: AbortSignal.timeout(GRACE_MS),
  });
  const body = Buffer.from(await response.arrayBuffer());
  if (response.status !== 200) throw new Error(`${subject.name} answered ${response.status}: ${body}`);
  if (subject.model !== null && !body.equals(completion(subject.model))) {
    throw new Error(`the answer of ${subject.name} is not what the upstream sent: ${body}`);
  }
}

/**
 * `requests`, `per_second`, `cpu_us` for one request, `p50_ms`, `p99_ms`.
 * @param among starts the load generator: a command and its first words (see `Apart`)
 */
export async function requestRound(
  processes: Processes,
  subject: Subject,
  asked: Asked<'closed'> | Asked<'open'>,
  among: readonly string[] = [],
): Promise<Sample> {
  const { bytes, ...rest } = asked;
  const job: Job = { ...jobFor(subject, asked), ...rest };
  const [out, cpu] = await repeated(subject, () => run(processes, job, asked.ms, among));
  const result = requestsResult.parse(JSON.parse(out));
  if (result.requests === 0) throw new Error(`${subject.name} answered nothing`);
  return { ...result, cpu_us: cpu === undefined ? undefined : cpu / result.requests };
}

/** What `streamsResult` has, and `cpu_us` for one chunk: what a stream costs to begin is in it. */
export async function streamRound(
  processes: Processes,
  subject: Subject,
  asked: Asked<'streams'>,
): Promise<Sample> {
  const job: Job = { ...jobFor(subject, asked), ...asked };
  const ms = asked.ramp_ms + asked.times * asked.pace.frames * asked.pace.every;
  const [out, cpu] = await repeated(subject, () => run(processes, job, ms));
  const result = streamsResult.parse(JSON.parse(out));
  return { ...result, cpu_us: cpu === undefined ? undefined : cpu / result.chunks };
}

/** Load that goes on until it is stopped. Resolves when it has said `ready`. */
export async function startLoad(
  processes: Processes,
  subject: Subject,
  asked: Asked<'hold'> | Asked<'closed'>,
  ready: RegExp | undefined,
): Promise<Started> {
  const { bytes, ...rest } = asked;
  const job: Job = { ...jobFor(subject, asked), ...rest };
  return processes.start(process.execPath, [LOAD, JSON.stringify(job)], {
    files: filesOf(job),
    ...(ready === undefined ? {} : { ready, deadline: GRACE_MS }),
  });
}

function run(processes: Processes, job: Job, ms: number, among: readonly string[] = []): Promise<string> {
  const [program = process.execPath, ...words] = [...among, process.execPath, LOAD, JSON.stringify(job)];
  return processes.run(program, words, ms + GRACE_MS, { files: filesOf(job) });
}

function filesOf(job: Job): number {
  return job.kind === 'streams' || job.kind === 'hold' ? job.concurrency + 1_000 : 4_096;
}

/** As `costOf`. */
async function repeated(subject: Subject, work: () => Promise<string>) {
  for (let number = 1; ; number += 1) {
    try {
      return await costOf(subject, work);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!REJECTED.test(why) || number > MAX_REPEATS) throw error;
      process.stderr.write(`a round is repeated: ${why}\n`);
      await setTimeout(REPEAT_AFTER_MS);
    }
  }
}

/**
 * What `work` returns, and the CPU microseconds that the subject's processes used meanwhile.
 * @throws Error, with the subject's name, if it fails or a process has ended
 */
export async function costOf<Result>(
  { name, pids, emptyLog }: Pick<Subject, 'name' | 'pids' | 'emptyLog'>,
  work: () => Promise<Result>,
): Promise<[Result, number | undefined]> {
  emptyLog?.();
  const used = () => pids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
  try {
    const before = used();
    const result = await work();
    return [result, pids.length === 0 ? undefined : used() - before];
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`load on ${name} failed: ${why}`, { cause });
  }
}
