// What the load generator is asked to do, and what it says afterwards: the words between the bench and its process.
import { z } from 'zod';
import { SHAPES } from './traffic.ts';

const pace = z.object({
  frames: z.number(),
  every: z.number(),
  kind: z.enum(['exact', 'timed', 'hold']),
});

const common = {
  url: z.string(),
  /** Of the request, besides those that the SDK sends, or instead of them. */
  headers: z.record(z.string(), z.string()),
  /** The model's name in the request. */
  alias: z.string(),
  /** The model's name in the answers; null where they are not the upstream's byte for byte, so that their length is not checked. */
  model: z.string().nullable(),
  /** About the length of the request's body; null for the usual one. */
  bytes: z.number().nullable(),
  /** What a body with `bytes` consists of. */
  shape: z.enum(SHAPES).optional(),
};

export const job = z.discriminatedUnion('kind', [
  /** Every connection asks again as soon as it is answered, for so many milliseconds and at least so many requests. */
  z.object({
    ...common,
    kind: z.literal('closed'),
    connections: z.number(),
    ms: z.number(),
    requests: z.number(),
    /** Rest of a connection between an answer and its next request. */
    pause_ms: z.number().optional(),
    /** Length of the answer to ask for; without it the usual one. */
    answer_bytes: z.number().optional(),
    /** Ask for streams; null asks for JSON answers. */
    pace: pace.nullable(),
  }),
  /**
   * Requests at random moments of a fixed rate, whoever has been answered; latency counts from the moment that was due. Those of
   * the first `warm_ms` milliseconds, which come in addition, are sent and not timed. What is due while all `connections` are in
   * use waits for one, and that counts.
   */
  z.object({
    ...common,
    kind: z.literal('open'),
    per_second: z.number(),
    ms: z.number(),
    warm_ms: z.number().optional(),
    connections: z.number(),
  }),
  /** So many streams at once, each lane so many one after the other; lanes begin within `ramp_ms`. */
  z.object({
    ...common,
    kind: z.literal('streams'),
    concurrency: z.number(),
    times: z.number(),
    ramp_ms: z.number(),
    pace,
  }),
  /** Opens streams that stand still, says `held N`, and keeps them until its stdin ends. */
  z.object({ ...common, kind: z.literal('hold'), concurrency: z.number(), ramp_ms: z.number(), pace }),
]);

export type Job = z.infer<typeof job>;
export type JobOf<Kind extends Job['kind']> = Extract<Job, { readonly kind: Kind }>;

/** Latencies in milliseconds. */
export const requestsResult = z.object({
  /** All that were answered. */
  requests: z.number(),
  /** And of those that were timed: */
  per_second: z.number(),
  p50_ms: z.number(),
  p99_ms: z.number(),
});

/** Times in milliseconds; null where the stream was not timed. */
export const streamsResult = z.object({
  streams: z.number(),
  chunks: z.number(),
  /** Pieces in which chunks came, for one chunk: well below 1, chunks arrived together and were cheaper than alone. */
  pieces_per_chunk: z.number(),
  /** Most streams that were open at once. */
  peak: z.number(),
  /** From the request to the first word. */
  first_p50_ms: z.number().nullable(),
  first_p99_ms: z.number().nullable(),
  /** From the moment that the upstream wrote a word to its arrival. */
  transit_p50_ms: z.number().nullable(),
  transit_p99_ms: z.number().nullable(),
  /** Between two words of a stream. */
  gap_p99_ms: z.number().nullable(),
  /** Share of the words that came no more than 100 ms after they were due by the pace of their stream; none of a refused one did. */
  in_time: z.number().nullable(),
  /** Streams of timed words that were answered 503. */
  refused: z.number(),
});

export type RequestsResult = z.infer<typeof requestsResult>;
export type StreamsResult = z.infer<typeof streamsResult>;
