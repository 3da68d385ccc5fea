// Load of streams: many at once, every byte compared with what it must be, or every word timed; or held open and silent.
import { quantile } from '../figures.ts';
import { Connection, type Sink } from './connection.ts';
import type { Job, JobOf, StreamsResult } from './job.ts';
import { requestBytes } from './requests.ts';
import { clockMicroseconds, stampsIn, streamFrames } from './traffic.ts';

/** A stream that says nothing for this long has failed. */
const SILENCE_MS = 30_000;
/** A word that arrives this much later than it was due has been late for whoever reads. */
const LATE_MS = 100;
/** Of a timed stream, those without a time: a role and a finish reason. */
const STILL_FRAMES = 2;
/** What a client waits that holds a stream and was told that the gateway is overloaded. */
const AGAIN_MS = 100;
/** Of the connections for one held stream. */
const MAX_FAILURES = 10;

interface Seen {
  pieces: number;
  open: number;
  peak: number;
  heard: number;
  readonly first: number[];
  readonly transit: number[];
  readonly gaps: number[];
  late: number;
  refused: number;
}

export async function streams(asked: JobOf<'streams'>): Promise<StreamsResult> {
  const { concurrency, times, ramp_ms, pace, model } = asked;
  const expected =
    model === null || pace.kind !== 'exact' ? undefined : Buffer.concat(streamFrames(model, pace.frames));
  const seen: Seen = {
    pieces: 0,
    open: 0,
    peak: 0,
    heard: performance.now(),
    first: [],
    transit: [],
    gaps: [],
    late: 0,
    refused: 0,
  };
  const watch = setInterval(() => {
    if (performance.now() - seen.heard < SILENCE_MS) return;
    console.error(`nothing came for ${SILENCE_MS} ms`);
    process.exit(1);
  }, 1_000);
  const bytes = requestBytes(asked, pace);
  await rampUp(concurrency, ramp_ms, async () => {
    const connection = new Connection(new URL(asked.url));
    for (let time = 0; time < times; time += 1) await stream(connection, bytes, expected, seen, pace.every);
    connection.destroy();
  });
  clearInterval(watch);
  const chunks = (concurrency * times - seen.refused) * pace.frames;
  const of = (values: readonly number[], share: number) =>
    values.length === 0 ? null : quantile(values, share);
  return {
    streams: concurrency * times,
    chunks,
    pieces_per_chunk: seen.pieces / chunks,
    peak: seen.peak,
    first_p50_ms: of(seen.first, 0.5),
    first_p99_ms: of(seen.first, 0.99),
    transit_p50_ms: of(seen.transit, 0.5),
    transit_p99_ms: of(seen.transit, 0.99),
    gap_p99_ms: of(seen.gaps, 0.99),
    in_time: inTime(seen, pace.frames - STILL_FRAMES),
    refused: seen.refused,
  };
}

/** Every word of a stream that was refused by an overloaded proxy is late. */
function inTime({ transit, late, refused }: Seen, words: number): number | null {
  const all = transit.length + refused * words;
  return all === 0 ? null : 1 - (late + refused * words) / all;
}

/** Resolves when every stream has its first words, and all of them stand open. */
export async function hold(asked: JobOf<'hold'>): Promise<void> {
  const bytes = requestBytes(asked, asked.pace);
  await rampUp(asked.concurrency, asked.ramp_ms, () => heldStream(asked, bytes));
}

function heldStream(asked: Job, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    let connection = new Connection(new URL(asked.url));
    let frames = 0;
    let isHeard = false;
    let failures = 0;
    const open = () => connection.request(bytes, sink);
    const sink: Sink = {
      data(piece) {
        isHeard = true;
        // A role and a word, however they are cut.
        frames += piece.toString('latin1').split('\n\n').length - 1;
        if (frames >= 2) resolve();
      },
      end(status) {
        frames = 0;
        if (status === 503) setTimeout(open, AGAIN_MS);
        else reject(new Error(`a held stream ended, with status ${status}`));
      },
      fail(error) {
        failures += 1;
        // An overloaded proxy closes connections that waited for long before it accepted them.
        if (isHeard || failures > MAX_FAILURES) return reject(error);
        connection.destroy();
        connection = new Connection(new URL(asked.url));
        setTimeout(open, AGAIN_MS);
      },
    };
    open();
  });
}

/** Runs `lane` so many times side by side; they begin evenly within `ms`. */
async function rampUp(count: number, ms: number, lane: () => Promise<void>): Promise<void> {
  const lanes = Array.from({ length: count }, async (_, index) => {
    await new Promise((resolve) => setTimeout(resolve, (index * ms) / count));
    await lane();
  });
  await Promise.all(lanes);
}

function stream(
  connection: Connection,
  bytes: Buffer,
  expected: Buffer | undefined,
  seen: Seen,
  every: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let at = 0;
    let last: number | undefined;
    /** When the next word is due, counted from the first: what made the first one late does not count again. */
    let due = 0;
    let tail = '';
    const began = clockMicroseconds();
    seen.open += 1;
    seen.peak = Math.max(seen.peak, seen.open);
    const fail = (error: Error) => {
      connection.destroy();
      reject(error);
    };
    const time = (piece: Buffer) => {
      const now = clockMicroseconds();
      for (const stamp of stampsIn(piece)) {
        if (last === undefined) {
          seen.first.push((now - began) / 1000);
          due = now;
        } else seen.gaps.push((now - last) / 1000);
        if (now - due > LATE_MS * 1000) seen.late += 1;
        due += every * 1000;
        seen.transit.push((now - stamp) / 1000);
        last = now;
      }
    };
    connection.request(bytes, {
      data(piece) {
        seen.pieces += 1;
        seen.heard = performance.now();
        if (expected === undefined) {
          time(piece);
          tail = (tail + piece.toString('latin1', Math.max(0, piece.length - 64))).slice(-64);
        } else if (!piece.equals(expected.subarray(at, at + piece.length))) {
          fail(new Error(`the stream differs from what was sent, after ${at} bytes: ${piece.toString()}`));
        }
        at += piece.length;
      },
      end(status) {
        seen.open -= 1;
        if (status === 503 && expected === undefined) {
          seen.refused += 1;
          resolve();
        } else if (status !== 200) fail(new Error(`status ${status}`));
        else if (expected !== undefined && at !== expected.length)
          fail(new Error(`${at} of ${expected.length} bytes`));
        else if (expected === undefined && !tail.includes('data: [DONE]'))
          fail(new Error(`a stream ended with ${tail}`));
        else resolve();
      },
      fail,
    });
  });
}
