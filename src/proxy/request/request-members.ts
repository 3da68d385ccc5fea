// What endpoints want of the members of a request, and what a scan of a body finds.
import type { Span } from '../../wire/json/json.ts';
import { MemberNames } from '../../wire/json/json-bytes.ts';
import type { FoundMembers } from '../routes/watched-members.ts';

/** The facts of a request body. Offsets are bytes in the body. */
export interface RequestScan {
  readonly model: string;
  /** The token of the model with its quotes, or of a null (which means the default); null where the request has none. */
  readonly modelSpan: Span | null;
  readonly stream: boolean;
  /** The value of the top-level `stream_options`, even a literal null; null without the member. */
  readonly streamOptions: Span | null;
  /** The client requested usage: `stream_options.include_usage` is true. */
  readonly includeUsage: boolean;
  /** The value of `include_usage`, if present. */
  readonly includeUsageSpan: Span | null;
  /** The larger of `max_completion_tokens` and the older `max_tokens`; null where neither sets a bound. */
  readonly maxTokens: number | null;
  /** Number of answers: `n` or `best_of`, for each prompt. */
  readonly choices: number;
  /** Elements of the lists of documents: what a request asks to rank, score or classify. */
  readonly documents: number;
  /** Spans of the additional members that the endpoint reads. */
  readonly others: ReadonlyMap<string, Span>;
  readonly inputTokens: number;
  /** What base64 within texts has beyond that, if the model reads it as text. */
  readonly textTokens: number;
  /** Members that body rules name; undefined where the body was not searched for them. */
  readonly members: FoundMembers | undefined;
  /** Just before the closing brace of the body, for insertion of `,"key":value`. */
  readonly insertAt: number;
  /** The body has no members, so an insertion needs no comma. */
  readonly isEmpty: boolean;
}

/** What an endpoint reads of a request. */
export interface Wanted {
  /** The model of a request without one; undefined where it is required, empty where the path names it. */
  readonly defaultModel: string | undefined;
  /** Top-level members in addition to the common ones. */
  readonly members: readonly string[];
  /** All top-level members read here: gateway and upstream must interpret them alike. */
  readonly names: MemberNames;
}

/** Read for all endpoints. */
const COMMON = ['model', 'stream', 'stream_options', 'max_completion_tokens', 'max_tokens', 'n'];

/** @param members in addition to the common ones */
export function wants(members: readonly string[], defaultModel?: string): Wanted {
  return { members, defaultModel, names: new MemberNames([...COMMON, ...members]) };
}

/** For requests without a JSON body. */
export const NO_SCAN: RequestScan = {
  model: '',
  modelSpan: null,
  stream: false,
  streamOptions: null,
  includeUsage: false,
  includeUsageSpan: null,
  maxTokens: null,
  choices: 1,
  documents: 0,
  others: new Map(),
  inputTokens: 0,
  textTokens: 0,
  members: undefined,
  insertAt: 0,
  isEmpty: true,
};
