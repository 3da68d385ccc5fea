// What the tests know of a vendor: its answers as they were recorded or are documented. Fixtures hold data only; each names its
// sources. Texts, ids and names of accounts are shortened or replaced; members, types and headers are the vendor's.

/** What a client of the gateway reads after an error of the vendor. */
export type Seen =
  /** Status and bytes of the vendor. */
  | 'verbatim'
  /** Status of the vendor, or `status`, and its text in an error object of OpenAI's shape. */
  | { readonly text: string; readonly status?: number }
  /** 406 with the gateway's text, and nothing of the vendor's. */
  | 'upstream_auth_error'
  | 'upstream_account_error';

export interface VendorError {
  readonly kind:
    | 'credential'
    | 'permission'
    | 'model'
    | 'parameter'
    | 'context length'
    | 'content filter'
    | 'rate limit'
    | 'quota'
    | 'overload'
    | 'failure';
  /** Link. `documented:` in front if the vendor describes it and no recording was found. */
  readonly source: string;
  readonly status: number;
  /** Besides the content type. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Default: application/json. */
  readonly contentType?: string;
  readonly body: string;
  readonly seen: Seen;
  /** `retry-after` for the client, of a 429 or 503. Default: 1, if the vendor sends none. */
  readonly retryAfter?: string;
  /** How long the target is left alone after a rate limit, in seconds. Default: not at all, as long as it is the only target. */
  readonly coolDown?: number;
}

/** An error within a 200, as an event of the stream or as the whole answer. */
export interface VendorBreak {
  readonly what: string;
  readonly source: string;
  readonly frames: readonly string[];
  /**
   * Before output: as an error answer. `frames`: all frames as they came, and SDKs raise. `cut`: the frames, the gateway's own error, and
   * no clean end.
   */
  readonly seen: Seen | 'frames' | 'cut';
  /** Tokens that count although it failed. Default: none. */
  readonly usage?: readonly [prompt: number, completion: number];
}

export interface VendorFixture {
  /** The recipe: examples/vendors/NAME.yaml. */
  readonly recipe: string;
  /** Its name in test/upstream/vendor-errors, where more of its errors are. */
  readonly vendor: string;
  /** Public name in the recipe of the model that the fixture is about. */
  readonly model: string;
  readonly upstreamModel: string;
  /** Path and query of a chat completion, behind the host, with the values that `recipe.ts` sets. */
  readonly target: string;
  /** Where the success shapes come from. */
  readonly source: string;
  readonly answer: {
    readonly headers: Readonly<Record<string, string>>;
    /** The bytes of the body. */
    readonly body: string;
    readonly text: string;
    readonly usage: readonly [prompt: number, completion: number];
  };
  readonly stream: {
    readonly headers: Readonly<Record<string, string>>;
    /** The bytes of each chunk of the body. */
    readonly frames: readonly string[];
    readonly text: string;
    readonly usage: readonly [prompt: number, completion: number];
    /** Whether the vendor is asked for usage, also on behalf of a client that did not. */
    readonly asksForUsage: boolean;
  };
  /** A stream of the Responses API, where its shape is peculiar. */
  readonly responses?: {
    readonly model: string;
    readonly target: string;
    readonly source: string;
    readonly frames: readonly string[];
    readonly usage: readonly [prompt: number, completion: number];
  };
  /** Header with the vendor's id of a request, and its value in `answer`. */
  readonly requestId?: readonly [name: string, value: string];
  /** Those that test/upstream/vendor-errors does not have. */
  readonly errors: readonly VendorError[];
  readonly breaks?: readonly VendorBreak[];
  /** Request members of a client, and what becomes of them by the recipe. */
  readonly members: {
    /** Of another model of the recipe: its public name, and the vendor's. */
    readonly model?: readonly [name: string, upstreamModel: string];
    readonly sent: Readonly<Record<string, unknown>>;
    readonly received: Readonly<Record<string, unknown>>;
    /** Headers of a client that reach the vendor. */
    readonly headers?: Readonly<Record<string, string>>;
    /** Members that the recipe rejects, each by itself. */
    readonly refused?: Readonly<Record<string, unknown>>;
  };
}
