// The parts of the comparison of clients: a client makes the same calls directly to a server and through the gateway in
// front of it. This file holds the contract between the clients, the servers and the run; it runs nothing.

/**
 * The calls. A client has those that its library offers; a server that cannot answer one says so in `lacks`. A client may
 * have others: a name begins with one of these and a dot.
 */
export const CALLS = [
  'models.list',
  'models.retrieve',
  'chat',
  'chat.stream',
  'chat.stream.usage',
  'chat.tools',
  'chat.tools.stream',
  'chat.json_schema',
  'chat.n2',
  'chat.logprobs',
  'chat.reasoning',
  'responses',
  'responses.stream',
  'responses.tools',
  'embeddings',
  'embeddings.base64',
  'images',
  'images.stream',
  'speech',
  'transcription',
  'moderations',
  'completions',
  'error.unknown_model',
  'error.bad_request',
  'error.server',
  // A target that answered 429 is left alone for a while, so this call is the last one.
  'error.rate_limit',
] as const;

/**
 * The text of the user in a call: the last message of the user, `input`, the prompt of an image, of a speech and of a
 * transcription. It is exactly this, in every language: servers choose their answer by it, and the comparison counts the
 * requests of each call by it.
 */
export const promptOf = (call: string): string => `Call ${call}`;

/** The model that `error.unknown_model` asks for: neither the server nor the gateway has it. */
export const UNKNOWN_MODEL = 'no-such-model';

/** Where a client sends its calls. */
export interface Target {
  /** Ends in `/v1`. */
  readonly baseUrl: string;
  readonly apiKey: string;
  /** The model of all calls but embeddings. */
  readonly model: string;
  readonly embeddingModel: string;
}

/** What an SDK throws: what of this it has. */
export interface CallError {
  readonly class: string;
  readonly status?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly [field: string]: unknown;
}

/** One line of a client program: a call with all that the library hands to its user, or with what it throws. */
export interface CallResult {
  readonly call: string;
  readonly result?: unknown;
  readonly error?: CallError;
}

/** A client library in one version. */
export interface ComparedClient {
  /** As in the table: `openai (Node)`. */
  readonly name: string;
  /** Exactly, as pinned: `6.9.1`. */
  readonly version: string;
  readonly calls: readonly string[];
  /** It calls the paths of Azure OpenAI. Default false. */
  readonly isAzure?: boolean;
  /**
   * Installs or builds what it needs. Runs before the first `run`.
   * @throws Unavailable when this machine cannot have it, such as without its toolchain
   */
  prepare(): Promise<void>;
  /** Makes these calls, one after the other, in a process of its own (see `program.ts`). */
  run(target: Target, calls: readonly string[]): Promise<CallResult[]>;
}

/** A server that speaks the API, in one version. */
export interface ComparedServer {
  readonly name: string;
  readonly version: string;
  /** @throws Unavailable when this machine cannot have it */
  start(): Promise<RunningServer>;
}

/** A server that listens on loopback. */
export interface RunningServer extends Target {
  /** Calls that it cannot answer, and with each its variants, with the reason. They are skipped, and printed. */
  readonly lacks: Readonly<Record<string, string>>;
  /** Whether it has the paths of Azure OpenAI. Default false. */
  readonly hasAzurePaths?: boolean;
  /** Whether two clients at the same time get the answers that each of them alone would get. */
  readonly isParallel?: boolean;
  /** Whether its `/responses` takes WebSockets. Default false. */
  readonly takesWebSockets?: boolean;
  close(): Promise<void>;
}

/** Why a client or a server is not on this machine: a named skip, never a silent one. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
}
