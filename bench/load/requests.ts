// Load of requests: as fast as answers come, or at random moments of a fixed rate. Every answer must have status 200 and the
// length that it has to have.
import { Worker } from 'node:worker_threads';
import { quantile } from '../figures.ts';
import { Connection } from './connection.ts';
import type { Job, JobOf, RequestsResult } from './job.ts';
import { Schedule } from './schedule.ts';
import { requestHead } from './sdk-request.ts';
import { clockMicroseconds, completion, type Pace, requestBody, streamFrames } from './traffic.ts';

/** A connection that waits longer for the end of an answer has failed. */
const ANSWER_MS = 30_000;
/** In which the thread of the metronome begins. */
const THREAD_MS = 200;

/** A whole request as it goes over the wire. */
export function requestBytes(asked: Job, pace?: Pace, answerBytes?: number): Buffer {
  const url = new URL(asked.url);
  const body = requestBody({
    model: asked.alias,
    ...(pace === undefined ? {} : { pace }),
    ...(asked.bytes === null ? {} : { bytes: asked.bytes }),
    ...(asked.shape === undefined ? {} : { shape: asked.shape }),
    ...(answerBytes === undefined ? {} : { answerBytes }),
  });
  const head = requestHead(url, { ...asked.headers, 'content-length': String(body.length) });
  return Buffer.concat([Buffer.from(head), body]);
}

/** One request after the other on one connection. @returns milliseconds it took */
class Lane {
  readonly #connection: Connection;
  readonly #bytes: Buffer;
  readonly #length: number | undefined;

  constructor(url: URL, bytes: Buffer, length: number | undefined) {
    this.#connection = new Connection(url);
    this.#bytes = bytes;
    this.#length = length;
  }

  /** @param done is told when the answer is whole and right, `failed` otherwise */
  ask(done: () => void, failed: (error: Error) => void): void {
    let length = 0;
    this.#connection.request(this.#bytes, {
      data: (piece) => {
        length += piece.length;
      },
      end: (status) => {
        const isRight = status === 200 && (this.#length === undefined || length === this.#length);
        if (isRight) done();
        else failed(new Error(`an answer of status ${status} and ${length} bytes`));
      },
      fail: failed,
    });
  }

  destroy(): void {
    this.#connection.destroy();
  }
}

export async function closedLoop(asked: JobOf<'closed'>): Promise<RequestsResult> {
  const { connections, ms, requests, pause_ms, model, pace, answer_bytes } = asked;
  const bytes = requestBytes(asked, pace ?? undefined, answer_bytes);
  const url = new URL(asked.url);
  const length = model === null ? undefined : answerLength(model, pace, answer_bytes);
  const took: number[] = [];
  const began = performance.now();
  const lanes = Array.from({ length: connections }, () => new Lane(url, bytes, length));
  const isOver = () => performance.now() - began >= ms && took.length >= requests;
  let lastAnswer = began;
  const watch = setInterval(() => {
    if (performance.now() - lastAnswer < ANSWER_MS) return;
    console.error(`no answer came for ${ANSWER_MS} ms`);
    process.exit(1);
  }, 1_000);
  // For who waits until load is on.
  console.error('began');
  await Promise.all(
    lanes.map(
      (lane) =>
        new Promise<void>((resolve, reject) => {
          const next = () => {
            const start = performance.now();
            lane.ask(() => {
              lastAnswer = performance.now();
              took.push(lastAnswer - start);
              if (isOver()) resolve();
              else if (pause_ms === undefined) next();
              else setTimeout(next, pause_ms);
            }, reject);
          };
          next();
        }),
    ),
  );
  clearInterval(watch);
  return summary(took, performance.now() - began);
}

function answerLength(model: string, pace: Pace | null, bytes?: number): number {
  if (pace === null) return completion(model, bytes).length;
  return Buffer.concat(streamFrames(model, pace.frames)).length;
}

export async function openLoop(asked: JobOf<'open'>): Promise<RequestsResult> {
  const { per_second, ms, warm_ms = 0, connections } = asked;
  const bytes = requestBytes(asked);
  const url = new URL(asked.url);
  const length = asked.model === null ? undefined : completion(asked.model).length;
  const lanes: Lane[] = [];
  const free: Lane[] = [];
  /** Moments at which requests were due that found no connection. */
  const waiting: number[] = [];
  let waited = 0;
  let sent = 0;
  let answered = 0;
  const took: number[] = [];
  const told = new Int32Array(new SharedArrayBuffer(4));
  const began = clockMicroseconds() + THREAD_MS * 1000;
  // Until then connections are opened and programs compiled, which is not what is measured.
  const countsFrom = began + warm_ms * 1000;
  const plan = { began, per_second, ms: warm_ms + ms };
  const metronome = new Worker(new URL('./metronome.ts', import.meta.url), { workerData: { ...plan, told } });
  const schedule = new Schedule(plan.began, plan.per_second, plan.ms);
  let due = schedule.next();
  let ended = began;
  await new Promise<void>((resolve, reject) => {
    const send = (lane: Lane, at: number) => {
      lane.ask(() => {
        ended = clockMicroseconds();
        answered += 1;
        if (at >= countsFrom) took.push((ended - at) / 1000);
        const next = waiting[waited];
        if (next === undefined) free.push(lane);
        else {
          waited += 1;
          send(lane, next);
        }
        if (due === undefined && answered === sent) resolve();
      }, reject);
    };
    const sendAt = (at: number) => {
      sent += 1;
      const lane = free.pop();
      if (lane !== undefined) send(lane, at);
      else if (lanes.length === connections) waiting.push(at);
      else {
        const added = new Lane(url, bytes, length);
        lanes.push(added);
        send(added, at);
      }
    };
    metronome.once('error', reject);
    metronome.on('message', (word: 'due' | 'end') => {
      Atomics.store(told, 0, 0);
      const now = word === 'end' ? Number.POSITIVE_INFINITY : clockMicroseconds();
      while (due !== undefined && due <= now) {
        sendAt(due);
        due = schedule.next();
      }
      if (due !== undefined) return;
      setTimeout(() => reject(new Error('answers are missing')), ANSWER_MS).unref();
      if (answered === sent) resolve();
    });
  });
  await metronome.terminate();
  for (const lane of lanes) lane.destroy();
  return { ...summary(took, (ended - countsFrom) / 1000), requests: answered };
}

/** @param took milliseconds of each request */
function summary(took: readonly number[], ms: number): RequestsResult {
  return {
    requests: took.length,
    per_second: took.length / (ms / 1000),
    p50_ms: quantile(took, 0.5),
    p99_ms: quantile(took, 0.99),
  };
}
