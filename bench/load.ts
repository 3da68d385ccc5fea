// One round of load of the proxy bench: sends it from a process of its own, checks that every answer was right, and says
// what it cost the process in between. Which rounds there are, and in which order, is proxy.ts.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { cpuMicroseconds, type Processes } from './processes.ts';
import type { Subject } from './servers.ts';
import { completion, FRAME_EVERY_MS, FRAMES, requestBody } from './traffic.ts';

/** Requests, or streams, under way at once. */
export const CONCURRENCY = 64;
/** Under paced load a connection waits this long between two requests on average, in milliseconds. */
const PAUSE_MS = 16;
/** What paced load comes to, with answers that take no time. */
export const PACED_PER_SECOND = (CONCURRENCY * 1000) / PAUSE_MS;
/** What a run may take longer than planned. */
const GRACE_MS = 30_000;

export interface RequestRound {
  readonly requests: number;
  readonly per_second: number;
  /** CPU microseconds of the proxy for one request; undefined where there is no proxy. */
  readonly cpu_us: number | undefined;
  /** Milliseconds. */
  readonly p50_ms: number;
  readonly p99_ms: number;
}

export interface StreamRound {
  readonly streams: number;
  readonly chunks: number;
  /** CPU microseconds of the proxy for one chunk; what a stream costs to begin is in it. */
  readonly cpu_us: number | undefined;
  /** Pieces in which the client got them, for one chunk: well below 1, chunks arrived together and were cheaper than they are alone. */
  readonly pieces_per_chunk: number;
}

/** Durations and latencies are in microseconds. */
const wrkResult = z.object({
  requests: z.number(),
  duration: z.number(),
  refused: z.number(),
  broken: z.number(),
  p50: z.number(),
  p99: z.number(),
});

const streamResult = z.object({
  streams: z.number(),
  chunks: z.number(),
  pieces: z.number(),
  bytes: z.number(),
});

/**
 * Asks once, and compares the answer with what it must be, byte for byte.
 * @throws Error if it is another
 */
export async function checkAnswer(subject: Subject, key: string): Promise<void> {
  const response = await fetch(subject.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: requestBody(false),
    signal: AbortSignal.timeout(10_000),
  });
  const body = Buffer.from(await response.arrayBuffer());
  if (response.status !== 200) throw new Error(`${subject.name} answered ${response.status}: ${body}`);
  if (!body.equals(completion(subject.model))) {
    throw new Error(`the answer of ${subject.name} is not what the upstream sent: ${body}`);
  }
}

/**
 * Writes the script that wrk runs, with the key in it.
 * @param pace `paced`: about `PACED_PER_SECOND`, whoever is asked; `full`: as much as can be had
 * @returns its path
 */
export function writeWrkScript(folder: string, key: string, pace: 'full' | 'paced'): string {
  const file = join(folder, `wrk-${pace}.lua`);
  const delay = `function delay() return math.random(0, ${2 * PAUSE_MS}) end\n`;
  const script = `wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer ${key}"
wrk.body = [==[${requestBody(false)}]==]
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\\nresult {"requests":%d,"duration":%d,"refused":%d,"broken":%d,"p50":%.1f,"p99":%.1f}\\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
${pace === 'paced' ? delay : ''}`;
  writeFileSync(file, script, { mode: 0o600 });
  return file;
}

/**
 * @param wrk path of the program
 * @throws Error if an answer had an error status, or none came
 */
export async function requestRound(
  processes: Processes,
  wrk: string,
  script: string,
  subject: Subject,
  seconds: number,
): Promise<RequestRound> {
  subject.emptyLog?.();
  const args = ['-t1', `-c${CONCURRENCY}`, `-d${seconds}s`, '--timeout', '10s', '-s', script, subject.url];
  const [out, spent] = await costOf(subject, () => processes.run(wrk, args, seconds * 1000 + GRACE_MS));
  const result = wrkResult.parse(JSON.parse(/^result (.+)$/m.exec(out)?.[1] ?? 'null'));
  const { requests, refused, broken } = result;
  if (refused > 0 || broken > 0 || requests === 0) {
    throw new Error(
      `${subject.name}: of ${requests} requests ${refused} were refused, and ${broken} connections broke`,
    );
  }
  return {
    requests,
    per_second: requests / (result.duration / 1e6),
    cpu_us: spent === undefined ? undefined : spent / requests,
    p50_ms: result.p50 / 1000,
    p99_ms: result.p99 / 1000,
  };
}

/**
 * @param seconds about how long; streams are not cut short
 * @throws Error if a stream was not, byte for byte, what it must be
 */
export async function streamRound(
  processes: Processes,
  subject: Subject,
  key: string,
  seconds: number,
): Promise<StreamRound> {
  const script = fileURLToPath(new URL('./stream-client.ts', import.meta.url));
  const each = (FRAMES * FRAME_EVERY_MS) / 1000;
  const times = Math.max(1, Math.round(seconds / each));
  const args = [script, subject.url, key, subject.model, String(CONCURRENCY), String(times)];
  const [out, spent] = await costOf(subject, () =>
    processes.run(process.execPath, args, times * each * 1000 + GRACE_MS),
  );
  const { streams, chunks, pieces } = streamResult.parse(JSON.parse(out));
  return {
    streams,
    chunks,
    cpu_us: spent === undefined ? undefined : spent / chunks,
    pieces_per_chunk: pieces / chunks,
  };
}

/**
 * What `work` returns, and the CPU microseconds that the subject's process used meanwhile.
 * @throws Error, with the subject's name, if it fails or the process has ended
 */
async function costOf<Result>(
  { name, pid }: Subject,
  work: () => Promise<Result>,
): Promise<[Result, number | undefined]> {
  try {
    const before = pid === undefined ? 0 : cpuMicroseconds(pid);
    const result = await work();
    return [result, pid === undefined ? undefined : cpuMicroseconds(pid) - before];
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`load on ${name} failed: ${why}`, { cause });
  }
}
