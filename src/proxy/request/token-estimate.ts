// How many tokens a request may come to, before anybody has counted: for a reservation, and for what was never measured. What
// is attached to a request is attachments.ts.

/** Of text in a European language; other scripts have more bytes a token, and code has fewer. */
export const BYTES_PER_TOKEN = 4;
/** Reserved for an answer of which the client did not say how long it may be. */
export const ANSWER_TOKENS = 256;

export interface Estimate {
  readonly prompt: number;
  /** The most that the client allows, or what is assumed where it allows anything. */
  readonly completion: number;
  /** The client itself said how long the answer may be. */
  readonly isBounded: boolean;
  /** Answers in text that are written at the same time; undefined where a model writes none. */
  readonly choices?: number;
}

/** What was read of a request. */
export interface Counts {
  readonly inputTokens: number;
  /** Of each answer; null where the client did not say it. */
  readonly maxTokens: number | null;
  readonly choices: number;
}

/** What a request comes to, with its answer. */
export function estimateTokens({ maxTokens, choices, inputTokens }: Counts): Estimate {
  return {
    prompt: inputTokens,
    // Whatever it says: sums of it have to stay exact.
    completion: Math.min((maxTokens ?? ANSWER_TOKENS) * choices, Number.MAX_SAFE_INTEGER / 4096),
    isBounded: maxTokens !== null,
    choices,
  };
}

/** What so many bytes of text come to. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}
